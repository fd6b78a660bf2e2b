"""`silva table ls | show | explain | materialize | gc | diff`: manages tables."""

from __future__ import annotations

import datetime
from pathlib import Path

from cyclopts import App

from silva.errors import PlanError
from silva.facts.formatting import plural, size
from silva.store.describe import compare
from silva.store.table import Table
from silva.store.versions.audit import reads
from silva.store.versions.manifest import Version
from silva.store.versions.table_folder import Folder, find_version

app = App(name="table", help="Manage tables: versions, columns, space.")

_READS = 5
"""The number of recent reads that `show` lists."""


@app.command
def ls(folder: Path = Path()) -> None:
    """List the tables in a folder.

    Parameters
    ----------
    folder
        The folder to search; by default the current one.
    """
    if not folder.is_dir():
        raise PlanError(f"there is no folder {str(folder)!r}")
    found = [Folder(path) for path in sorted(folder.iterdir()) if Folder(path).is_table]
    for table in found:
        for branch in table.branches():
            version = table.head(branch)
            print(f"{table.path.name}  {version}  {plural(version.rows, 'row')}")
    if not found:
        print(f"no tables in {folder}")


@app.command
def show(path: Path, *, branch: str = "main") -> None:
    """Show the versions, branches and tags of a table, and its most recent reads.

    Parameters
    ----------
    path
        The table's folder.
    branch
        The branch whose versions to show.
    """
    table = Table.open(path, branch)
    folder = Folder(path)
    tags = {(t.branch, t.number): name for name, t in folder.all_tags().items()}
    print(f"branches: {', '.join(table.branches())}")
    for version in table.versions():
        tag = tags.get((version.branch, version.number))
        line = f"{_when(version.time)}  {version}  {plural(version.rows, 'row')}"
        print(line + (f"  [{tag}]" if tag else ""))
    last = list(reads(folder))[-_READS:]
    for read in last:
        columns = ", ".join(read.columns)
        print(f"{_when(read.time)}  {read.job} read {columns} of {read.branch} {read.version}")


def _when(time: float) -> str:
    return datetime.datetime.fromtimestamp(time).isoformat(" ", "seconds")


@app.command
def explain(path: Path, *, branch: str = "main", version: str | None = None) -> None:
    """Show for each column whether it is stored, how large it is, why, and what it is derived from.

    Parameters
    ----------
    path
        The table's folder.
    branch
        The branch to use.
    version
        A number or a tag; by default the latest version.
    """
    table = Table.open(path, branch)
    print((table if version is None else table.at(_which(version))).explain())


@app.command
def materialize(path: Path, *columns: str, branch: str = "main") -> None:
    """Store derived columns that are expressions; functions can be stored only by their program.

    Parameters
    ----------
    path
        The table's folder.
    columns
        The names of the columns.
    branch
        The branch to use.
    """
    if not columns:
        raise PlanError("name the columns to store")
    table = Table.open(path, branch).materialize(*columns)
    print(table.version)


@app.command
def gc(path: Path, *, versions: int | None = None) -> None:
    """Remove files that no version uses; with --versions, remove older versions first.

    Parameters
    ----------
    path
        The table's folder.
    versions
        How many versions of each branch to keep; by default all. Tagged versions are kept.
    """
    gone = Table.open(path).gc(versions)
    print(f"removed {plural(gone.files, 'file')}, {size(gone.bytes)}")


@app.command
def diff(path: Path, old: str, new: str | None = None, *, branch: str = "main") -> None:
    """Show the differences between two versions: columns, rows, and what is stored.

    Parameters
    ----------
    path
        The table's folder.
    old
        A number, a tag or a branch.
    new
        A number, a tag or a branch; by default the latest version of the branch.
    branch
        The branch that version numbers refer to.
    """
    folder = Folder(path)
    head = Table.open(path, branch).version
    lines = compare(
        folder, _find(folder, head, old), head if new is None else _find(folder, head, new)
    )
    print("\n".join(lines) or "no difference")


def _find(folder: Folder, head: Version, which: str) -> Version:
    if which in folder.branches():
        return folder.head(which)
    return find_version(folder, head, _which(which))


def _which(text: str) -> int | str:
    return int(text) if text.isdigit() else text
