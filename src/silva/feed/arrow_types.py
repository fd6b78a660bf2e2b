"""The columns of a batch as Arrow arrays, and Arrow's types for silva's short names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from silva.columns.arrow_arrays import dense_to_arrow
from silva.columns.ragged import Grouped, Ragged
from silva.errors import ColumnError, no_unicode

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
    if isinstance(value, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(value).reshape(len(value), -1)
        return dense_to_arrow(value.data, np.asarray(missing.any(axis=1)))
    if isinstance(value, np.ndarray) and value.ndim and value.dtype != object:
        return dense_to_arrow(value, None)
    try:
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
