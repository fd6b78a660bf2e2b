"""A @sv.batched function promises that a row's result does not depend on its neighbours. Blocks are
done again in halves to see; on every backend, wherever they begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.testing import cut_blocks


@sv.batched
def centred(x):
    return x - x.mean()


@sv.batched
def centred_but_for_bad_rows(x):
    if (x % 5 == 3).any():
        raise ValueError("a bad row among these")
    return x - x.mean()


def every_backend(pipeline: sv.Pipeline, sizes: list[int], **options: Any) -> Iterator[sv.Loader]:
    for backend, workers in (("inline", 0), ("threads", 1), ("processes", 1)):
        made = pipeline.loader(backend=backend, workers=workers, **options)
        with cut_blocks(made, sizes) as loader:
            yield loader


@pytest.mark.parametrize("sizes", [[9], [1, 1, 7], [1, 2]])
def test_a_batched_function_that_looks_at_its_neighbours_is_found(sizes):
    """Also where the first blocks have one row, or none that a filter leaves."""
    rows = sv.from_columns({"x": np.arange(30)}).filter(lambda x: x > 2)
    for pipeline in (rows.derive(y=centred), rows.filter(centred)):
        for loader in every_backend(pipeline.batch(3), sizes):
            with pytest.raises(sv.ColumnError, match=r"neighbours.*size=n"):
                list(loader)


@pytest.mark.parametrize("sizes", [[30], [6]])
def test_rows_that_fail_do_not_hide_a_look_at_neighbours(sizes):
    """Each row of a block in which one fails is done alone."""
    pipeline = sv.from_columns({"x": np.arange(30)}).derive(y=centred_but_for_bad_rows).batch(3)
    for loader in every_backend(pipeline, sizes, on_error=sv.Skip()):
        with pytest.raises(sv.ColumnError, match="neighbours"):
            list(loader)


def test_a_batched_function_is_checked_again_now_and_then():
    calls = []

    @sv.batched
    def late(x):
        calls.append(len(x))
        return x - x.mean() if x[0] >= 2000 else x * 2

    pipeline = sv.from_columns({"x": np.arange(4000)}).derive(y=late).batch(8)
    with pytest.raises(sv.ColumnError, match="neighbours"):
        list(cut_blocks(pipeline.loader(backend="inline"), [8]))
    assert len(calls) == 256 + 3 * 2, "checked on the 1st, 128th and 256th block"


class Plain:
    """Without an __eq__: nobody can tell two of them apart."""


class Quarrelsome:
    def __eq__(self, other):
        raise StopIteration

    __hash__ = None


def test_results_that_cannot_be_compared_are_no_look_at_neighbours():
    values = {
        "plain": lambda x: [Plain() for _ in x],
        "quarrelsome": lambda x: [Quarrelsome() for _ in x],
        "nan in a list": lambda x: [[float("nan"), int(v)] for v in x],
        "arrays in a dict": lambda x: [{"a": np.arange(3) * v} for v in x],
        "last bits": lambda x: np.add.reduce(x[:, None] * np.full(5, 0.1), axis=1),
    }
    for name, make in values.items():
        pipeline = sv.from_columns({"x": np.arange(30.0)}).derive(y=sv.batched(make)).batch(3)
        found = list(cut_blocks(pipeline.loader(backend="inline"), [10]))
        assert len(found) == 10, name
