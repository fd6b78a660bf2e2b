"""Appends rows to a table, all or none: checks, writes and then commits them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from silva.cost.machine import parse_bytes
from silva.errors import TableError
from silva.facts.formatting import plural
from silva.store.append.data_writer import DataWriter
from silva.store.append.ingest import ingest
from silva.store.append.new_keys import NewKeys
from silva.store.append.normal_form import Roles, arrow_schema, check_same, incoming, new_schema
from silva.store.versions import commits
from silva.store.versions.manifest import Fragment, Schema, Version
from silva.store.versions.table_folder import Folder

Mark = tuple[str, int]
"""The pipeline that the rows are a shard of, and the shard's number."""


def create_table(
    folder: Folder, data: Any, roles: Roles, memory: int | str, mark: Mark | None = None
) -> None:
    """Creates a table: its first version."""
    if folder.is_table:
        raise commits.exists(folder)
    if folder.path.exists() and not folder.path.is_dir():
        raise TableError(f"{str(folder)!r} is a file; a table is a folder. Choose another path")
    rows = incoming(data)
    with contextlib.ExitStack() as stack:
        stack.callback(rows.close)
        schema = new_schema(rows.schema, roles)
        folder.path.mkdir(parents=True, exist_ok=True)
        writer = stack.enter_context(DataWriter(folder))
        fragments, _ = _write(folder, writer, rows.batches, schema, memory)
        what, written = f"create with {_count(fragments)}", _count_shard({}, mark)
        with writer.committing():
            commits.create(folder, schema, fragments, what, written)


def append_rows(
    folder: Folder, branch: str, data: Any, memory: int | str, mark: Mark | None = None
) -> None:
    """Adds a version with the rows at its end, unless it holds the marked shard already."""
    schema = folder.schema(folder.head(branch).schema)
    own = arrow_schema(schema)
    rows = incoming(data, own)
    with contextlib.ExitStack() as stack:
        stack.callback(rows.close)
        check_same(rows.schema, own, str(folder))
        writer = stack.enter_context(DataWriter(folder))
        ordered = (batch.select(own.names) for batch in rows.batches)
        fragments, keys = _write(folder, writer, ordered, schema, memory)
        if not fragments:
            return

        def change(head: Version) -> Version | None:
            if mark is not None and head.written.get(mark[0], 0) > mark[1]:
                return None
            if folder.schema(head.schema) != schema:
                raise TableError(
                    f"the schema of {str(folder)!r} has changed. Nothing was appended; try again"
                )
            keys.check_against(folder.all_fragments(head))
            return msgspec.structs.replace(
                head,
                lists=commits.new_lists(folder, head.lists, fragments),
                written=_count_shard(head.written, mark),
                what=f"append {_count(fragments)}",
            )

        with writer.committing():
            commits.commit(folder, branch, change)


def _count(fragments: list[Fragment]) -> str:
    return plural(sum(f.rows for f in fragments), "row")


def _count_shard(written: Mapping[str, int], mark: Mark | None) -> dict[str, int]:
    return dict(written) if mark is None else {**written, mark[0]: mark[1] + 1}


def _write(
    folder: Folder, writer: DataWriter, batches: Iterator[Any], schema: Schema, memory: int | str
) -> tuple[list[Fragment], NewKeys]:
    """Writes rows to files, and checks that their keys differ."""
    keys = NewKeys(folder, schema.key)
    fragments: list[Fragment] = []
    for table, fragment in ingest(writer, batches, schema, parse_bytes(memory)):
        keys.add(table, fragment)
        fragments.append(fragment)
    keys.check_within()
    return fragments, keys
