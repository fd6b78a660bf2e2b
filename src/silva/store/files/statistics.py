"""The least and greatest value of each column of a fragment, by which filters skip fragments."""

from __future__ import annotations

import math
from typing import Any

from silva.store.versions.manifest import Bound

_LONGEST = 64
"""Characters of the longest text that is stored as a bound."""


def statistics(table: Any) -> dict[str, tuple[Bound, Bound]]:
    """The (least, greatest) values of columns of numbers, times and text that have any.

    >>> import pyarrow as pa
    >>> statistics(pa.table({"x": [3, None, 1], "y": [[1], [2], [3]]}))
    {'x': (1, 3)}
    """
    found = {}
    for name in table.column_names:
        bounds = _bounds(table.column(name))
        if bounds is not None:
            found[name] = bounds
    return found


def _bounds(column: Any) -> tuple[Bound, Bound] | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, column.type
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        column = column.cast(pa.int32() if types.is_date32(kind) else pa.int64())
    elif not (types.is_integer(kind) or _is_float(kind) or types.is_string(kind)):
        return None
    if _is_float(kind):
        column = column.filter(pc.invert(pc.is_nan(column)))  # NaN meets no comparison
    least, greatest = (pc.min_max(column)[side].as_py() for side in ("min", "max"))
    return None if least is None or not (_kept(least) and _kept(greatest)) else (least, greatest)


def _is_float(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _kept(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, str) or len(value) <= _LONGEST
