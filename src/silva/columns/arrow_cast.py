"""Casts Arrow arrays to another type where no value changes.

Arrow's own safe cast is not enough: it makes 2 true, rounds 0.1 to float32, drops the time of a
timestamp and the keys of a dict that the struct type lacks. So the cast is compared with what it
was made from. Text that is parsed to a date, a time or a decimal need not have Arrow's own format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def cast_without_loss(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array as this type; `pa.ArrowInvalid` where a value would change.

    >>> import pyarrow as pa
    >>> cast_without_loss(pa.array([1, 2]), pa.float32()).to_pylist()
    [1.0, 2.0]
    >>> cast_without_loss(pa.array([1, 2]), pa.bool_())
    Traceback (most recent call last):
    pyarrow.lib.ArrowInvalid: values would change in a cast from int64 to bool
    """
    import pyarrow as pa

    if array.type == kind:
        return array
    cast = array.cast(kind)
    if not _are_same(array, cast):
        raise pa.ArrowInvalid(f"values would change in a cast from {array.type} to {kind}")
    return cast


def _are_same(before: pa.Array, after: pa.Array) -> bool:
    """Whether an array has the values of the one that it was cast from."""
    from pyarrow import types

    if before.null_count != after.null_count:
        return False
    if before.type == after.type or before.null_count == len(before):
        return True
    if types.is_dictionary(before.type):
        return _are_same(before.dictionary_decode(), after)
    if types.is_dictionary(after.type):
        return _are_same(before, after.dictionary_decode())
    if types.is_struct(before.type) and types.is_struct(after.type):
        names = [field.name for field in after.type]
        fields = dict(zip(names, after.flatten(), strict=True))
        old = zip((field.name for field in before.type), before.flatten(), strict=True)
        return all(name in fields and _are_same(items, fields[name]) for name, items in old)
    if _is_list(before.type) and _is_list(after.type):
        return _are_same(before.flatten(), after.flatten())
    return _are_equal(before, after)


def _is_list(kind: pa.DataType) -> bool:
    from pyarrow import types

    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(is_one(kind) for is_one in lists)


def _are_equal(before: pa.Array, after: pa.Array) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    texts = (pa.string(), pa.large_string(), pa.string_view())
    if before.type in texts and (
        after.type in texts or types.is_temporal(after.type) or types.is_decimal(after.type)
    ):
        return True
    try:
        back = after.cast(before.type)
    except pa.ArrowException:
        return False
    if types.is_float16(before.type):
        before, back = before.cast(pa.float32()), back.cast(pa.float32())
    same = pc.equal(before, back)
    if types.is_floating(before.type):
        same = pc.or_(same, pc.and_(pc.is_nan(before), pc.is_nan(back)))
    return bool(pc.all(same, min_count=0).as_py())
