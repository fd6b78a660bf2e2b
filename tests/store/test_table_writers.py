"""Writers at the same time, in processes of their own: all of them succeed."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from failure_tools import start_script
from store_tools import assert_no_orphans, rows_of

import silva as sv
from silva.store.versions.commits import MAIN, commit
from silva.store.versions.manifest import Version
from silva.store.versions.table_folder import Folder

WRITER = """
import sys
import pyarrow as pa
import silva as sv

path, work, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
t = sv.Table.open(path)
print("ready", flush=True)
sys.stdin.readline()
if work == "append":
    for turn in range(5):
        t.append(pa.table({"id": [number * 100 + turn], "x": [turn]}))
        if number == 0:
            t.gc()
else:
    t.derive(**{f"y{number}": sv.col("x") * number}).materialize(f"y{number}")
print("done")
"""


def at_once(folder: Path, path: Path, work: str, writers: int = 4) -> None:
    """Starts writers, and lets them go when all are ready."""
    children = [
        start_script(folder, WRITER, str(path), work, str(i), stdin=subprocess.PIPE)
        for i in range(writers)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        out, err = child.communicate(timeout=100)
        assert (child.returncode, out) == (0, "done\n"), err


def test_twenty_appends_of_four_writers_all_succeed_while_gc_runs(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = sv.Table.create(path, pa.table({"id": [-1], "x": [-1]}), key="id")
    at_once(tmp_path, path, "append")
    assert table.version.number == 21
    found = sorted(row["id"] for row in rows_of(table))
    assert found == [-1, *(n * 100 + t for n in range(4) for t in range(5))]
    table.gc()
    assert_no_orphans(path)
    with pytest.raises(sv.TableError, match="id=303 is already in the table"):
        table.append(pa.table({"id": [303], "x": [0]}))


@pytest.mark.rest
def test_columns_added_by_four_writers_at_once_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = sv.Table.create(path, pa.table({"x": range(50)})).append(pa.table({"x": [50]}))
    at_once(tmp_path, path, "column")
    assert table.columns[0] == "x"
    assert sorted(table.columns[1:]) == ["y0", "y1", "y2", "y3"]
    explained = str(table.read().explain())
    assert all(f"y{i} (stored)" in explained for i in range(4))
    assert rows_of(table)[-1] == {name: 50 * int(name[1:] or 1) for name in table.columns}
    table.gc()
    assert_no_orphans(path)


class Overtaken(Folder):
    """A reader that others overtake, just when it has seen which version is the last."""

    others = 0

    def numbers(self, branch: str) -> list[int]:
        found = super().numbers(branch)
        if self.others:
            self.others -= 1
            t = sv.Table.open(self.path)
            t.append(pa.table({"x": [2]})).append(pa.table({"x": [3]})).gc(versions=1)
        return found


@pytest.mark.parametrize("times", [1, 3])
def test_who_asks_for_a_branch_is_not_told_that_a_version_was_collected(
    tmp_path: Path, times: int
) -> None:
    sv.Table.create(tmp_path / "t", pa.table({"x": [1]}))
    folder = Overtaken(tmp_path / "t")
    folder.others = times
    assert folder.head("main") == sv.Table.open(tmp_path / "t").version
    with pytest.raises(sv.TableError, match="collected"):
        folder.version("main", 1)


def test_a_commit_that_takes_long_does_not_lose_to_shorter_ones(tmp_path: Path) -> None:
    """It would, each time anew, if others could commit while it is at it."""
    path = tmp_path / "t"
    sv.Table.create(path, pa.table({"id": [0]}), key="id")
    over, another = threading.Event(), threading.Event()

    def change(head: Version) -> Version:
        return msgspec.structs.replace(head, what="short")

    def commit_again_and_again() -> None:
        while not over.is_set():
            commit(Folder(path), MAIN, change)
            another.set()

    asked = []

    def slow(head: Version) -> Version:
        asked.append(head.number)
        another.clear()
        if len(asked) < 5:
            another.wait(0.2)  # for a shorter one that overtakes it
        return msgspec.structs.replace(head, what="long")

    thread = threading.Thread(target=commit_again_and_again)
    thread.start()
    try:
        assert commit(Folder(path), MAIN, slow).what == "long"
    finally:
        over.set()
        thread.join()
    assert len(asked) == 1
