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
from typing import Any

import msgspec

from silva.cost.machine import parse_bytes
from silva.errors import PlanError, SilvaError
from silva.insight.phases import PhaseLines, Tell, tell_nobody
from silva.options import WriteArguments
from silva.plan.fingerprint import digest, fingerprint
from silva.plan.node import Node
from silva.plan.schema import verify
from silva.serve.index import graph, keyword
from silva.serve.index.held import Held, held, joined, read_held
from silva.serve.index.version import FORMAT, IndexFolder, Roles, Version
from silva.sinks.parquet import ParquetWriter
from silva.sinks.write import Limits, write
from silva.store.versions.locks import hold_table

_SHARD_ROWS = 4096
"""Rows after which a build can go on."""
_SHARD_BYTES = "64MiB"


def build(plan: Node, path: Any, roles: Roles, arguments: WriteArguments) -> Version:
    """Builds an index that holds the rows of a plan, unless it holds them already."""
    folder = IndexFolder(path)
    content = digest((fingerprint(plan), arguments.get("seed")))
    name = digest((content, roles_key(roles)))

    def make(head: Version | None, rows: Any) -> tuple[Roles, Held, str]:
        made = held(rows, roles, 0).noting(content, 0)
        return roles, made, f"build of {rows.num_rows} rows"

    def holds(head: Version | None) -> bool:
        return head is not None and head.pipeline == name

    return _stream(folder, plan, name, arguments, holds, make)


def add(plan: Node, folder: IndexFolder, arguments: WriteArguments) -> Version:
    """Adds the rows of a plan; a row with an id that is there replaces that one. Rows that are
    numbered, and are there already, are not added again: a run that was killed after its version
    was there may be run again."""
    _head(folder)
    content = digest((fingerprint(plan), arguments.get("seed")))
    name = digest(("add", content))

    def make(head: Version | None, rows: Any) -> tuple[Roles, Held, str]:
        assert head is not None
        made = held(rows, head.roles, head.next_id)
        if head.rows:
            made = joined(read_held(folder, head), made, head.roles)
        return head.roles, made.noting(content, head.next_id), f"addition of {rows.num_rows} rows"

    def holds(head: Version | None) -> bool:
        return head is not None and (content in head.added or head.pipeline == name)

    return _stream(folder, plan, name, arguments, holds, make)


def delete(folder: IndexFolder, ids: Sequence[Any]) -> Version:
    """Removes the rows with these ids; SilvaError where one is not there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with hold_table(folder.path):
        head = _head(folder)
        found = read_held(folder, head)
        there = found.table.column(head.roles.id)
        try:
            gone = pa.array(list(dict.fromkeys(ids)), there.type)
        except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError):
            raise PlanError(f"delete takes a list of ids, which are {there.type} here") from None
        missing = gone.filter(pc.invert(pc.is_in(gone, value_set=there.combine_chunks())))
        if len(missing):
            raise SilvaError(f"delete: {str(folder)!r} has no passage {missing[0].as_py()!r}")
        left = found.where(pc.invert(pc.is_in(there, value_set=gone)))
        left = left.forgetting(gone.to_pylist())
        return _commit(folder, head, head.roles, left, f"deletion of {len(gone)} rows", "")


def _stream(
    folder: IndexFolder,
    plan: Node,
    name: str,
    arguments: WriteArguments,
    holds: Callable[[Version | None], bool],
    make: Callable[[Version | None, Any], tuple[Roles, Held, str]],
) -> Version:
    """Writes the shards of a plan, and makes a version of them and of the one before, unless that
    holds them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if unfit := sorted({"rank", "world", "epochs", "steps", "eval", "group"} & set(arguments)):
        raise PlanError(f"one process builds an index, so {unfit[0]}= does not apply")
    verify(plan)
    place = folder.building.below(name)
    limits = Limits(_SHARD_ROWS, parse_bytes(_SHARD_BYTES))
    written = None
    if not holds(folder.head()):
        written = write(plan, place, ParquetWriter(place, None, "zstd"), limits, arguments)
    tell = PhaseLines("index") if arguments.get("progress") else tell_nobody
    with hold_table(folder.path):
        head = folder.head()
        if written is not None and not holds(head):
            shards = []
            for shard in written.shards:
                with open(place.open_file(shard), "rb") as file:
                    shards.append(pq.read_table(file))
            if not shards:
                raise SilvaError("the pipeline has no rows, so there is nothing to index")
            roles, made, what = make(head, pa.concat_tables(shards))
            head = _commit(folder, head, roles, made, what, name, tell)
        with contextlib.suppress(FileNotFoundError):  # may be left by a kill
            folder.building.remove(name)
    assert head is not None
    return head


def _commit(
    folder: IndexFolder,
    head: Version | None,
    roles: Roles,
    found: Held,
    what: str,
    name: str,
    tell: Tell = tell_nobody,
) -> Version:
    """Writes the parts of a version, and then the version. The caller holds the folder."""
    import pyarrow as pa
    import pyarrow.compute as pc

    order = pc.sort_indices(found.table, sort_keys=[(roles.id, "ascending")])
    table = found.table.take(order).combine_chunks()
    unit = None if found.unit is None else found.unit[order.to_numpy()]
    files: dict[str, bytes] = {}
    recall = None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    files["rows"] = sink.getvalue().to_pybytes()
    if table.num_rows and roles.keyword is not None:
        files |= keyword.build(table.column(roles.keyword).to_pylist(), tell)
    if table.num_rows and unit is not None:
        files["vectors"] = keyword.array_bytes(unit)
        if roles.floor is not None:
            files["graph"], recall = graph.build(unit, roles.floor, tell)
    made = Version(
        FORMAT, 1 if head is None else head.number + 1, time.time(), what, name, roles,
        table.num_rows, 0 if unit is None else unit.shape[1], found.next_id, recall,
        {kind: folder.write(data) for kind, data in files.items()}, found.added,
    )  # fmt: skip
    folder.publish(made)
    return made


def roles_key(roles: Roles) -> tuple[Any, ...]:
    return tuple(msgspec.structs.astuple(roles))


def _head(folder: IndexFolder) -> Version:
    head = folder.head()
    if head is None:
        raise SilvaError(f"{str(folder)!r} is not an index; pipeline.to_index(path, …) makes one")
    return head
