"""Encodes derived columns for files, so that reading them equals computing them.

A stored value comes back as the same Python object or array: what follows in a pipeline must not
depend on what is stored. Columns that cannot come back so are refused, with the reason.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from silva.columns import Array, Column, Lists, Strings, Values, from_arrow, to_arrow
from silva.columns.dictionary import expanded
from silva.errors import TableError
from silva.store.versions.manifest import Fragment, Part

_LISTS = ":list"
"""Follows the fingerprint of a column whose rows must come back as Python lists."""


def stored_name(part: Part, fingerprint: str) -> str | None:
    """The name of a derived column in a part; None if the part does not hold it."""
    for name in (fingerprint, fingerprint + _LISTS):
        if name in part.columns:
            return name
    return None


def is_stored(fragment: Fragment, fingerprint: str) -> bool:
    return any(stored_name(part, fingerprint) for part in fragment.parts)


def encode_column(name: str, fingerprint: str, column: Column) -> dict[str, Any]:
    """The column as an Arrow array, under its name in files."""
    column = expanded(column)
    if isinstance(column, Values):
        column = column.settled()
    if isinstance(column, Array):
        if column.data.ndim > 1 and column.valid is not None:
            raise _refused(name, "has nulls among its arrays")
        if column.data.ndim > 1 and not column.data[:1].size:
            raise _refused(name, "has arrays without items")
        return {fingerprint: _unchanged(name, column)}
    if isinstance(column, Lists | Strings):
        return {fingerprint: _unchanged(name, column)}
    assert isinstance(column, Values)
    return _values(name, fingerprint, column)


def decode_column(name: str, column: Column) -> Column:
    """The column that was encoded under this name."""
    if not name.endswith(_LISTS):
        return column
    return Values([row if row is None else _as_list(row) for row in column.rows()])


def _as_list(row: Any) -> list[Any]:
    return row.tolist() if isinstance(row, np.ndarray) else list(row)


def _unchanged(name: str, column: Column) -> Any:
    """The column as an Arrow array that comes back as it was."""
    import pyarrow as pa

    try:
        made = to_arrow(column)
    except (pa.ArrowException, UnicodeError) as error:
        raise _refused(name, f"has rows that Arrow cannot hold ({error})") from error
    before, after = column, from_arrow(made)
    while isinstance(before, Lists) and isinstance(after, Lists):
        before, after = before.values, after.values
    if not isinstance(before, Array) or not len(before):
        return made
    kind = f"has {before.data.dtype} arrays" if made.type.num_fields else f"is {before.data.dtype}"
    if before.data.dtype.kind in "mM" and np.isnat(before.data).any():
        kind += " with NaT"
    if not isinstance(after, Array) or before.data.dtype != after.data.dtype:
        raise _refused(name, kind)
    if (before.valid is None or before.valid.all()) and after.valid is not None:
        raise _refused(name, kind)
    return made


def _values(name: str, fingerprint: str, column: Values) -> dict[str, Any]:
    import pyarrow as pa

    kinds = {type(item) for item in column.items} - {type(None)}
    if kinds <= {list}:
        inner = {type(x) for item in column.items if item is not None for x in item}
        if len(inner) <= 1 and inner <= {int, float, bool, str, bytes}:
            return {fingerprint + _LISTS: _arrow(name, column)}
        raise _refused(name, f"has lists of {_listed(inner)}")
    if len(kinds) == 1 and kinds <= {int, float, bool, str, bytes}:
        return {fingerprint: _arrow(name, column)}
    if kinds == {np.ndarray}:
        raise _refused(name, "has arrays of different shapes: return lists, or arrays of one shape")
    if not kinds:
        return {fingerprint: pa.nulls(len(column.items), pa.float64())}
    raise _refused(name, f"has rows of {_listed(kinds)}")


def _arrow(name: str, column: Values) -> Any:
    import pyarrow as pa

    try:
        made = pa.array(column.items)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise _refused(name, f"has rows that Arrow cannot hold ({error})") from error
    if pa.types.is_list(made.type) and pa.types.is_null(made.type.value_type):
        return made.cast(pa.list_(pa.int64()))
    return made


def _listed(kinds: set[type]) -> str:
    return " and ".join(sorted(kind.__name__ for kind in kinds))


def _refused(name: str, why: str) -> TableError:
    return TableError(
        f"{name!r} {why}, which files would not give back unchanged: it is computed on read"
    )
