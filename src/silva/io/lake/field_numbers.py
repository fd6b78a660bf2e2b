"""Finds columns by field id, as in Iceberg: a renamed column is still found, and a column that was
dropped and added again under the same name is another one.

Each field of a struct is a column with an id of its own. Structs within lists and maps stay values;
if a file has other fields than the table, such values are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Convert = Callable[[Any], Any]
"""Converts a value of a file to one of the table; None stays None."""

_NUMBER = b"PARQUET:field_id"


def number_of(field: Any) -> int | None:
    """The id of an Arrow field, if it has one."""
    found = (field.metadata or {}).get(_NUMBER)
    return None if found is None else int(found)


def leaf_fields(schema: Any) -> dict[str, Any]:
    """Every column by its dotted name, as an Arrow field.

    >>> import pyarrow as pa
    >>> inner = pa.field("lat", pa.float64(), metadata={"PARQUET:field_id": "4"})
    >>> found = leaf_fields(pa.schema([pa.field("place", pa.struct([inner]))]))
    >>> [(name, number_of(field)) for name, field in found.items()]
    [('place.lat', 4)]
    """
    import pyarrow as pa

    found: dict[str, Any] = {}

    def add(prefix: str, field: Any) -> None:
        if pa.types.is_struct(field.type):
            for inner in field.type:
                add(f"{prefix}{field.name}.", inner)
        else:
            found[prefix + field.name] = field

    for field in schema:
        add("", field)
    return found


def names_by_number(
    wanted: Mapping[str, Any], there: Mapping[str, Any], mapped: Mapping[str, int]
) -> dict[str, str]:
    """The name of each column in a file, if the file has it. `mapped` holds ids by name, for files
    without ids; if there are no ids at all, columns are found by name."""
    numbers = {name: number_of(field) for name, field in there.items()}
    if all(number is None for number in numbers.values()):
        numbers = {name: mapped.get(name) for name in there}
    own = {number: name for name, number in numbers.items() if number is not None}
    if not own or all(number_of(field) is None for field in wanted.values()):
        return {name: name for name in wanted if name in there}
    asked = {name: number_of(field) for name, field in wanted.items()}
    return {name: own[n] for name, n in asked.items() if n is not None and n in own}


def conversion(there: Any, wanted: Any) -> Convert | None:
    """Converts values of a file's field to values of the table's field, if structs within them
    have fields with other names, positions or ids; None if no conversion is needed."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(wanted.type):
        return _of_structs(list(there.type), list(wanted.type))
    if types.is_map(wanted.type):
        key = conversion(there.type.key_field, wanted.type.key_field)
        item = conversion(there.type.item_field, wanted.type.item_field)
        return None if key is None and item is None else _of_maps(key or _same, item or _same)
    if types.is_list(wanted.type) or types.is_large_list(wanted.type):
        inner = conversion(there.type.value_field, wanted.type.value_field)
        return None if inner is None else lambda value: _each(value, inner)
    return None


def _same(value: Any) -> Any:
    return value


def _each(value: Any, inner: Convert) -> Any:
    return None if value is None else [inner(item) for item in value]


def _of_maps(key: Convert, item: Convert) -> Convert:
    def convert(value: Any) -> Any:
        return None if value is None else [(key(k), item(v)) for k, v in value]

    return convert


def _of_structs(there: list[Any], wanted: list[Any]) -> Convert | None:
    numbered = all(number_of(field) is not None for field in (*there, *wanted))
    known = {number_of(f) if numbered else f.name: f for f in there}
    parts: list[tuple[str, str | None, Convert | None]] = []
    for field in wanted:
        own = known.get(number_of(field) if numbered else field.name)
        inner = None if own is None else conversion(own, field)
        parts.append((field.name, None if own is None else own.name, inner))
    names = [field.name for field in there]
    if [own for _, own, _ in parts] == names == [name for name, *_ in parts] and not any(
        inner for *_, inner in parts
    ):
        return None

    def convert(value: Any) -> Any:
        if value is None:
            return None
        made = {name: None if own is None else value[own] for name, own, _ in parts}
        for name, _, inner in parts:
            if inner is not None:
                made[name] = inner(made[name])
        return made

    return convert
