"""A pipeline written into a table: each shard is one append.

A version counts the shards of each pipeline whose rows it holds. Rows and count appear in one
commit, so a shard is not appended twice even if the process died right after the commit. A version
that is restored has its rows and its count.

    <table>/writing/<branch>/<pipeline>/_silva.json    where to continue: the state after a shard
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from silva.columns import Block
from silva.errors import PlanError, TableError
from silva.options import WriteArguments
from silva.plan.fingerprint import digest, fingerprint
from silva.plan.node import Node
from silva.plan.schema import columns
from silva.sinks.arrow import ArrowTables
from silva.sinks.progress import WriteProgress, alone, read_progress, write_progress
from silva.sinks.write import Limits, unstable_parts, write
from silva.store.append.append import append_rows, create_table
from silva.store.append.ingest import MEMORY
from silva.store.append.normal_form import Roles, arrow_schema
from silva.store.table import Table
from silva.store.versions import commits
from silva.store.versions.manifest import Schema, Version
from silva.store.versions.table_folder import Folder, check_name


def write_table(
    plan: Node,
    path: str | Path,
    branch: str,
    roles: Roles,
    limits: Limits,
    arguments: WriteArguments,
) -> Table:
    """Appends all rows of a plan to a branch, or the rest of them after an interrupted run."""
    folder = Folder(path)
    _check_branch(folder, branch)
    _check_stable(plan)
    name = fingerprint(plan)
    cut = (limits.rows, limits.nbytes, arguments.get("seed"))
    writer = TableWriter(folder, branch, digest((name, cut)), roles)
    writer.check(columns(plan))
    place = folder.own.below(f"writing/{branch}/{name}")
    with alone(place):
        before = read_progress(place)
        if before is not None and len(before.shards) > writer.committed():
            # the table was restored to a version without some of them
            write_progress(place, WriteProgress(before.pipeline, before.settings))
    write(plan, place, writer, limits, arguments)
    if not folder.is_table:
        raise TableError(
            "to_table: the pipeline has no rows, so the types of its columns are unknown, and "
            f"{str(folder)!r} is not a table yet. Create it with sv.Table.create first"
        )
    return Table.open(path, branch)


def _check_branch(folder: Folder, branch: str) -> None:
    check_name("branch", branch)
    if folder.is_table:
        folder.head(branch)
    elif branch != commits.MAIN:
        raise TableError(
            f"to_table: {str(folder)!r} is not a table yet. A table starts with the branch "
            f"{commits.MAIN!r}; Table.branch({branch!r}) adds others"
        )


def _check_stable(plan: Node) -> None:
    if unstable := unstable_parts(plan):
        raise PlanError(
            f"to_table: {unstable[0]} has no stable fingerprint, so after a kill silva could not "
            "tell which rows are in the table already. Use a function or class of a module instead"
        )


class TableWriter:
    """Appends shards to a table: a `silva.sinks.write.ShardWriter`."""

    def __init__(self, folder: Folder, branch: str, name: str, roles: Roles) -> None:
        self._folder, self._branch, self._roles = folder, branch, roles
        self._name = name
        """A digest of the pipeline and of how it is cut into shards."""
        self._arrow = ArrowTables(None, "")
        self._number = 0
        self._waiting: list[Any] = []
        self._nbytes = 0

    def check(self, names: tuple[str, ...]) -> None:
        """Raises where the columns, key, group or time differ from the table's."""
        own = self._schema()
        if own is None:
            return
        roles = self._roles
        asked = {"key": roles.keys or None, "group": roles.group, "time": roles.time}
        for role, name in asked.items():
            if name is not None and name != getattr(own, role):
                raise PlanError(
                    f"to_table: {role}={name!r}, but the {role} of the table {str(self._folder)!r} "
                    f"is {getattr(own, role)!r}"
                )
        there = arrow_schema(own).names
        wrong = [f"{name!r} is missing" for name in there if name not in names]
        wrong += [f"{name!r} is new" for name in names if name not in there]
        if wrong:
            raise TableError(
                f"to_table: the rows do not fit {str(self._folder)!r}: {'; '.join(wrong)}"
            )

    def _schema(self) -> Schema | None:
        head = self._head()
        return None if head is None else self._folder.schema(head.schema)

    def _head(self) -> Version | None:
        return self._folder.head(self._branch) if self._folder.is_table else None

    def committed(self) -> int:
        """The number of the pipeline's shards that the table holds."""
        head = self._head()
        return 0 if head is None else head.written.get(self._name, 0)

    def settings(self) -> dict[str, Any]:
        return {"format": "table"}

    def resume(self, shards: list[str], kept: dict[str, Any]) -> None:
        self.discard()
        own = self._schema()
        self._arrow = ArrowTables(None if own is None else arrow_schema(own), "")

    def keep(self) -> dict[str, Any]:
        return {}

    def open(self, number: int) -> None:
        self._number = number
        self.discard()

    def write(self, chunk: Block) -> int:
        table = self._arrow.table(chunk)
        self._waiting.append(table)
        self._nbytes += table.nbytes
        return self._nbytes

    def close(self) -> str:
        import pyarrow as pa

        rows = pa.concat_tables(self._waiting)
        mark = (self._name, self._number)
        if not self._folder.is_table:
            create_table(self._folder, rows, self._roles, MEMORY, mark)
            self.resume([], {})
        elif self.committed() <= self._number:
            append_rows(self._folder, self._branch, rows, MEMORY, mark)
        self.discard()
        return f"append {self._number}"

    def discard(self) -> None:
        self._waiting, self._nbytes = [], 0
