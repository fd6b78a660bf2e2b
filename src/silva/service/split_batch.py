"""Splits a batch of the whole job among its ranks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from silva.columns import Ragged
from silva.columns.ragged import Grouped
from silva.errors import ColumnError


def split_batch(batch: dict[str, Any], parts: int) -> list[dict[str, Any]] | None:
    """The rows of a batch for each rank, as evenly as possible; None if there are fewer rows than
    ranks.

    >>> [part["x"].tolist() for part in split_batch({"x": np.arange(5)}, 2)]
    [[0, 1, 2], [3, 4]]
    """
    rows = {len(value) for value in batch.values() if hasattr(value, "__len__")}
    if len(rows) != 1 or any(not hasattr(value, "__len__") for value in batch.values()):
        raise ColumnError(
            "aligned=True splits batches among ranks, so every column of a batch needs one value "
            f"for each row, but their lengths are {sorted(rows)}"
        )
    (count,) = rows
    if count < parts:
        return None
    ends = [-(-count * i // parts) for i in range(parts + 1)]
    return [
        {name: _rows(value, a, b) for name, value in batch.items()}
        for a, b in itertools.pairwise(ends)
    ]


def _rows(value: Any, start: int, stop: int) -> Any:
    if isinstance(value, Ragged):
        first, last = int(value.offsets[start]), int(value.offsets[stop])
        return Ragged(_rows(value.values, first, last), value.offsets[start : stop + 1] - first)
    if isinstance(value, Grouped):
        used, inverse = _by_appearance(value.inverse[start:stop])
        return Grouped.of(Grouped.of(value.unique, used).expand(), inverse)
    return value[start:stop]


def _by_appearance(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct numbers in order of first appearance, and the place of each number in them."""
    distinct, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return distinct[order], place[inverse]
