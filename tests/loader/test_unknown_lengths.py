"""`len(loader)` where the number of batches is not known: the error says what decides it."""

from __future__ import annotations

import pytest

import silva as sv

ROWS = sv.from_columns({"x": range(20), "l": [[i] * (i % 3) for i in range(20)]})
UNKNOWN = {
    "`split` deals rows out by a hash": ROWS.split(train=0.8, val=0.2).train.batch(4),
    r"`filter x > 3` decides which rows are kept": ROWS.filter(sv.col("x") > 3).batch(4),
    r"`filter lambda\(x\)  \[.*test_unknown_lengths.py:\d+\]` decides": ROWS.filter(
        lambda x: x > 3
    ).batch(4),
    "`explode l` makes any number of rows": ROWS.explode("l").derive(y=lambda x: x).batch(4),
    r"mix\(stop='repeat'\) ends": sv.mix([ROWS, ROWS], seed=0, stop="repeat").batch(4),
    "`bucket .*` fills its batches by the lengths": ROWS.bucket("l", {0: 2, 9: 2}),
    "`batch .*` fills its batches by the lengths": ROWS.batch(tokens=4, by="l"),
}


@pytest.mark.parametrize("why", UNKNOWN)
def test_the_step_that_decides_is_named(why):
    with pytest.raises(TypeError, match=f"is not known before it has run, because {why}"):
        len(UNKNOWN[why].loader(backend="inline"))


def test_the_step_nearest_to_the_source_is_named():
    rows = ROWS.filter(lambda x: x).explode("l").batch(4)
    with pytest.raises(TypeError, match="because `filter"):
        len(rows.loader(backend="inline"))


def test_ranks_that_may_take_different_steps_are_told_why():
    train = ROWS.split(train=0.8, val=0.2).train.batch(4, drop_last=True)
    with pytest.raises(sv.PlanError, match="because `split` deals rows out by a hash"):
        next(iter(train.loader(rank=0, world=2)))


def test_a_source_that_does_not_know_its_rows_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("a\nb\n")
    with pytest.raises(
        TypeError, match=r"the source \(lines .*a.txt\) does not know how many rows"
    ):
        len(sv.read_lines(tmp_path / "a.txt").batch(2).loader(backend="inline"))
