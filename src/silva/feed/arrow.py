"""An epoch as a stream of Arrow record batches.

A batch becomes a record batch; rows of a pipeline without `batch` are grouped. The first batch sets
the schema: later ones are cast to it where no value changes, and are an error otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from silva.columns.arrow_arrays import dense_to_arrow
from silva.columns.arrow_cast import cast_without_loss
from silva.columns.ragged import Grouped, Ragged
from silva.columns.values import batch_of_rows
from silva.errors import ColumnError, no_unicode
from silva.plan.node import Node
from silva.plan.schema import columns, is_batched, types

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1024
"""Rows in a record batch where the pipeline has no `batch`."""


def arrow_reader(epoch: Iterable[dict[str, Any]], plan: Node) -> pa.RecordBatchReader:
    """An epoch of the pipeline with this plan as a `pyarrow.RecordBatchReader`.

    >>> import silva as sv
    >>> rows = sv.from_columns({"x": range(3), "y": ["a", "b", "c"]})
    >>> arrow_reader(rows.loader(workers=0), rows.plan).read_all().to_pydict()
    {'x': [0, 1, 2], 'y': ['a', 'b', 'c']}
    """
    import pyarrow as pa

    batches = iter(epoch) if is_batched(plan) else _grouped(iter(epoch))
    found = (_arrays(batch) for batch in batches)
    first = next(found, None)
    if first is None:
        return pa.RecordBatchReader.from_batches(_schema(plan), [])
    schema = pa.schema([(name, array.type) for name, array in first.items()])
    return pa.RecordBatchReader.from_batches(
        schema, (_record(arrays, schema) for arrays in chain([first], found))
    )


def _grouped(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    while group := list(islice(rows, _ROWS)):
        yield {name: batch_of_rows([row[name] for row in group]) for name in group[0]}


def _arrays(batch: dict[str, Any]) -> dict[str, pa.Array]:
    arrays = {name: arrow_array(name, value) for name, value in batch.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise ColumnError(f"every column of an Arrow batch needs one value per row, but {shown}")
    return arrays


def _record(arrays: dict[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(
        [_fitted(name, array, schema.field(name).type) for name, array in arrays.items()],
        schema=schema,
    )


def _fitted(name: str, array: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    try:
        return cast_without_loss(array, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise ColumnError(
            f"column {name!r} is {array.type} in this batch and was {kind} in the first, which set "
            "the schema: give it one type and shape, e.g. with cast(…), or pad to a fixed length"
        ) from None


def _schema(plan: Node) -> pa.Schema:
    """The schema of an epoch without rows, from the column types that the plan knows."""
    import pyarrow as pa

    known = types(plan)
    return pa.schema([(name, arrow_type(known.get(name))) for name in columns(plan)])


if TYPE_CHECKING:
    import pyarrow as pa


def arrow_array(name: str, value: Any) -> pa.Array:
    """Converts a column of a batch. Rows of several dimensions become nested lists of fixed size.
    Grouped rows are expanded, since few readers support lists in dictionaries."""
    import pyarrow as pa

    if isinstance(value, Grouped):
        value = value.expand()
    if isinstance(value, Ragged):
        return pa.LargeListArray.from_arrays(
            np.asarray(value.offsets, dtype=np.int64), arrow_array(name, value.values)
        )
    try:
        if isinstance(value, np.ma.MaskedArray) and value.ndim and value.dtype.names is None:
            return dense_to_arrow(value.data, np.ma.getmaskarray(value))
        if isinstance(value, np.ndarray) and value.ndim and value.dtype != object:
            return dense_to_arrow(value, None)
        return pa.array([_plain(item) for item in value])
    except UnicodeEncodeError:
        raise ColumnError(no_unicode(name)) from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        raise ColumnError(f"column {name!r} cannot be converted to Arrow: {error}") from None


def _plain(item: Any) -> Any:
    return item.tolist() if isinstance(item, np.ndarray | np.generic) else item


def arrow_type(short: str | None) -> pa.DataType:
    """Arrow's type for `int64`, `str`, `bytes`, `list<float32>`; null where it is unknown.

    >>> print(arrow_type("list<str>"))
    large_list<item: string>
    """
    import pyarrow as pa

    if short is None:
        return pa.null()
    if short.startswith("list<"):
        return pa.large_list(arrow_type(short[5:-1]))
    named = {"str": pa.string(), "bytes": pa.binary(), "int": pa.int64(), "float": pa.float64()}
    if short in named:
        return named[short]
    try:
        return pa.from_numpy_dtype(np.dtype(short))
    except (TypeError, pa.ArrowNotImplementedError):
        return pa.null()
