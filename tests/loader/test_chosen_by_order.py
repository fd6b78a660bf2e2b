"""`take` and `skip` above a shuffle choose rows by an order that evaluation and epochs change."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import silva as sv

ROWS = sv.from_columns({"x": np.arange(20), "w": np.ones(20)})


def values(loader):
    return sorted(x for batch in loader for x in batch["x"][batch["mask"]].tolist())


@pytest.mark.parametrize(
    "chosen",
    [
        ROWS.shuffle(seed=0).take(8).batch(4),
        ROWS.shuffle(seed=0).skip(12).batch(4),
        ROWS.shuffle(seed=0).derive(y=lambda x: x).take(8).batch(4),
        ROWS.shuffle(seed=0).batch(4).take(2),
        ROWS.sample(weights="w").take(8).batch(4),
        sv.concat([ROWS, ROWS.shuffle(seed=0).take(8)]).batch(4),
    ],
)
def test_evaluation_refuses_rows_that_are_chosen_by_the_order_it_drops(chosen):
    with pytest.raises(sv.PlanError, match=r"other rows than in training: put \w+ before"):
        chosen.loader(eval=True, backend="inline")


def test_evaluation_reads_the_rows_that_training_reads_if_they_are_chosen_before_the_shuffle():
    first = ROWS.take(8).shuffle(seed=0).batch(4)
    assert values(first.loader(eval=True, backend="inline")) == list(range(8))


@pytest.mark.parametrize("by", [None, "x"])
def test_a_split_after_a_shuffle_is_the_same_split_in_evaluation(by):
    train, val = ROWS.shuffle(seed=0).split(train=0.6, val=0.4, by=by)
    kept = values(val.batch(4).loader(eval=True, backend="inline"))
    assert kept == sorted(row["x"] for row in val)
    assert not set(kept) & {row["x"] for row in train}


def test_a_skip_after_a_shuffle_warns_that_it_is_no_fixed_split():
    with pytest.warns(UserWarning, match=r"drops other rows in each epoch.*split\(train") as told:
        ROWS.shuffle(seed=0).skip(12).batch(4).loader(backend="inline")
    assert len(told) == 1
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    "rows", [ROWS.skip(12).shuffle(seed=0), ROWS.shuffle(seed=0).take(12), ROWS.skip(3)]
)
def test_rows_that_are_chosen_as_people_mean_it_do_not_warn(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows.batch(4).loader(backend="inline")


def test_a_skip_after_a_shuffle_that_is_read_in_one_epoch_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ROWS.shuffle(seed=0).skip(12).batch(4).loader(backend="inline", epochs=1)
