"""Batches as jax arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from silva.columns.ragged import Grouped, Ragged
from silva.feed.refuse import refuse_missing, refuse_type


def jax_batches(batches: Iterable[dict[str, Any]], device: Any = None) -> Iterator[dict[str, Any]]:
    """Batches as dicts of jax arrays, on `device` if one is given.

    A device may be a `jax.Device` or a `Sharding`. Arrays are copied, because jax assumes that
    they never change, and the trainer may write into a batch. Text stays a list. 64-bit numbers
    become 32-bit ones unless `jax_enable_x64` is set, as everywhere in jax.

    >>> import silva as sv
    >>> batches = jax_batches(sv.from_columns({"x": [1.5, 2.5]}).batch(2).loader(workers=0))
    >>> next(batches)["x"].tolist()
    [1.5, 2.5]
    """
    for batch in batches:
        yield {name: _column(name, value, device) for name, value in batch.items()}


def _column(name: str, value: Any, device: Any) -> Any:
    import jax

    if isinstance(value, Grouped):
        unique, inverse = (_column(name, part, device) for part in (value.unique, value.inverse))
        return Grouped.of(unique, inverse)
    if isinstance(value, Ragged):
        return Ragged(_column(name, value.values, device), _column(name, value.offsets, device))
    if isinstance(value, np.ma.MaskedArray):
        refuse_missing(name, "jax")
    if not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        return array.tolist()
    if array.dtype.kind in "mM":
        refuse_type(name, array.dtype, "jax")
    known = jax.dtypes.canonicalize_dtype(array.dtype)
    return jax.device_put(array.astype(known, copy=True), device)
