"""Chunks of rows as Arrow tables of one schema.

The schema is the user's, or that of the first chunk; later chunks are cast to it where nothing is
lost.
"""

from __future__ import annotations

from typing import Any

from silva.columns import Block, Column, Dictionary, Strings, Union, Values, to_arrow
from silva.columns.arrow_cast import cast_without_loss
from silva.errors import ColumnError
from silva.feed.arrow import arrow_array


class ArrowTables:
    def __init__(self, schema: Any, hint: str) -> None:
        self.schema = schema
        """None until the first chunk."""
        self._hint = hint
        """Advice for values that do not fit, appended to errors."""

    def table(self, chunk: Block) -> Any:
        import pyarrow as pa

        arrays = {name: _array(name, column) for name, column in chunk.columns.items()}
        if self.schema is None:
            self.schema = pa.schema([(name, array.type) for name, array in arrays.items()])
        fitted = [self._fitted(n, arrays, self.schema.field(n).type) for n in self.schema.names]
        return pa.Table.from_arrays(fitted, schema=self.schema)

    def _fitted(self, name: str, arrays: dict[str, Any], kind: Any) -> Any:
        import pyarrow as pa

        if name not in arrays:
            raise ColumnError(f"the schema has a column {name!r}, which the pipeline does not have")
        array = arrays[name]
        try:
            return cast_without_loss(array, kind)
        except pa.ArrowException:
            raise ColumnError(
                f"column {name!r} is {array.type} in some rows and {kind} in the schema: give it "
                f"one type with cast(…){self._hint}"
            ) from None


def _array(name: str, column: Column) -> Any:
    import pyarrow as pa

    if isinstance(column, Dictionary):
        column = column.expand()
    if isinstance(column, Strings):
        return column.data
    column = column.settled()
    if isinstance(column, Values | Union):
        try:
            return arrow_array(name, column.batch())
        except OverflowError:
            raise ColumnError(
                f"column {name!r} holds integers beyond int64: cast it first"
            ) from None
        except RecursionError:
            raise ColumnError(f"column {name!r} holds lists that are nested too deeply") from None
    try:
        return to_arrow(column)
    except pa.ArrowException as error:
        raise ColumnError(
            f"column {name!r} cannot be converted to Arrow ({error}): cast it to another type first"
        ) from error
