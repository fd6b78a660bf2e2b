"""What the Arrow formats share: short type names, dotted column names, batches cut into runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from silva.columns import Array, Column, table_columns
from silva.errors import SourceError

RUN_BYTES, RUN_ROWS = 4 << 20, 65_536
"""A run has about this many bytes, and at most this many rows."""

_SHORT = {
    "string": "str",
    "large_string": "str",
    "string_view": "str",
    "binary": "bytes",
    "large_binary": "bytes",
    "binary_view": "bytes",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "date32[day]": "datetime64[D]",
    "date64[ms]": "datetime64[ms]",
}


def short_type(kind: Any) -> str:
    """The name that users know a type by: `int64`, `str`, `bytes`, `list<int64>`."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return short_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return short_type(kind.storage_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return f"list<{short_type(kind.value_type)}>"
    if types.is_fixed_size_binary(kind):
        return "bytes"
    if types.is_timestamp(kind):
        return f"datetime64[{kind.unit}]"
    return _SHORT.get(str(kind), str(kind))


def short_types(types: Mapping[str, Any]) -> dict[str, str]:
    return {name: short_type(kind) for name, kind in types.items()}


def leaf_types(schema: Any) -> dict[str, Any]:
    """The Arrow type of every column; each field of a struct is a column with a dotted name."""
    import pyarrow as pa

    leaves: dict[str, Any] = {}

    def add(name: str, kind: Any) -> None:
        if pa.types.is_struct(kind):
            for i in range(kind.num_fields):
                add(f"{name}.{kind.field(i).name}", kind.field(i).type)
        elif name in leaves:
            raise SourceError(f"two columns are called {name!r}; rename one of them in the data")
        else:
            leaves[name] = kind

    for field in schema:
        add(field.name, field.type)
    return leaves


def top_fields(schema: Any, columns: tuple[str, ...]) -> list[int]:
    """The indices of the top-level fields that hold these columns."""
    wanted = set(columns)
    return [i for i, f in enumerate(schema) if not wanted.isdisjoint(leaf_types([f]))]


def runs(
    batches: Iterable[Any], start: int, columns: tuple[str, ...]
) -> Iterator[dict[str, Column]]:
    """The rows of record batches from row `start` on, in runs of bounded size, with just these
    columns."""
    for batch in batches:
        count = batch.num_rows
        if count > start and not columns:
            yield from empty_runs(count - start)
        elif count > start:
            step = run_rows(count, batch.nbytes)
            for at in range(start, count, step):
                found = table_columns(batch.slice(at, step))
                yield {name: found[name] for name in columns}
        start = max(start - count, 0)


def run_rows(count: int, nbytes: int) -> int:
    """Rows of one run, given the bytes of `count` rows: a power of two, as batch sizes often are,
    so that few batches span two runs.

    >>> run_rows(1000, 260_000), run_rows(10, 100 << 20), run_rows(10, 1)
    (16384, 1, 65536)
    """
    fitting = RUN_BYTES * count / max(nbytes, 1)
    return min(RUN_ROWS, 1 << max(round(math.log2(max(fitting, 1))), 0))


def empty_runs(count: int) -> Iterator[dict[str, Column]]:
    """Runs without columns, which only have a length."""
    for at in range(0, count, RUN_ROWS):
        yield empty_run(min(RUN_ROWS, count - at))


def empty_run(count: int) -> dict[str, Column]:
    return {"": Array(np.zeros(count, dtype=bool))}
