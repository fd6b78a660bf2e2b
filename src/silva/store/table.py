"""The public class of tables, and `sv.read_table`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from silva.errors import PlanError, TableError
from silva.facts.formatting import plural
from silva.joins.latest import Latest
from silva.pipeline import Pipeline
from silva.plan.schema import step_reads
from silva.store.append.append import append_rows, create_table
from silva.store.append.data_writer import DataWriter
from silva.store.append.ingest import MEMORY
from silva.store.append.normal_form import Roles
from silva.store.deletions import find_rows, without_rows
from silva.store.describe import TableExplanation, explain_table
from silva.store.garbage import Removed, collect_garbage, forget_columns
from silva.store.logical import derives, table_pipeline
from silva.store.table_columns import TableColumns
from silva.store.versions import commits
from silva.store.versions.locks import hold_table
from silva.store.versions.manifest import Kind, Version
from silva.store.versions.table_folder import (
    Folder,
    Paths,
    VersionTag,
    Which,
    check_name,
    find_version,
)


class Table(TableColumns):
    """A branch of a table, as it is now; or one version of it, by `at`.

    >>> import silva as sv, pyarrow as pa, tempfile
    >>> path = tempfile.mkdtemp() + "/clicks"
    >>> t = sv.Table.create(path, pa.table({"user": [2, 1], "dwell": [40, 5]}), group="user")
    >>> t.append(pa.table({"user": [1], "dwell": [60]})).rows
    3
    >>> t.read().head(2)
    [{'user': 1, 'dwell': 5}, {'user': 2, 'dwell': 40}]
    """

    # Creating and opening.

    @staticmethod
    def create(
        path: Paths,
        data: Any,
        *,
        key: str | Sequence[str] = (),
        group: str | None = None,
        time: str | None = None,
        store: Mapping[str, Kind] | None = None,
        memory: int | str = MEMORY,
    ) -> Table:
        """Creates a table with the rows of a pipeline, or of anything that exports Arrow.

        Rows of one `group` are kept together, in the order of `time`. `key` names columns whose
        values no two rows share. How a column is stored depends on how much its rows repeat;
        `store` chooses for some: `"plain"`, `"grouped"` (each distinct value once) or `"slices"`
        (lists that share items). At most about `memory` bytes of rows are sorted at a time.
        """
        folder = Folder(path)
        create_table(folder, data, Roles(key, group, time, store or {}), memory)
        return Table(folder, commits.MAIN)

    @staticmethod
    def open(path: Paths, branch: str = commits.MAIN) -> Table:
        """Opens a table that exists."""
        folder = Folder(path)
        folder.check()
        folder.head(branch)
        return Table(folder, branch)

    # Reading.

    @property
    def rows(self) -> int:
        return self.version.rows

    def versions(self) -> list[Version]:
        """The versions that led here, the oldest first, without those that were collected."""
        entries = self._folder.history(self.version)
        return [entry for entry in entries if isinstance(entry, Version)][::-1]

    def at(self, version: Which) -> Table:
        """The table as it was, by number, by tag, or at a time. It cannot be changed; `branch` and
        `restore` continue from it."""
        found = find_version(self._folder, self.version, version)
        return Table(self._folder, self._branch, found, self._steps)

    def read(self, columns: Sequence[str] | None = None) -> Pipeline:
        """The rows as a pipeline, with all columns or these."""
        pinned = self._pinned is not None
        return table_pipeline(self._folder, self.version, columns, self._steps, pinned=pinned)

    def latest(
        self,
        keys: Any,
        *,
        by: str | Sequence[str] | None = None,
        on: str | None = None,
        at: Any = None,
        columns: str | Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """The columns of the latest row of each key, null where there is none, as `asof_join` would
        find them. `by` and `on` default to the table's group and time; with `at`, a time or one for
        each key, later rows do not count.

        Rows are read once for each version. `sv.Latest` has more options.

        >>> import silva as sv, pyarrow as pa, tempfile
        >>> rows = pa.table({"user": [1, 1, 2], "ts": [5, 20, 7], "seen": [1, 2, 9]})
        >>> t = sv.Table.create(tempfile.mkdtemp() + "/t", rows, group="user", time="ts")
        >>> t.latest([2, 1, 3])["seen"].tolist(), t.latest([1], at=19)["seen"].tolist()
        ([9, 2, None], [1])
        """
        version = self.version
        schema = self._folder.schema(version.schema)
        by, on = by or schema.group, on or schema.time
        if by is None or on is None:
            what, role = ("by", "group") if by is None else ("on", "time")
            raise PlanError(f"latest({what}=…) is needed: {self.path!r} has no {role}")
        found_by = (by,) if isinstance(by, str) else tuple(by)
        wanted = (columns,) if isinstance(columns, str) else columns and tuple(columns)
        asked = (version.branch, version.number, found_by, on, wanted)
        if self._latest is None or self._latest[0] != asked:
            names = None if wanted is None else tuple(dict.fromkeys((*found_by, on, *wanted)))
            rows = table_pipeline(self._folder, version, names, self._steps)
            self._latest = asked, Latest(rows, by=found_by, on=on, columns=wanted)
        return self._latest[1].get(keys, at)

    # Changing rows.

    def append(self, data: Any, *, memory: int | str = MEMORY) -> Table:
        """Adds the rows of a pipeline, or of anything that exports Arrow: all or none.

        Any number of processes may append at the same time.
        """
        self._writable()
        append_rows(self._folder, self._branch, data, memory)
        return self

    def delete(self, where: Any) -> Table:
        """Removes the rows for which an expression or a function of columns is true. Only their
        positions are written; the rows stay in older versions."""
        self._writable()
        rows = find_rows(self.read(self._read_by(where)), where)
        with DataWriter(self._folder) as writer, writer.committing():
            self._commit(functools.partial(without_rows, self._folder, writer, rows))
        return self

    def restore(self, version: Which) -> Table:
        """Adds a version with the contents of an earlier one."""
        self._writable()
        old = self.at(version).version
        restored = msgspec.structs.replace(old, what=f"restore {old.branch} {old.number}")
        self._commit(lambda head: restored)
        return self

    def _read_by(self, where: Any) -> tuple[str, ...]:
        """The columns that a condition reads; one column where it reads none."""
        (condition,) = derives(self.columns, where, into="silva.condition")
        names = step_reads(condition.step)
        return names or self.columns[:1]

    def explain(self) -> TableExplanation:
        """For each column: whether it is stored or computed on read, its bytes, why, and its
        inputs."""
        return explain_table(self._folder, self.version, self._steps)

    # Branches, tags and garbage.

    def branch(self, name: str) -> Table:
        """Starts a branch here, or opens the branch of that name if it exists."""
        commits.fork(self._folder, self.version, check_name("branch", name))
        return Table(self._folder, name, steps=self._steps)

    def branches(self) -> tuple[str, ...]:
        return tuple(self._folder.branches())

    def tag(self, name: str) -> Table:
        """Names this version, for `at`; versions with a tag are not collected."""
        version = self.version
        tag = VersionTag(version.branch, version.number)
        check_name("tag", name)
        with hold_table(self._folder.path):
            self._folder.version(tag.branch, tag.number)
            new = self._folder.publish("tags", name, tag)
        other = tag if new else self._folder.tag(name)
        if other is not None and other != tag:
            raise TableError(
                f"the tag {name!r} already names {other.branch} {other.number}: choose another name"
            )
        return self

    def gc(self, versions: int | None = None) -> Removed:
        """Removes files that no version names, such as those of killed writers. With `versions`, it
        first drops all but that many versions of each branch, except tagged ones, and the stored
        data of columns that no remaining version defines.

        Files of running writers, in any process, stay.
        """
        if versions is not None:
            forget_columns(self._folder, versions)
        return collect_garbage(self._folder, versions)

    def __repr__(self) -> str:
        version = self.version
        return f"table {self.path} ({version}; {plural(version.rows, 'row')})"


def read_table(
    table: Paths | Table,
    version: Which | None = None,
    branch: str = "main",
    columns: Sequence[str] | None = None,
) -> Pipeline:
    """The rows of a table, as it is now or at a version (a number, a tag or a time).

    Any row costs the same to read, so a shuffle is global. Only the columns in use are read, and
    fragments that hold no row for a filter are skipped.

    >>> import silva as sv, pyarrow as pa, tempfile
    >>> path = tempfile.mkdtemp() + "/clicks"
    >>> t = sv.Table.create(path, pa.table({"user": [1, 2], "dwell": [40, 5]}))
    >>> sv.read_table(path, columns=["dwell"]).filter(sv.col("dwell") > 30).head(5)
    [{'dwell': 40}]
    """
    found = table if isinstance(table, Table) else Table.open(table, branch)
    return (found if version is None else found.at(version)).read(columns)
