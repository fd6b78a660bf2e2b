"""The form in which rows are appended: plain Arrow types, and one column per field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from silva.errors import PlanError, TableError
from silva.io.arrow_batches import leaf_types
from silva.pipeline import Pipeline
from silva.plan.schema import is_batched
from silva.store.files.dedup import check_kinds
from silva.store.versions.manifest import Kind, Schema

_BATCH = 4096
"""Rows of a pipeline that are appended per batch."""


@dataclass(frozen=True)
class IncomingRows:
    """Rows that are being appended to a table."""

    schema: Any
    """Arrow's schema, in normal form."""
    batches: Iterator[Any]
    """Tables of that schema."""
    close: Callable[[], None]
    """Closes their source, if they are not read to the end."""


def incoming(data: Any, own: Any = None) -> IncomingRows:
    """The rows of a pipeline, or of anything that exports Arrow. Columns without a single value
    take the types of the table, from its schema `own`."""
    if isinstance(data, Pipeline):
        batched = data if is_batched(data.plan) else data.batch(_BATCH)
        loader = batched.loader(rank=0, world=1)
        try:
            return _rows(loader.to_arrow(), own, loader.close)
        except BaseException:
            loader.close()
            raise
    return _rows(_reader(data), own, lambda: None)


def _rows(reader: Any, own: Any, close: Callable[[], None]) -> IncomingRows:
    normal = _normal_schema(reader.schema, own)

    def batches() -> Iterator[Any]:
        try:
            for batch in reader:
                yield _normal(batch, normal)
        finally:
            close()

    return IncomingRows(normal, batches(), close)


def _reader(data: Any) -> Any:
    import pyarrow as pa

    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    raise PlanError(
        f"a table takes a pipeline, or rows in Arrow's format (a pyarrow, polars or DuckDB table), "
        f"not {type(data).__name__}: a dict of columns goes through pa.table(…) or "
        "sv.from_columns(…), a list of dicts through sv.from_items(…)"
    )


def _normal_schema(schema: Any, own: Any) -> Any:
    import pyarrow as pa

    fields = {name: normal_type(kind) for name, kind in leaf_types(schema).items()}
    for name, kind in fields.items():
        if not name:
            raise TableError("a column has no name: give every column of a table one")
        check_held(name, kind)
        if not is_untyped(kind):
            continue
        if own is not None and name in own.names and is_untyped(kind, own.field(name).type):
            fields[name] = own.field(name).type
        else:
            raise TableError(
                f"column {name!r} has no value, so its type is unknown: give it one, e.g. with "
                f"pa.table(…).cast(…), or derive({name}=sv.col({name!r}).cast('float32'))"
            )
    if not fields:
        raise TableError("the rows have no columns: a table needs at least one")
    return pa.schema(list(fields.items()))


def check_held(name: str, kind: Any) -> None:
    """Raises for a type, in normal form, that the files of a table cannot hold."""
    import pyarrow as pa

    types = pa.types
    views = types.is_list_view(kind) or types.is_large_list_view(kind)  # casts lose their offsets
    if views or types.is_interval(kind) or types.is_union(kind) or types.is_run_end_encoded(kind):
        raise TableError(
            f"column {name!r} has the type {kind}, which a table cannot hold: cast it to another"
        )
    for place in range(kind.num_fields):
        check_held(name, kind.field(place).type)


def is_untyped(kind: Any, like: Any = None) -> bool:
    """Whether a column has no value, or only empty lists, so that its type is unknown. With `like`,
    whether it may have that type."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        inner = None if like is None else getattr(like, "value_type", pa.null())
        return is_untyped(kind.value_type, inner) and (like is None or pa.types.is_list(like))
    return bool(pa.types.is_null(kind))


def normal_type(kind: Any) -> Any:
    """One type for what means the same: 32-bit offsets, no dictionaries, and lists of fixed length
    only where that saves something.

    >>> import pyarrow as pa
    >>> print(normal_type(pa.large_list(pa.dictionary(pa.int8(), pa.large_string()))))
    list<item: string>
    """
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return normal_type(kind.storage_type)
    if types.is_dictionary(kind):
        return normal_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(normal_type(kind.value_type))
    if types.is_fixed_size_list(kind):
        inner = normal_type(kind.value_type)
        fixed = types.is_primitive(inner) or types.is_fixed_size_list(inner)
        return pa.list_(inner, kind.list_size) if fixed and kind.list_size else pa.list_(inner)
    return kind


def _normal(batch: Any, schema: Any) -> Any:
    import pyarrow as pa

    table = pa.Table.from_batches([batch])
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    columns = [as_normal(table.column(field.name), field.type) for field in schema]
    return pa.table(columns, schema=schema)


def as_normal(column: Any, kind: Any) -> Any:
    """A column of a table in the normal form of its type."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        chunks = [chunk.storage for chunk in column.chunks]
        column = pa.chunked_array(chunks, type=column.type.storage_type)
    return column if column.type == kind else column.cast(kind)


def arrow_schema(schema: Schema) -> Any:
    """The names and types of the columns that are appended."""
    import pyarrow as pa

    try:
        found = pa.ipc.read_schema(pa.py_buffer(schema.arrow))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"the schema of a table is damaged: {error}") from error
    strangers = {n for n in (*schema.key, schema.group, schema.time) if n is not None}
    if len(set(found.names)) != len(found.names) or strangers - set(found.names):
        raise TableError("the schema of a table is damaged: it names columns that it does not have")
    return found


@dataclass(frozen=True)
class Roles:
    """The roles of columns in a new table, and how some of them are stored."""

    key: str | Sequence[str] = ()
    group: str | None = None
    time: str | None = None
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)


def new_schema(arrow: Any, roles: Roles) -> Schema:
    """The schema of a new table; raises for roles and kinds that its columns cannot have."""
    import pyarrow as pa

    named = [*(("key", k) for k in roles.keys), ("group", roles.group), ("time", roles.time)]
    for role, name in named:
        if name is None:
            continue
        if name not in arrow.names:
            raise TableError(
                f"{role}={name!r}: there is no such column; the columns are "
                f"{', '.join(map(repr, arrow.names))}"
            )
        kind = arrow.field(name).type
        if pa.types.is_nested(kind):
            raise TableError(
                f"{role}={name!r} is a column of {kind}, which has no order: choose another column"
            )
    check_kinds(arrow, roles.kinds)
    arrow_bytes = arrow.serialize().to_pybytes()
    return Schema(arrow_bytes, roles.keys, roles.group, roles.time, dict(roles.kinds))


def check_same(given: Any, own: Any, path: str) -> None:
    """Raises for rows whose columns differ from the table's."""
    wrong = [f"{n!r} is missing" for n in own.names if n not in given.names]
    wrong += [f"{n!r} ({given.field(n).type}) is new" for n in given.names if n not in own.names]
    wrong += [
        f"{n!r} is {given.field(n).type} instead of {own.field(n).type}"
        for n in own.names
        if n in given.names and given.field(n).type != own.field(n).type
    ]
    if wrong:
        raise TableError(
            f"the rows do not fit {path!r}: {'; '.join(wrong)}. Nothing was appended. Columns that "
            "are computed from others are added with Table.derive, not appended"
        )
