"""A filter that keeps no row is named, instead of an epoch without a word."""

from __future__ import annotations

import warnings

import pytest
from busy import spin

import silva as sv

ROWS = sv.from_columns({"x": range(3000)})


def forgets(x):
    x > 5  # noqa: B015  the mistake itself


def never(x):
    return x < 0


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_a_filter_that_keeps_nothing_is_named_with_the_rows_it_saw(backend):
    loader = ROWS.filter(never).batch(4).loader(backend=backend)
    with pytest.warns(UserWarning, match=r"filter never\(x\).*kept none of 3,000 rows$"):
        assert list(loader) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(loader) == []  # once


def test_a_function_without_a_return_is_named_in_the_warning():
    with pytest.warns(UserWarning, match="`return` may be missing"):
        assert list(ROWS.filter(forgets).batch(4)) == []


def test_an_expression_and_a_filter_of_batches_are_named_too():
    with pytest.warns(UserWarning, match=r"filter x < 0` kept none of 3,000 rows"):
        assert list(ROWS.filter(sv.col("x") < 0)) == []
    with pytest.warns(UserWarning, match="kept none of 3 batches"):
        assert list(ROWS.batch(1000).filter(lambda x: x[0] < 0)) == []


def test_counting_and_empty_sources_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ROWS.filter(never).count() == 0
        assert list(ROWS.take(0).filter(never)) == []
        assert len(list(ROWS.filter(lambda x: x < 2).batch(4))) == 1


@pytest.mark.filterwarnings("ignore:the epoch has no rows")
def test_explanations_of_an_empty_run_say_why_no_row_came_out():
    pipeline = ROWS.filter(never).derive(y=lambda x: x)
    said = r"filter never\(x\).*kept none of 3,000 rows"
    measured = str(pipeline.explain(analyze=True, seconds=1, backend="inline"))
    assert "nothing has run yet" not in measured
    assert "kept none of 3,000 rows" in measured
    with pytest.raises(sv.PlanError, match=said):
        pipeline.what_if(seconds=1, y=0.5)
    with pytest.raises(sv.PlanError, match=said):
        pipeline.headroom(seconds=1, backend="inline")


def test_a_run_whose_filter_kept_nothing_can_be_explained() -> None:
    rows = ROWS.derive(z=spin(0.1)).filter(lambda z: z < 0).derive(y=lambda z: z)
    with rows.batch(8).loader(backend="inline") as loader:
        with pytest.warns(UserWarning, match="kept none"):
            list(loader)
        list(loader)
        after = loader._executor.lanes["stage 1"].stats.steps[-1]
        assert (after.rows, after.blocks > 1) == (0, True)
        after.seconds = max(after.seconds, 1e-6)  # a step without rows takes time, too
        assert "kept none" in loader.explain(analyze=True)
