"""Tables: rows that are appended, versions of them, and columns that are derived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from silva.errors import PlanError, TableError
from silva.insight.words import plural
from silva.joins.latest import Latest
from silva.pipeline import Pipeline
from silva.plan.node import Step
from silva.plan.traits import step_reads
from silva.store import commits
from silva.store.append import append_rows, create_table
from silva.store.dedup import Kind
from silva.store.definitions import current
from silva.store.deletions import delete_rows
from silva.store.explain import TableExplanation, explain_table
from silva.store.find import Which, find_version
from silva.store.folder import Folder, Paths, Tag, check_name, publish
from silva.store.garbage import Removed, collect_garbage, forget_columns
from silva.store.ingest import MEMORY
from silva.store.locks import held
from silva.store.logical import derives, table_pipeline
from silva.store.manifest import Version, encode
from silva.store.table_columns import Columns
from silva.store.writer import Writer


class Table(Columns):
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
        self._latest: tuple[Any, Latest] | None = None
        """What `latest` looked into, and what that was."""

    # Making and opening.

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
        """A new table with the rows of a pipeline, or of anything that speaks Arrow.

        Rows of one `group` are kept together, in the order of `time`. `key` names columns of which
        no two rows have the same values. How columns are stored is chosen by how much their rows
        repeat; `store` chooses for some: `"plain"`, `"grouped"` (each distinct value once) or
        `"slices"` (lists that share items). At most about `memory` bytes of rows are sorted at a
        time.
        """
        folder = Folder(path)
        create_table(folder, data, key, group, time, store or {}, memory)
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

    def at(self, version: Which) -> Table:
        """The table as it was: by number, by tag, or at a time. It cannot be changed, but be
        branched off or restored."""
        found = find_version(self._folder, self.version, version)
        return Table(self._folder, self._branch, found, self._steps)

    def read(self, columns: Sequence[str] | None = None) -> Pipeline:
        """The rows as a pipeline, with all columns or these."""
        return table_pipeline(self._folder, self.version, columns, self._steps)

    def latest(
        self,
        keys: Any,
        *,
        by: str | Sequence[str] | None = None,
        on: str | None = None,
        at: Any = None,
        columns: str | Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """The columns of the latest row of each key, null where there is none: what `asof_join`
        would find. `by` and `on` are the table's group and time, unless others are named; with
        `at`, a time or one for each key, later rows do not count.

        Rows are read once for each version. `sv.Latest` has more to choose from.

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
        """Adds the rows of a pipeline, or of anything that speaks Arrow, all or none.

        Any number of processes may append at the same time.
        """
        self._writable()
        append_rows(self._folder, self._branch, data, memory)
        return self

    def delete(self, where: Any) -> Table:
        """Removes the rows for which an expression or a function of columns is true. Only their
        positions are written; the rows stay in older versions."""
        self._writable()
        found = delete_rows(self.read(self._read_by(where)), where)
        with Writer(self._folder) as writer, writer.committing():
            self._commit(found.change(self._folder, writer))
        return self

    def restore(self, version: Which) -> Table:
        """Makes the branch what it was at a version, in a new version."""
        self._writable()
        old = self.at(version).version

        def change(head: Version) -> Version:
            return msgspec.structs.replace(old, what=f"restore {old.branch} {old.number}")

        self._commit(change)
        return self

    def _read_by(self, step: Any) -> tuple[str, ...]:
        """The columns that a condition reads, or at least one."""
        (condition,) = derives(self.columns, step, into="silva.condition")
        names = step_reads(condition.step)
        return names or self.columns[:1]

    def explain(self) -> TableExplanation:
        """For each column: stored or computed on read, its bytes, why, and what it is of."""
        return explain_table(self._folder, self.version, self._steps)

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
        but so many of each branch are given up first, unless they have a tag; and with them what
        is stored of columns that none of the others defines.

        Files of writers that are at work, in whatever process, stay.
        """
        if versions is not None:
            forget_columns(self._folder, versions)
        return collect_garbage(self._folder, versions)

    def __repr__(self) -> str:
        version = self.version
        return f"table {self.path} ({version}; {plural(version.rows, 'row')})"
