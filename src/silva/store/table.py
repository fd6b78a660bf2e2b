"""Tables: rows that are appended, versions of them, and columns that are derived."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from silva.errors import PlanError, TableError
from silva.insight.words import plural
from silva.pipeline import Pipeline
from silva.plan.node import Step
from silva.plan.traits import step_reads
from silva.profile.machine import parse_bytes
from silva.store import commits
from silva.store.definitions import current, recipes
from silva.store.deletions import delete_rows
from silva.store.folder import Folder, Paths, Tag, check_name, publish
from silva.store.garbage import Removed, collect_garbage
from silva.store.ingest import MEMORY, ingest
from silva.store.keys import Keys
from silva.store.locks import held
from silva.store.logical import add_columns, as_steps, table_pipeline
from silva.store.manifest import Collected, Fragment, Schema, Version, encode
from silva.store.materialize import add_parts, check_storable, stored_parts
from silva.store.normal import arrow_schema, check_same, incoming, new_schema
from silva.store.source import TableSource
from silva.store.writer import Writer


class Table:
    """A branch of a table, as it is now; or one version of it, by `at`.

    >>> import silva as sv, pyarrow as pa, tempfile
    >>> path = tempfile.mkdtemp() + "/clicks"
    >>> t = sv.Table.create(path, pa.table({"user": [2, 1], "dwell": [40, 5]}), group="user")
    >>> t.append(pa.table({"user": [1], "dwell": [60]})).rows
    3
    >>> t.read().head(2)
    [{'user': 1, 'dwell': 5}, {'user': 2, 'dwell': 40}]
    """

    def __init__(
        self,
        folder: Folder,
        branch: str,
        pinned: Version | None = None,
        steps: dict[str, Step] | None = None,
    ) -> None:
        self._folder = folder
        self._branch = branch
        self._pinned = pinned
        self._steps: dict[str, Step] = {} if steps is None else steps
        """The functions of derived columns that this program has, by fingerprint."""

    # Making and opening.

    @staticmethod
    def create(
        path: Paths,
        data: Any,
        *,
        key: str | Sequence[str] = (),
        group: str | None = None,
        time: str | None = None,
        memory: int | str = MEMORY,
    ) -> Table:
        """A new table with the rows of a pipeline, or of anything that speaks Arrow.

        Rows of one `group` are kept together, in the order of `time`. `key` names columns of which
        no two rows have the same values. At most about `memory` bytes of rows are sorted at a time.
        """
        folder = Folder(path)
        if folder.is_table:
            raise commits.exists(folder)
        rows = incoming(data)
        keys = (key,) if isinstance(key, str) else tuple(key)
        with contextlib.ExitStack() as stack:
            stack.callback(rows.close)
            schema = new_schema(rows.schema, keys, group, time)
            folder.path.mkdir(parents=True, exist_ok=True)
            writer = stack.enter_context(Writer(folder))
            fragments, _ = _written(folder, writer, rows.batches, schema, memory)
            count = plural(sum(f.rows for f in fragments), "row")
            commits.create(folder, schema, fragments, f"create with {count}")
            writer.committed()
        return Table(folder, commits.MAIN)

    @staticmethod
    def open(path: Paths, branch: str = commits.MAIN) -> Table:
        """A table that exists."""
        folder = Folder(path)
        folder.check()
        folder.head(branch)
        return Table(folder, branch)

    # Looking.

    @property
    def version(self) -> Version:
        """The version that this is: of a branch, the last one."""
        return self._pinned or self._folder.head(self._branch)

    @property
    def path(self) -> str:
        return str(self._folder.path)

    @property
    def rows(self) -> int:
        return self.version.rows

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(current(self._folder, self.version))

    def versions(self) -> list[Version]:
        """The versions that led here, the first one first, without those that were collected."""
        entries = self._folder.history(self.version)
        return [entry for entry in entries if isinstance(entry, Version)][::-1]

    def at(self, version: int | str | datetime) -> Table:
        """The table as it was: by number, by tag, or at a time. It cannot be changed, but be
        branched off or restored."""
        if isinstance(version, str):
            tag = self._folder.tag(version)
            if tag is None:
                names = ", ".join(map(repr, self._folder.all_tags())) or "(none)"
                raise TableError(f"{self.path!r} has no tag {version!r}; its tags are {names}")
            return self._as_of(self._folder.version(tag.branch, tag.number))
        if isinstance(version, datetime):
            return self._as_of(self._version_at(version.timestamp()))
        if isinstance(version, bool) or not isinstance(version, int):
            raise PlanError(f"at takes a number, a tag or a datetime, not {version!r}")
        for entry in self._folder.history(self.version):
            if entry.number == version:
                if isinstance(entry, Collected):
                    break
                return self._as_of(entry)
        return self._as_of(self._folder.version(self.version.branch, version))

    def _as_of(self, version: Version) -> Table:
        return Table(self._folder, self._branch, version, self._steps)

    def _version_at(self, time: float) -> Version:
        for entry in self._folder.history(self.version):
            if isinstance(entry, Version) and entry.time <= time:
                return entry
        raise TableError(f"{self.path!r} has no version that is as old as that")

    def read(self, columns: Sequence[str] | None = None) -> Pipeline:
        """The rows as a pipeline, with all columns or these."""
        return table_pipeline(self._folder, self.version, columns, self._steps)

    # Changing rows.

    def append(self, data: Any, *, memory: int | str = MEMORY) -> Table:
        """Adds the rows of a pipeline, or of anything that speaks Arrow, all or none.

        Any number of processes may append at the same time.
        """
        schema = self._folder.schema(self._writable().schema)
        own = arrow_schema(schema)
        rows = incoming(data, own)
        with contextlib.ExitStack() as stack:
            stack.callback(rows.close)
            check_same(rows.schema, own, self.path)
            writer = stack.enter_context(Writer(self._folder))
            ordered = (batch.select(own.names) for batch in rows.batches)
            fragments, keys = _written(self._folder, writer, ordered, schema, memory)
            count = plural(sum(f.rows for f in fragments), "row")

            def change(head: Version) -> Version | None:
                if head.schema != self._folder.add(self._folder.schemas, schema):
                    raise TableError(f"the schema of {self.path!r} changed in the meantime")
                keys.check_against(self._folder.all_fragments(head))
                if not fragments:
                    return None
                lists = commits.new_lists(self._folder, head.lists, fragments)
                return msgspec.structs.replace(head, lists=lists, what=f"append {count}")

            self._commit(change)
            if fragments:
                writer.committed()
        return self

    def delete(self, where: Any) -> Table:
        """Removes the rows for which an expression or a function of columns is true. Only their
        positions are written; the rows stay in older versions."""
        head = self._writable()
        found = delete_rows(self.read(self._read_by(where)), where)
        with Writer(self._folder) as writer:
            change = found.change(self._folder, writer)
            if self._commit(change) != head:
                writer.committed()
        return self

    def restore(self, version: int | str | datetime) -> Table:
        """Makes the branch what it was at a version, in a new version."""
        self._writable()
        old = self.at(version).version

        def change(head: Version) -> Version:
            return msgspec.structs.replace(old, what=f"restore {old.branch} {old.number}")

        self._commit(change)
        return self

    def _read_by(self, step: Any) -> tuple[str, ...] | None:
        """The columns that a condition reads, or at least one."""
        names = step_reads(as_steps(self.columns, {"silva.condition": step})["silva.condition"])
        return names or self.columns[:1]

    # Derived columns.

    def derive(self, **steps: Any) -> Table:
        """Adds columns that are computed of others: definitions, no data.

        A function itself is not kept: programs that read the column derive it again, which
        changes nothing as long as the function is the same.

        >>> import silva as sv, pyarrow as pa, tempfile
        >>> t = sv.Table.create(tempfile.mkdtemp() + "/t", pa.table({"dwell": [40, 5]}))
        >>> t.derive(clicked=lambda dwell: dwell > 30).read().head(1)
        [{'dwell': 40, 'clicked': True}]
        """
        if not steps:
            raise PlanError("derive needs at least one column: derive(y=lambda x: x + 1)")
        self._writable()
        as_steps(self.columns, steps)  # mistakes are told before anything is held
        self._commit(add_columns(self._folder, steps, self._steps))
        return self

    def materialize(self, *names: str, on_error: Literal["raise", "skip"] = "raise") -> Table:
        """Stores derived columns, so that reading them computes nothing; fragments that have them
        already are left alone. Rows that are appended later are computed until this is done again.

        A row on which a definition fails is an error; with `on_error="skip"`, its fragment stays
        computed on read, where the loader's own policy decides.
        """
        for name in names:
            head = self._writable()
            fingerprint = dict(head.definitions).get(name)
            if fingerprint is None:
                raise PlanError(f"{name!r} is no derived column of {self.path!r}")
            check_storable(self._folder, name, fingerprint)
            found = recipes(self._folder, head, (name,), self._steps)
            facts = tuple((r.name, r.fingerprint, r.step, r.reads, r.inputs) for r in found)
            source = TableSource.of(self._folder, head).giving(facts, (name,))
            with Writer(self._folder) as writer:
                for new in stored_parts(writer, source, name, fingerprint, on_error):
                    self._commit(add_parts(self._folder, new, name, fingerprint))
                    writer.committed()
        return self

    def _writable(self) -> Version:
        if self._pinned is not None:
            raise TableError(
                f"version {self._pinned.number} of {self.path!r} stays as it is: "
                f"restore({self._pinned.number}) makes it the newest, branch(name) a branch"
            )
        return self._folder.head(self._branch)

    def _commit(self, change: commits.Change) -> Version:
        return commits.commit(self._folder, self._branch, change)

    # Names for versions.

    def branch(self, name: str) -> Table:
        """A branch that begins with what this is; or the branch of that name, if there is one."""
        commits.fork(self._folder, self.version, check_name("branch", name))
        return Table(self._folder, name, steps=self._steps)

    def branches(self) -> tuple[str, ...]:
        return tuple(self._folder.branches())

    def tag(self, name: str) -> Table:
        """A name for this version, for `at`; versions with one are not collected."""
        version = self.version
        tag = Tag(version.branch, version.number)
        path = self._folder.tags / f"{check_name('tag', name)}.json"
        with held(self._folder.path, alone=False):
            self._folder.version(tag.branch, tag.number)
            new = publish(path, encode(tag))
        if not new and (other := self._folder.tag(name)) != tag:
            raise TableError(f"the tag {name!r} names {other.branch} {other.number} already")  # type: ignore[union-attr]
        return self

    def gc(self, versions: int | None = None) -> Removed:
        """Removes files that no version names, as killed writers leave them. With `versions`, all
        but so many of each branch are given up first, unless they have a tag.

        Files of writers that are at work, in whatever process, stay.
        """
        return collect_garbage(self._folder, versions)

    def __repr__(self) -> str:
        version = self.version
        return f"table {self.path} ({version}; {plural(version.rows, 'row')})"


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
