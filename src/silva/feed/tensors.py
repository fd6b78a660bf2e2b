"""A batch as torch tensors, column by column, without a copy where torch can share the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from silva.columns.grouped_batch import Grouped
from silva.columns.ragged import Ragged
from silva.feed.refuse import refuse_missing, refuse_type

Place = Callable[[Any], Any]
"""Moves a tensor to where it is wanted."""

_KNOWN = {np.dtype(code) for code in "?bBhHiIlLqQefdFD"}


def tensors(batch: dict[str, Any], place: Place) -> dict[str, Any]:
    """Each column as a tensor, a `Ragged` or `Grouped` of tensors, or a list where rows are text or
    objects. An index that columns share is one tensor."""
    indices: dict[int, Any] = {}

    def grouped(name: str, value: Grouped) -> Grouped:
        if id(value.inverse) not in indices:
            indices[id(value.inverse)] = _column(name, value.inverse, place)
        return Grouped.of(_column(name, value.unique, place), indices[id(value.inverse)])

    return {
        name: grouped(name, value) if isinstance(value, Grouped) else _column(name, value, place)
        for name, value in batch.items()
    }


def _column(name: str, value: Any, place: Place) -> Any:
    import torch

    if isinstance(value, Ragged):
        return Ragged(_column(name, value.values, place), _column(name, value.offsets, place))
    if isinstance(value, np.ma.MaskedArray):
        refuse_missing(name, "torch")
    if isinstance(value, np.ndarray | np.generic):
        return _array(name, np.asarray(value), place)
    return place(value) if isinstance(value, torch.Tensor) else value


def _array(name: str, array: np.ndarray, place: Place) -> Any:
    import torch

    if array.dtype.kind in "OUS":
        return array.tolist()
    dtype = array.dtype.newbyteorder("=")
    if dtype not in _KNOWN:
        refuse_type(name, array.dtype, "torch")
    if not array.dtype.isnative:
        array = array.astype(dtype)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return place(torch.from_numpy(array))
