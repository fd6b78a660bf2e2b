"""Rows into a table, all or none: checked, written, and then committed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from silva.errors import TableError
from silva.insight.words import plural
from silva.profile.machine import parse_bytes
from silva.store import commits
from silva.store.dedup import Kind
from silva.store.folder import Folder
from silva.store.ingest import ingest
from silva.store.keys import Keys
from silva.store.manifest import Fragment, Schema, Version
from silva.store.normal import arrow_schema, check_same, incoming, new_schema
from silva.store.writer import Writer

Mark = tuple[str, int]
"""The pipeline of which the rows are a shard, and the shard's number."""


def create_table(
    folder: Folder,
    data: Any,
    key: str | Sequence[str],
    group: str | None,
    time: str | None,
    kinds: Mapping[str, Kind],
    memory: int | str,
    mark: Mark | None = None,
) -> None:
    """The first version of a new table."""
    if folder.is_table:
        raise commits.exists(folder)
    if folder.path.exists() and not folder.path.is_dir():
        raise TableError(f"{str(folder)!r} is a file; a table is a folder")
    rows = incoming(data)
    keys = (key,) if isinstance(key, str) else tuple(key)
    with contextlib.ExitStack() as stack:
        stack.callback(rows.close)
        schema = new_schema(rows.schema, keys, group, time, kinds)
        folder.path.mkdir(parents=True, exist_ok=True)
        writer = stack.enter_context(Writer(folder))
        fragments, _ = _written(folder, writer, rows.batches, schema, memory)
        count = plural(sum(f.rows for f in fragments), "row")
        with writer.committing():
            commits.create(folder, schema, fragments, f"create with {count}", _marked({}, mark))


def append_rows(
    folder: Folder, branch: str, data: Any, memory: int | str, mark: Mark | None = None
) -> None:
    """A version more, with the rows at its end; unless it has the shard that is marked already."""
    schema = folder.schema(folder.head(branch).schema)
    own = arrow_schema(schema)
    rows = incoming(data, own)
    with contextlib.ExitStack() as stack:
        stack.callback(rows.close)
        check_same(rows.schema, own, str(folder))
        writer = stack.enter_context(Writer(folder))
        ordered = (batch.select(own.names) for batch in rows.batches)
        fragments, keys = _written(folder, writer, ordered, schema, memory)
        if fragments:
            with writer.committing():
                commits.commit(folder, branch, _appended(folder, schema, fragments, keys, mark))


def _appended(
    folder: Folder, schema: Schema, fragments: list[Fragment], keys: Keys, mark: Mark | None
) -> commits.Change:
    count = plural(sum(f.rows for f in fragments), "row")

    def change(head: Version) -> Version | None:
        if mark is not None and head.written.get(mark[0], 0) > mark[1]:
            return None
        if folder.schema(head.schema) != schema:
            raise TableError(f"the schema of {str(folder)!r} changed in the meantime")
        keys.check_against(folder.all_fragments(head))
        lists = commits.new_lists(folder, head.lists, fragments)
        written = _marked(head.written, mark)
        return msgspec.structs.replace(head, lists=lists, written=written, what=f"append {count}")

    return change


def _marked(written: Mapping[str, int], mark: Mark | None) -> dict[str, int]:
    return dict(written) if mark is None else {**written, mark[0]: mark[1] + 1}


def _written(
    folder: Folder, writer: Writer, batches: Iterator[Any], schema: Schema, memory: int | str
) -> tuple[list[Fragment], Keys]:
    """Rows in files, with keys that differ from each other."""
    keys = Keys(folder, schema.key)
    fragments: list[Fragment] = []
    for table, fragment in ingest(writer, batches, schema, parse_bytes(memory)):
        keys.add(table, fragment)
        fragments.append(fragment)
    keys.check_within()
    return fragments, keys
