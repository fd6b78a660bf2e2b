"""Kills, full disks, and other processes: a cache folder stays right, and within its limit."""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from failure_tools import run_script, start_script, until

import silva as sv
from silva.cache.inspect_folder import contents
from silva.cache.open_store import shelf_at
from silva.cache.row_files import is_sound
from silva.cache.shelf_index import bytes_held

ROWS = 240
FILL = """
import json, sys, warnings
import numpy as np
import silva as sv
from silva.testing import cut_blocks, stream

told = json.loads(sys.argv[1])
warnings.simplefilter("ignore" if told.get("lenient") else "error")
if told.get("largest_file"):
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (told["largest_file"],) * 2)

def pipeline(folder, limit, factor, calls):
    def wide(x):
        with open(calls, "a") as file:
            file.write(".")
        return np.full(4000, x * factor)

    rows = sv.from_columns({"x": range(ROWS)}).derive(y=wide)
    rows = rows if folder is None else rows.cache(folder, limit=limit)
    return rows.shuffle(seed=0).batch(8)

wanted = pipeline(told.get("folder"), told.get("limit"), told.get("factor", 1), told["calls"])
loader = cut_blocks(wanted.loader(backend="inline", memory="1MB"), (3,))
for epoch in range(told.get("epochs", 2)):
    print(json.dumps(stream(loader)))
""".replace("ROWS", str(ROWS))


@pytest.fixture
def told(tmp_path: Path) -> dict[str, Any]:
    """What the script is told; every run counts the rows that it computes in one file."""
    return {"folder": str(tmp_path / "rows"), "calls": str(tmp_path / "calls")}


def run(tmp_path: Path, told: dict[str, Any], **more: Any) -> list[str]:
    return run_script(tmp_path, FILL, json.dumps({**told, **more})).strip().split("\n")


def start(tmp_path: Path, told: dict[str, Any], **more: Any) -> Any:
    return start_script(tmp_path, FILL, json.dumps({**told, **more}))


def computed(told: dict[str, Any]) -> int:
    """Rows computed since the last time that it was asked."""
    try:
        found = os.path.getsize(told["calls"])
    except FileNotFoundError:
        return 0
    os.truncate(told["calls"], 0)
    return found


@pytest.mark.rest
def test_kills_at_any_moment_leave_a_cache_that_the_next_run_goes_on_with(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    expected = run(tmp_path, told, folder=None)
    computed(told)
    chance = random.Random(5)
    folder = Path(told["folder"])
    killed = 0
    for _ in range(6):
        goal = bytes_held(shelf_at(folder)) + chance.randrange(1, 400_000)
        killed += _killed_at(goal, folder, start(tmp_path, told)) == -9
        assert all(
            is_sound(kept.shelf, file.item) for kept in contents(folder) for file in kept.files
        )
    computed(told)
    assert killed >= 3
    before = sum(kept.entries for kept in contents(folder))
    assert run(tmp_path, told) == expected
    assert computed(told) == ROWS - before
    assert run(tmp_path, told) == expected
    assert computed(told) == 0


def _killed_at(goal: int, folder: Path, process: Any) -> int:
    """Kills a process once the folder holds so much; returns how it ended."""
    with process:
        until(lambda: bytes_held(shelf_at(folder)) >= goal or process.poll() is not None)
        process.kill()
    code: int = process.returncode
    return code


@pytest.mark.rest
def test_two_that_fill_a_folder_at_once_stay_within_its_limit(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    """At every moment, also while files are written, evicted and refused."""
    limit = 3_000_000
    expected = {factor: run(tmp_path, told, folder=None, factor=factor) for factor in (1, 2, 3)}
    folder = Path(told["folder"])
    folder.mkdir()
    many = {
        factor: start(tmp_path, told, limit=limit, factor=factor, lenient=True)
        for factor in expected
    }
    most = 0
    while any(process.poll() is None for process in many.values()):
        with shelf_at(folder).locked():
            most = max(most, bytes_held(shelf_at(folder)))
    for factor, process in many.items():
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert out.strip().split("\n") == expected[factor]
    assert limit * 0.8 < most <= limit
    assert not list(folder.glob("*/*.tmp"))


def test_files_that_become_too_large_for_the_disk_cost_a_warning(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    expected = run(tmp_path, told, folder=None)
    for largest in (10_000, 60_000):
        assert run(tmp_path, told, largest_file=largest, lenient=True) == expected
        assert not list(Path(told["folder"]).glob("*/*.tmp"))
        assert not list(Path(told["folder"]).glob("*/*.rows"))


@pytest.mark.parametrize("limit", [None, "1GiB"], ids=["no limit", "a limit that is too high"])
def test_a_full_disk_costs_a_warning(
    limit: str | None, tmp_path: Path, told: dict[str, Any]
) -> None:
    expected = run(tmp_path, told, folder=None)
    disk, file = tmp_path / "disk", tmp_path / "script.py"
    disk.mkdir()
    words = json.dumps({**told, "folder": str(disk / "rows"), "limit": limit, "lenient": True})
    within = ["unshare", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=2m none {disk}"
    if shutil.which("unshare") is None or subprocess.run([*within, mount], check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    after = f"find {disk} -name '*.tmp' -o -name '*.rows' | sort"
    command = f"{mount} && '{sys.executable}' '{file}' '{words}' && {after}"
    done = subprocess.run([*within, command], capture_output=True, text=True, check=True)
    *found, first, last = done.stdout.strip().split("\n")
    assert found[:2] == expected
    assert first.endswith(".rows")
    assert last.endswith(".rows")
    assert ".tmp" not in done.stdout


def _obey_permissions() -> None:
    """Root may write into read-only folders; after this, what is started next may not."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.parametrize("rows", [True, False], ids=["filled", "empty"])
def test_a_read_only_folder_is_read_and_not_written(
    rows: bool, tmp_path: Path, told: dict[str, Any]
) -> None:
    folder = Path(told["folder"])
    folder.mkdir()
    expected = run(tmp_path, told, **({} if rows else {"folder": None}))
    computed(told)
    closed = [folder, *folder.iterdir()]
    for path in closed:
        path.chmod(0o555)
    try:
        words = json.dumps({**told, "lenient": not rows})
        process = start_script(tmp_path, FILL, words, preexec_fn=_obey_permissions)
        out, err = process.communicate(timeout=50)
    finally:
        for path in closed:
            path.chmod(0o755)
    assert process.returncode == 0, err
    assert out.strip().split("\n") == expected
    assert computed(told) == (0 if rows else 2 * ROWS)
    assert len(list(folder.iterdir())) == rows


def test_a_folder_that_cannot_be_made_is_an_error_before_the_first_row(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    rows = sv.from_columns({"x": range(3)}).cache(tmp_path / "file" / "rows").batch(2)
    with pytest.raises(sv.PlanError, match="cannot be used"):
        next(iter(rows.loader(backend="inline")))


def test_rows_removed_while_others_read_them_are_computed_again(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    expected = run(tmp_path, told)
    folder = Path(told["folder"])
    process = start(tmp_path, told, epochs=4, lenient=True)
    while process.poll() is None:
        for kept in contents(folder):
            for file in kept.files[::2]:
                kept.shelf.remove([file.item])
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.strip().split("\n")[:2] == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(tmp_path, told) == expected
