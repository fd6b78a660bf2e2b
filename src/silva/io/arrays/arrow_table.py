"""Arrow tables in memory, from any library with the Arrow C data interface."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from silva.columns import Column, table_columns
from silva.errors import PlanError
from silva.io.arrays.memory import as_run
from silva.io.arrow_batches import leaf_types, short_types
from silva.io.source import register_source
from silva.io.travel import Travels


@register_source("arrow table", tag="")
@dataclass(frozen=True, eq=False)
class ArrowTable(Travels):
    runs_user_code: ClassVar[bool] = False
    table: Any
    """A `pyarrow.Table` whose columns have one chunk each, for fast access to any row."""

    @functools.cached_property
    def _columns(self) -> dict[str, Column]:
        return table_columns(self.table)

    @functools.cached_property
    def _fingerprint(self) -> str:
        import pyarrow as pa

        sink = _Digest()
        with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), self.table.schema) as writer:
            writer.write_table(self.table)
        return sink.digest.hexdigest()

    def columns(self) -> tuple[str, ...]:
        return tuple(leaf_types(self.table.schema))

    def types(self) -> dict[str, str]:
        return short_types(leaf_types(self.table.schema))

    def fingerprint(self) -> str:
        return self._fingerprint

    def length(self) -> int:
        return int(self.table.num_rows)

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        run = as_run(rows)
        if run is not None:
            return {name: self._columns[name].slice(*run) for name in columns}
        return {name: self._columns[name].take(rows) for name in columns}


class _Digest:
    """A file that hashes what is written and stores nothing."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self.closed = False

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def from_arrow(data: Any) -> ArrowTable:
    """Rows of a pyarrow, polars, pandas or DuckDB table, or of any object with Arrow's interface.

    A stream can be consumed only once, so it is read here.
    """
    import pyarrow as pa

    if not (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
        raise PlanError(
            f"from_arrow takes a table with Arrow's interface (__arrow_c_stream__), not "
            f"{type(data).__name__}"
        )
    try:
        table = data if isinstance(data, pa.Table) else pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise PlanError(f"from_arrow takes a table with named columns: {error}") from error
    leaf_types(table.schema)
    table = table.combine_chunks()
    for i, column in enumerate(table.columns):
        if column.num_chunks > 1:  # too long for 32-bit offsets
            wide = column.cast(_wide(column.type)).combine_chunks()
            table = table.set_column(i, table.schema.names[i], wide)
    return ArrowTable(table)


def _wide(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_list(kind):
        return pa.large_list(kind.value_type)
    return pa.large_string() if pa.types.is_string(kind) else pa.large_binary()
