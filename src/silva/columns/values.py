"""A column that is a Python list, and what it becomes: a denser column, or the value in a batch.

The type of a batch is a function of its own rows, and a per-row function sees the same values
wherever blocks begin. So a block may become an array only if *every* sub-run of it would get the
same type and give the same rows back: all ints, all floats, all arrays of one shape. Anything else
(ints among floats, None, lists) stays `Values`, and is decided batch by batch.
"""

from __future__ import annotations

import copyreg
import struct
import sys
from collections.abc import Collection, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any

import numpy as np

from silva.columns.allocation import empty
from silva.columns.column import Allocate, Array, Column, is_masked_array, masked_batch
from silva.columns.number_runs import offsets_of
from silva.columns.ragged import Ragged
from silva.errors import ColumnError

PLAIN = frozenset({bool, int, float, str, bytes, type(None), list, tuple, dict})
"""Types whose values are the same before and after settling."""
_NUMBERS = {bool: np.dtype(bool), int: np.dtype(np.int64), float: np.dtype(np.float64)}
_FORMATS = {bool: "?", int: "q", float: "d"}
"""The formats in which `struct` packs them, twice as fast as `np.fromiter`."""
_FEW = 64
"""Items below which it is not faster."""
_OWN = frozenset({np.bool_, np.int64, np.float64})
"""Numpy scalars that come back from an array as Python numbers."""
_SMALL = frozenset({bool, int, float, type(None)})
"""Types whose values all count as `_SMALL_BYTES`."""
_SMALL_BYTES = 64


class Values:
    """A column of Python values."""

    __slots__ = ("_kinds", "items")

    def __init__(self, items: list[Any], kinds: frozenset[type] | None = None) -> None:
        self.items = items
        self._kinds = kinds

    @property
    def kinds(self) -> frozenset[type]:
        """The Python types of the items."""
        if self._kinds is None:
            kinds = list(map(type, self.items))
            alike = kinds and kinds.count(kinds[0]) == len(kinds)  # faster than hashing each
            self._kinds = frozenset(kinds[:1] if alike else kinds)
        return self._kinds

    @property
    def are_numbers(self) -> bool:
        """Whether they are all known to be Python numbers of one type."""
        return self._kinds is not None and len(self._kinds) == 1 and self._kinds <= _NUMBERS.keys()

    def __len__(self) -> int:
        return len(self.items)

    @property
    def nbytes(self) -> int:
        items = self.items
        if self._kinds is not None and self._kinds <= _SMALL:
            return _SMALL_BYTES * len(items)
        if len(items) <= 64:
            return sum(map(_size, items))
        step = len(items) // 64
        return sum(map(_size, items[::step])) * step

    def take(self, indices: np.ndarray) -> Values:
        picked = indices.tolist()
        if len(picked) < 2:
            return Values([self.items[i] for i in picked])
        return Values(list(itemgetter(*picked)(self.items)))

    def keep(self, mask: Sequence[int]) -> Values:
        kept = list(compress(self.items, mask))
        same = self._kinds if self._kinds is not None and len(self._kinds) == 1 and kept else None
        return Values(kept, same)

    def slice(self, start: int, stop: int) -> Values:
        return Values(self.items[start:stop])

    def rows(self) -> list[Any]:
        """The rows, as a settled column returns them: numpy scalars as Python numbers, arrays
        read-only."""
        if self.kinds <= PLAIN:
            return self.items
        return [_as_row(x) for x in self.items]

    def batch(self) -> Any:
        return batch_of_rows(self.items)

    def settled(self, allocate: Allocate = empty) -> Column:
        return settle(self, allocate)


def _as_row(item: Any) -> Any:
    kind = type(item)  # not isinstance, which may run code of the user's object, and raise
    if issubclass(kind, np.ndarray):
        if item.ndim == 0 and type(item) in (np.ndarray, np.memmap):
            return _as_row(item[()])
        if item.flags.writeable:
            item = item.view()
            item.flags.writeable = False
        return item
    if issubclass(kind, np.number | np.bool_) and not issubclass(kind, np.timedelta64):
        return item.item()
    return item


def _size(item: Any) -> int:
    """Roughly the bytes of an item; an object of the user's may raise anything."""
    try:
        return _measured_size(item)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  a guess is enough for an estimate
        return _SMALL_BYTES


def _measured_size(item: Any) -> int:
    if isinstance(item, np.ndarray):
        return int(item.nbytes) + 96
    if isinstance(item, str | bytes | bytearray | memoryview):
        return len(item) + 56
    if isinstance(item, list | tuple):
        return 56 + 8 * len(item) + (len(item) * _size(item[0]) if item else 0)
    if isinstance(item, dict):
        return 200 + sum(_size(v) for v in item.values())
    nbytes = getattr(item, "nbytes", None)
    return int(nbytes) if isinstance(nbytes, int) else _SMALL_BYTES


def settle(values: Values, allocate: Allocate = empty) -> Column:
    """The densest column of these rows for which every slice has the type of its own rows."""
    if len(values.kinds) != 1:
        return values
    (kind,) = values.kinds
    if kind in _NUMBERS:
        try:
            return Array(_packed(values.items, kind))
        except OverflowError:  # beyond int64: Python's integers are kept as they are
            return values
    if kind is np.ndarray or kind is np.memmap:
        return _settle_arrays(values, allocate)
    if issubclass(kind, np.number | np.bool_ | np.datetime64):
        dtypes = {x.dtype for x in values.items}
        return Array(np.array(values.items)) if len(dtypes) == 1 else values
    return values


def _packed(items: list[Any], kind: type) -> np.ndarray:
    """Python numbers of one type as an array."""
    if len(items) < _FEW:
        return np.fromiter(items, _NUMBERS[kind], len(items))
    out = np.empty(len(items), _NUMBERS[kind])
    try:
        struct.pack_into(f"{len(items)}{_FORMATS[kind]}", out.data, 0, *items)
    except struct.error as error:
        raise OverflowError from error
    return out


def _settle_arrays(values: Values, allocate: Allocate) -> Column:
    items: list[np.ndarray] = values.items
    shape, dtype = items[0].shape, items[0].dtype
    if dtype.hasobject or any(x.shape != shape or x.dtype != dtype for x in items):
        return values
    out = allocate((len(items), *shape), dtype)
    np.stack(items, out=out)
    return Array(out)


def batch_of_rows(items: list[Any]) -> Any:
    """The value of a batch of exactly these rows: an array, a `Ragged`, or an object array."""
    if not items:
        return np.empty(0)
    values = Values(items)
    settled = settle(values)
    if isinstance(settled, Array):
        return settled.data
    if type(None) in values.kinds:
        return _with_nulls(items)
    if values.kinds == {np.ndarray} and all(x.ndim and x.dtype != object for x in items):
        return _arrays(items)
    if not values.kinds <= PLAIN:
        items = [plain_item(x) for x in items]
    if all(isinstance(x, bool | int | float | complex | np.number | np.bool_) for x in items):
        return _numbers(items)
    if all(isinstance(x, np.ndarray) and x.dtype != object for x in items):
        return _arrays(items)
    if all(isinstance(x, list | tuple) or _is_vector(x) for x in items):
        return _lists(items)
    return object_array(items)


def as_numpy(item: Any) -> Any:
    """A torch tensor as an array that shares its memory; anything else unchanged."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(item, torch.Tensor):
        return item.detach().cpu().numpy()
    return item


def plain_item(item: Any) -> Any:
    """The form of an item that does not depend on where blocks begin: a settled block returns
    int64, float64 and bool as Python numbers, and an array without dimensions as a scalar."""
    item = as_numpy(item)
    if is_masked_array(item) and item.ndim and not np.ma.is_masked(item):
        item = np.ma.getdata(item)  # nothing is missing: an array like any other
    if type(item) in (np.ndarray, np.memmap) and item.ndim == 0 and item.dtype.kind in "biufcmM":
        item = item[()]
    return item.item() if type(item) in _OWN else item


def _is_vector(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.ndim == 1


def _with_nulls(items: list[Any]) -> Any:
    present = [x for x in items if x is not None]
    inner = batch_of_rows(present)
    if not present or type(inner) is not np.ndarray or inner.dtype == object:
        return object_array(items)
    valid = np.array([x is not None for x in items])
    return masked_batch(inner, valid)


def _numbers(items: list[Any]) -> np.ndarray:
    dtype = common_dtype({_NUMBERS.get(type(x)) or _dtype_of(x) for x in items})
    try:
        return object_array(items) if dtype.hasobject else np.array(items, dtype=dtype)
    except OverflowError:
        return object_array(items)


def _dtype_of(item: Any) -> np.dtype:
    if isinstance(item, np.generic):
        return item.dtype
    kinds = (kind for kind in _NUMBERS if isinstance(item, kind))  # an IntEnum is an int, too
    return _NUMBERS.get(next(kinds, complex), np.dtype(complex))


def _arrays(items: list[np.ndarray]) -> Any:
    dtype = common_dtype({x.dtype for x in items})
    shapes = {x.shape for x in items}
    if dtype.hasobject or (len(shapes) > 1 and () in shapes):
        return object_array(items)
    if any(is_masked_array(x) for x in items):
        return np.ma.stack(items) if len(shapes) == 1 else object_array(items)
    if len(shapes) == 1:
        return np.stack([x.astype(dtype, copy=False) for x in items])
    if all(len(shape) == 1 for shape in shapes):
        return Ragged(np.concatenate(items).astype(dtype, copy=False), _offsets(items))
    shown = ", ".join(map(str, sorted(shapes)[:4])) + (", …" if len(shapes) > 4 else "")
    raise ColumnError(
        f"rows of different shapes cannot be one array: {shown}. Resize or crop them to one "
        "shape, use batch(pad=…), or give batch(collate=…) a function of your own."
    )


def _lists(items: list[Any]) -> Any:
    if any(map(is_masked_array, items)):
        return object_array(items)
    inner = batch_of_rows([x for row in items for x in row])
    if is_masked_array(inner):
        return object_array(items)
    return Ragged(inner, _offsets(items))


def _offsets(items: list[Any]) -> np.ndarray:
    return offsets_of([len(row) for row in items])


def object_array(items: list[Any]) -> np.ndarray:
    """An object array of the items, with scalars in the form of `plain_item`."""
    plain = Values(items).kinds <= PLAIN
    return np.fromiter(items if plain else map(_object, items), object, len(items))


def _object(item: Any) -> Any:
    item = plain_item(item)
    return item[()] if type(item) is np.ndarray and not item.ndim else item


def common_dtype(dtypes: Collection[np.dtype]) -> np.dtype:
    """The dtype of arrays that are joined; object where numpy has none for them."""
    if len(dtypes) == 1:
        return next(iter(dtypes))
    try:
        return np.result_type(*sorted(dtypes, key=str))
    except TypeError:
        return np.dtype(object)


def _pickled_text(value: np.str_) -> tuple[type, tuple[str]]:
    return np.str_, (str.__getitem__(value, slice(None)),)


def _pickled_bytes(value: np.bytes_) -> tuple[type, tuple[bytes]]:
    return np.bytes_, (bytes.__getitem__(value, slice(None)),)


# Numpy pickles these scalars without the NULs at their end, so that they would be others in another
# process.
copyreg.pickle(np.str_, _pickled_text)
copyreg.pickle(np.bytes_, _pickled_bytes)
