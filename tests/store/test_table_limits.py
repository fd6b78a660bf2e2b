"""A full disk and Ctrl-C: the table is what it was, nothing is left, and work goes on later."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from failure_tools import run_script, start_script
from store_tools import assert_no_orphans, rows_of

import silva as sv

FULL = """
import resource, sys
import numpy as np
import silva as sv

path, work = sys.argv[1:]
t = sv.Table.open(path, "trial")
values = np.random.default_rng(0).normal(size=(40, 4000))
rows = sv.from_columns({"x": np.arange(40, 80), "v": values}).derive(k=lambda x: x)
if work == "materialize":
    noise = lambda x: (np.random.default_rng(x).normal(size=4000), x)
    t.derive(noise, into=("noise", "same"))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))  # as a disk that has no more room
try:
    if work == "put":
        t.put("w", values)
    elif work == "materialize":
        t.materialize("same", "noise")
    else:
        rows.to_table(path, branch="trial", shard_rows=10, backend="inline")
except OSError as error:
    print("told:", error)
"""


def make(path: Path) -> sv.Table:
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(40 * 4000)), 4000)
    rows = pa.table({"x": np.arange(40), "v": values, "k": np.arange(40)})
    return sv.Table.create(path, rows, key="x").branch("trial")


@pytest.mark.parametrize(
    "work",
    ["put", *(pytest.param(work, marks=pytest.mark.rest) for work in ("materialize", "to_table"))],
)
def test_a_full_disk_is_told_and_leaves_the_table_as_it_was(tmp_path: Path, work: str) -> None:
    table = make(tmp_path / "t")
    said = run_script(tmp_path, FULL, table.path, work)
    assert said.startswith("told: ")
    assert table.version.what in ("branch from main 1", "derive noise, same")
    assert [row["x"] for row in rows_of(table, ["x"])] == list(range(40))
    assert_no_orphans(table.path)


@pytest.mark.rest
def test_to_table_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    run_script(tmp_path, FULL, table.path, "to_table")
    run_script(tmp_path, FULL.replace("(200_000, 200_000)", "(-1, -1)"), table.path, "to_table")
    assert [row["x"] for row in rows_of(table, ["x"])] == list(range(80))
    assert_no_orphans(table.path)


STOPPED = """
import sys
import numpy as np
import silva as sv

path, work = sys.argv[1:]
t = sv.Table.open(path, "trial")


def slow(x):
    print("at work", flush=True)
    while x >= 25:
        pass
    return x, -x


try:
    if work == "materialize":
        t.derive(slow, into=("a", "b")).materialize("a", "b")
    else:
        rows = sv.from_columns({"x": np.arange(40)}).derive(slow, into=("x", "b"))
        rows = rows.derive(v=lambda b: np.zeros(4000), k=sv.col("x")).drop("b")
        rows.to_table(path, branch="trial", shard_rows=10, backend="inline")
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.parametrize("work", ["materialize", pytest.param("to_table", marks=pytest.mark.rest)])
def test_an_interrupt_leaves_the_table_as_it_was_and_ends_at_once(
    tmp_path: Path, work: str
) -> None:
    table = make(tmp_path / "t").delete(sv.col("x") < 30 if work == "to_table" else sv.col("x") < 0)
    child = start_script(tmp_path, STOPPED, table.path, work)
    assert child.stdout is not None
    try:
        for _ in range(26):
            child.stdout.readline()
        child.send_signal(signal.SIGINT)
        said, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert said.endswith("stopped\n"), err
    assert child.returncode == 0
    expected = [*range(30, 40), *range(20)] if work == "to_table" else list(range(40))
    assert [row["x"] for row in rows_of(table, ["x"])] == expected
    assert_no_orphans(table.path)
