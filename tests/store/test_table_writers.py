"""Writers at the same time, in processes of their own: all of them succeed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from failure_tools import start_script
from store_tools import assert_no_orphans, rows_of

import silva as sv

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
    with pytest.raises(sv.TableError, match="id=303 is in the table already"):
        table.append(pa.table({"id": [303], "x": [0]}))


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
