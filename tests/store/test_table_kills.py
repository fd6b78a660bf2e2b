"""kill -9 at any moment leaves the old version or the new one, and `gc` leaves nothing else.

A child kills itself at its n-th call within silva's store, for n drawn at random from all of them:
every moment between two calls is as likely as any other, however fast the machine is. Another is
killed from outside while its files appear and grow, which Python has no part in.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from failure_tools import run_script, start_script
from store_tools import all_files, assert_no_orphans, rows_of

import silva as sv

CHILD = """
import os, signal, sys
import numpy as np
import pyarrow as pa
import silva as sv

path, work, moment = sys.argv[1], sys.argv[2], int(sys.argv[3])
t = sv.Table.open(path, "main" if work in ("append", "delete", "gc", "column") else "twin")
calls = 0


def count(frame, event, argument):
    global calls
    if "silva/store" in frame.f_code.co_filename:
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)


sys.setprofile(count)
if work == "append":
    t.append(pa.table({"g": [7, 6, 7], "x": [100, 101, 102], "h": [[1], [2], [3]]}))
elif work == "delete":
    t.delete(sv.col("x") < 3)
elif work == "gc":
    t.gc(versions=1)
elif work == "put":
    t.put("v", np.arange(16, dtype=np.float32).reshape(8, 2))
elif work == "several":
    t.derive(lambda x: (x + 1, [x]), into=("a", "b")).materialize("b", "a")
else:
    t.derive(y=sv.col("x") * 2).materialize("y")
sys.setprofile(None)
print(calls)
"""

NEW = [{"g": 6, "x": 101, "h": [2]}, {"g": 7, "x": 100, "h": [1]}, {"g": 7, "x": 102, "h": [3]}]
OLD = [{"g": i // 2, "x": i, "h": [i]} for i in range(8)]
STEPS = ["append", "delete", "gc", "column", "put", "several"]
AFTER = {
    "append": OLD + NEW,
    "delete": OLD[3:],
    "gc": OLD,
    "column": [{**row, "y": row["x"] * 2} for row in OLD],
    "put": [{**row, "v": [2 * row["x"], 2 * row["x"] + 1]} for row in OLD],
    "several": [{**row, "a": row["x"] + 1, "b": [row["x"]]} for row in OLD],
}
LATER = {"y": 18, "v": None, "a": 10, "b": [9]}
"""What derived columns are of a row that is appended afterwards."""


def make(path: Path) -> sv.Table:
    rows = pa.Table.from_pylist(OLD)
    table = sv.Table.create(path, rows.slice(0, 4), group="g").append(rows.slice(4))
    table.branch("twin")
    return table.branch("work").delete(sv.col("x") >= 0).branch("main")


def killed_at_random(folder: Path, work: str, times: int, seed: int) -> None:
    make(folder / "whole")
    calls = int(run_script(folder, CHILD, str(folder / "whole"), work, "-1"))
    assert calls > 10
    rng = random.Random(seed)
    for turn in range(times):
        path = folder / f"{work}-{turn}"
        make(path)
        moment = rng.randint(1, calls) if turn < times - 1 else calls
        child = start_script(folder, CHILD, str(path), work, str(moment))
        _, err = child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL, err
        table = sv.Table.open(path, "main" if work in STEPS[:4] else "twin")
        if "a" in table.columns:
            version = table.version
            table.derive(lambda x: (x + 1, [x]), into=("a", "b"))
            assert table.version == version, "it is the same function"
        found = rows_of(table)
        assert found in (OLD, AFTER[work])
        table.gc(versions=1 if work == "gc" else None)
        assert_no_orphans(path)
        assert rows_of(table) == found
        table.append(pa.table({"g": [9], "x": [9], "h": [[9]]}))
        later = {name: value for name, value in LATER.items() if name in table.columns}
        new = {"g": 9, "x": 9, "h": [9]} | later
        assert rows_of(table) == [*found, new]


LARGE = """
import sys
import numpy as np
import pyarrow as pa
import silva as sv

count = 200_000
rows = pa.table({"g": np.arange(count), "x": np.arange(count)})
lists = pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32)), rows["x"].chunk(0))
rows = rows.append_column("h", lists)
t = sv.Table.open(sys.argv[1])
print("ready", flush=True)
t.append(rows)
"""


def killed_while_files_grow(folder: Path, times: int) -> None:
    for turn in range(times):
        path = folder / f"grow-{turn}"
        make(path)
        before = all_files(path)
        child = start_script(folder, LARGE, str(path))
        assert child.stdout is not None
        child.stdout.readline()
        while len(all_files(path) - before) <= turn % 3 and child.poll() is None:
            pass
        child.kill()
        child.communicate(timeout=60)
        table = sv.Table.open(path)
        assert table.rows in (8, 200_008)
        table.gc()
        assert_no_orphans(path)
        assert rows_of(table)[:8] == OLD
        assert table.read(["x"]).filter(sv.col("x") >= 199_999).count() == (table.rows > 8)


def test_a_writer_killed_while_its_files_grow_leaves_the_old_version_or_the_new(
    tmp_path: Path,
) -> None:
    killed_while_files_grow(tmp_path, 1)


@pytest.mark.rest
def test_writers_killed_while_their_files_grow_leave_the_old_version_or_the_new(
    tmp_path: Path,
) -> None:
    killed_while_files_grow(tmp_path, 12)


def test_a_killed_writer_leaves_the_old_version_or_the_new(tmp_path: Path) -> None:
    killed_at_random(tmp_path, "append", 1, seed=1)


@pytest.mark.rest
@pytest.mark.parametrize("work", STEPS)
def test_a_writer_killed_at_many_moments_leaves_the_old_version_or_the_new(
    tmp_path: Path, work: str
) -> None:
    killed_at_random(tmp_path, work, 12, seed=2)
