"""An epoch as a stream of Arrow record batches.

A batch becomes a record batch; where nothing batches the rows, they are grouped. The first batch
sets the schema: what comes later is cast to it where nothing is lost, and is an error otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from silva.columns.settle import batch_of_rows
from silva.errors import ColumnError
from silva.feed.arrow_types import arrow_array, arrow_type
from silva.plan.schema import columns, types
from silva.plan.verify import is_batched

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1024
"""Rows in a record batch where the pipeline has no `batch`."""


def arrow_reader(loader: Any) -> pa.RecordBatchReader:
    """The next epoch of the loader as a `pyarrow.RecordBatchReader`.

    >>> import silva as sv
    >>> loader = sv.from_columns({"x": range(3), "y": ["a", "b", "c"]}).loader(workers=0)
    >>> arrow_reader(loader).read_all().to_pydict()
    {'x': [0, 1, 2], 'y': ['a', 'b', 'c']}
    """
    import pyarrow as pa

    batches = iter(loader)
    if not is_batched(loader._logical):
        batches = _grouped(batches)
    found = (_arrays(batch) for batch in batches)
    first = next(found, None)
    if first is None:
        return pa.RecordBatchReader.from_batches(_expected(loader._logical), [])
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
        raise ColumnError(f"the columns of an Arrow batch have one value a row, but {shown}")
    return arrays


def _record(arrays: dict[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(
        [_fitted(name, array, schema.field(name).type) for name, array in arrays.items()],
        schema=schema,
    )


def _fitted(name: str, array: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise ColumnError(
            f"column {name!r} is {array.type} in this batch and was {kind} in the first, which set "
            "the schema: give it one type and shape, e.g. by cast(…), or pad to a fixed length"
        ) from None


def _expected(plan: Any) -> pa.Schema:
    """The schema of an epoch without a single batch: what is known of the columns beforehand."""
    import pyarrow as pa

    known = types(plan)
    return pa.schema([(name, arrow_type(known.get(name))) for name in columns(plan)])
