"""Builds a version of an index from a pipeline.

The rows, with their vectors, stream into Parquet shards, and a killed build goes on after the last
complete one: what is costly, such as embedding, is not repeated. Then the version is made of all
rows that it holds, sorted by id. An index that rows were added to or deleted from is therefore the
same, to the byte, as one that is built of what is left.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from silva.cost.machine import parse_bytes
from silva.errors import ColumnError, PlanError, SilvaError
from silva.options import WriteArguments
from silva.plan.fingerprint import digest, fingerprint
from silva.plan.node import Node
from silva.plan.schema import verify
from silva.serve.index import graph, keyword, vectors
from silva.serve.index.version import FORMAT, IndexFolder, Roles, Version
from silva.sinks.parquet import ParquetWriter
from silva.sinks.write import Limits, write
from silva.store.versions.locks import hold_table

_SHARD_ROWS = 4096
"""Rows after which a build can go on."""
_SHARD_BYTES = "64MiB"


@dataclass(frozen=True)
class Held:
    """What a version is made of."""

    table: Any
    """All columns but the vectors, as Arrow."""
    unit: Any
    """The vectors, of length 1; None where there are none."""
    next_id: int


def build(plan: Node, path: Any, roles: Roles, arguments: WriteArguments) -> Version:
    """Builds an index that holds the rows of a plan, unless it holds them already."""
    folder = IndexFolder(path)
    name = digest((fingerprint(plan), roles_key(roles), arguments.get("seed")))
    head = folder.head()
    if head is not None and head.pipeline == name:
        with contextlib.suppress(FileNotFoundError):  # left by a kill after the version was there
            folder.building.remove(name)
        return head

    def make(head: Version | None, rows: Any) -> tuple[Held, str]:
        return _held(rows, roles, 0), f"build of {rows.num_rows} rows"

    return _stream(folder, plan, name, arguments, lambda head: roles, make)


def add(plan: Node, folder: IndexFolder, arguments: WriteArguments) -> Version:
    """Adds the rows of a plan; a row with an id that is there replaces that one."""
    head = _head(folder)
    name = digest(("add", head.identity, fingerprint(plan), arguments.get("seed")))

    def make(head: Version | None, rows: Any) -> tuple[Held, str]:
        import pyarrow as pa
        import pyarrow.compute as pc

        assert head is not None
        new = _held(rows, head.roles, head.next_id)
        if not head.rows:
            return new, f"addition of {rows.num_rows} rows"
        old = read_held(folder, head)
        column = head.roles.id
        _check_same_columns(old.table, new.table)
        ids = new.table.column(column)
        kept = pc.invert(pc.is_in(old.table.column(column), value_set=ids.combine_chunks()))
        table = pa.concat_tables([old.table.filter(kept), new.table.cast(old.table.schema)])
        unit = None
        if old.unit is not None:
            if old.unit.shape[1:] != new.unit.shape[1:]:
                raise ColumnError(
                    f"add: the vectors have {new.unit.shape[1]} numbers, and those of the index "
                    f"{old.unit.shape[1]}"
                )
            unit = _concat(old.unit[kept.to_numpy(zero_copy_only=False)], new.unit)
        return Held(table, unit, new.next_id), f"addition of {rows.num_rows} rows"

    return _stream(folder, plan, name, arguments, lambda head: _roles(head), make)


def delete(folder: IndexFolder, ids: Sequence[Any]) -> Version:
    """Removes the rows with these ids; SilvaError where one is not there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with hold_table(folder.path):
        head = _head(folder)
        held = read_held(folder, head)
        there = held.table.column(head.roles.id)
        try:
            gone = pa.array(list(dict.fromkeys(ids)), there.type)
        except (pa.ArrowException, TypeError, OverflowError):
            raise PlanError(f"delete takes a list of ids, which are {there.type} here") from None
        missing = gone.filter(pc.invert(pc.is_in(gone, value_set=there.combine_chunks())))
        if len(missing):
            raise SilvaError(f"delete: {str(folder)!r} has no passage {missing[0].as_py()!r}")
        kept = pc.invert(pc.is_in(there, value_set=gone))
        unit = held.unit
        if unit is not None:
            unit = unit[kept.to_numpy(zero_copy_only=False)]
        left = Held(held.table.filter(kept), unit, head.next_id)
        return _commit(folder, head, head.roles, left, f"deletion of {len(gone)} rows", "")


def read_held(folder: IndexFolder, version: Version) -> Held:
    """What a version was made of."""
    from silva.serve.index.contents import Contents

    found = Contents(folder, version)
    unit = found.vectors if version.roles.vector is not None and version.rows else None
    return Held(found.rows, unit, version.next_id)


def _stream(
    folder: IndexFolder,
    plan: Node,
    name: str,
    arguments: WriteArguments,
    roles: Callable[[Version | None], Roles],
    make: Callable[[Version | None, Any], tuple[Held, str]],
) -> Version:
    """Writes the shards of a plan, and makes a version of them and of the one before."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if unfit := sorted({"rank", "world", "epochs", "steps", "eval", "group"} & set(arguments)):
        raise PlanError(f"one process builds an index, so {unfit[0]}= does not apply")
    verify(plan)
    place = folder.building.below(name)
    limits = Limits(_SHARD_ROWS, parse_bytes(_SHARD_BYTES))
    written = write(plan, place, ParquetWriter(place, None, "zstd"), limits, arguments)
    with hold_table(folder.path):
        head = folder.head()
        if head is None or head.pipeline != name:
            shards = []
            for shard in written.shards:
                with open(place.open_file(shard), "rb") as file:
                    shards.append(pq.read_table(file))
            if not shards:
                raise SilvaError("the pipeline has no rows, so there is nothing to index")
            held, what = make(head, pa.concat_tables(shards))
            head = _commit(folder, head, roles(head), held, what, name)
        with contextlib.suppress(FileNotFoundError):
            folder.building.remove(name)
    return head


def _commit(
    folder: IndexFolder, head: Version | None, roles: Roles, held: Held, what: str, name: str
) -> Version:
    """Writes the parts of a version, and then the version. The caller holds the folder."""
    import pyarrow as pa
    import pyarrow.compute as pc

    order = pc.sort_indices(held.table, sort_keys=[(roles.id, "ascending")])
    table = held.table.take(order).combine_chunks()
    unit = None if held.unit is None else held.unit[order.to_numpy()]
    files: dict[str, bytes] = {}
    recall = None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    files["rows"] = sink.getvalue().to_pybytes()
    if table.num_rows and roles.keyword is not None:
        files |= keyword.build(table.column(roles.keyword).to_pylist())
    if table.num_rows and unit is not None:
        files["vectors"] = keyword.array_bytes(unit)
        if roles.floor is not None:
            files["graph"], recall = graph.build(unit, roles.floor)
    made = Version(
        FORMAT, 1 if head is None else head.number + 1, time.time(), what, name, roles,
        table.num_rows, 0 if unit is None else unit.shape[1], held.next_id, recall,
        {kind: folder.write(data) for kind, data in files.items()},
    )  # fmt: skip
    folder.publish(made)
    return made


def _held(rows: Any, roles: Roles, next_id: int) -> Held:
    """The rows of a pipeline as an index holds them, checked."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    unit = None
    if roles.vector is not None:
        unit = vectors.vectors_of(rows.column(roles.vector), roles.vector)
        rows = rows.drop_columns([roles.vector])
    if roles.numbered:
        ids = pa.array(np.arange(next_id, next_id + rows.num_rows))
        rows = rows.add_column(0, roles.id, ids)
    ids = rows.column(roles.id)
    if ids.null_count:
        raise ColumnError(f"to_index(id={roles.id!r}): {ids.null_count} rows have no id")
    if pa.types.is_integer(ids.type):
        kind = pa.int64()
    elif pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
        kind = pa.string()
    else:
        raise ColumnError(f"to_index(id={roles.id!r}): ids are numbers or text, not {ids.type}")
    rows = rows.set_column(rows.schema.get_field_index(roles.id), roles.id, ids.cast(kind))
    counts = pc.value_counts(ids.combine_chunks())
    twice = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(twice):
        raise ColumnError(f"to_index(id={roles.id!r}): the id {twice[0]['values']} is there twice")
    for name in {roles.text, roles.keyword} - {None}:
        texts = rows.column(name)
        if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
            raise ColumnError(f"to_index: column {name!r} holds {texts.type}, not text")
        if texts.null_count:
            raise ColumnError(f"to_index: {texts.null_count} rows have no text in {name!r}")
    return Held(rows, unit, next_id + rows.num_rows if roles.numbered else 0)


def roles_key(roles: Roles) -> tuple[Any, ...]:
    return tuple(msgspec.structs.astuple(roles))


def _head(folder: IndexFolder) -> Version:
    head = folder.head()
    if head is None:
        raise SilvaError(f"{str(folder)!r} is not an index; pipeline.to_index(path, …) makes one")
    return head


def _roles(head: Version | None) -> Roles:
    assert head is not None
    return head.roles


def _check_same_columns(old: Any, new: Any) -> None:
    missing = sorted(set(old.schema.names) ^ set(new.schema.names))
    if missing:
        raise PlanError(f"add: the rows and the index do not both have the column {missing[0]!r}")
    for field in old.schema:
        if new.schema.field(field.name).type != field.type:
            raise PlanError(
                f"add: column {field.name!r} is {new.schema.field(field.name).type}, and "
                f"{field.type} in the index: cast(…) it"
            )


def _concat(first: Any, second: Any) -> Any:
    import numpy as np

    return np.concatenate([first, second])
