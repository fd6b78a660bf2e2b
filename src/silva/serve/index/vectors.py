"""Vectors of unit length, and the cosine of a query with each.

A score is one dot product of two rows, whatever stands beside them: `np.vecdot` calls the same
kernel for each pair. So the scores of a query depend neither on its batch, nor on the number of
threads, nor on the other passages. A matrix product would be no quicker for one query, and its
last bits change with its shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from silva.errors import ColumnError, SilvaError
from silva.serve.index.keyword import read_array
from silva.serve.models.unit import unit


def cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """The cosine of a unit vector with each row."""
    found: np.ndarray = np.vecdot(vectors, query).astype(np.float64)
    return found


def query_vector(value: Any, dims: int) -> np.ndarray:
    """A query as a unit vector; ColumnError where it is none."""
    try:
        plain = np.asarray(value)
    except ValueError:  # a list of lists of several lengths
        plain = np.empty(0, object)
    if plain.dtype.kind not in "fiu":
        raise ColumnError(f"the index is searched by a vector, not by {value!r:.80}")
    if plain.shape != (dims,):
        raise ColumnError(
            f"the vectors of the index have {dims} numbers, and the query is of shape {plain.shape}"
        )
    if not np.isfinite(plain).all():
        raise ColumnError("the vector of the query holds NaN or infinity")
    return unit(plain)


def vectors_of(column: Any, name: str) -> np.ndarray:
    """The vectors of an Arrow column of lists, of one length each."""
    import pyarrow as pa

    data = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = data.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or _is_fixed(kind)):
        raise ColumnError(f"to_index(vector={name!r}): the column holds {kind}, not vectors")
    if data.null_count:
        raise ColumnError(f"to_index(vector={name!r}): {data.null_count} rows have no vector")
    numbers = data.flatten()
    if numbers.null_count or not (
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    ):
        raise ColumnError(f"to_index(vector={name!r}): the column holds {kind}, not numbers")
    dims = len(numbers) // max(len(data), 1)
    if not _is_fixed(kind) and (np.diff(data.offsets.to_numpy()) != dims).any():
        raise ColumnError(f"to_index(vector={name!r}): the vectors have several lengths")
    made = numbers.to_numpy(zero_copy_only=False).reshape(len(data), dims)
    if not np.isfinite(made).all():
        raise ColumnError(f"to_index(vector={name!r}): a vector holds NaN or infinity")
    return unit(made)


def _is_fixed(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_fixed_size_list(kind))


def read_vectors(data: bytes, rows: int, dims: int, shown: str) -> np.ndarray:
    found = read_array(data, shown)
    if found.shape != (rows, dims) or found.dtype != np.float32:
        raise SilvaError(f"{shown} is damaged: its vectors do not fit its rows. Build it again")
    return found
