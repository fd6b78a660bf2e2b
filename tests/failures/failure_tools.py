"""What the failure tests share: ways to run, bounded waits, scripts in processes of their own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import silva as sv
from silva.testing import digest

WAYS = [("inline", 0), ("threads", 2), ("processes", 2)]
every_way = pytest.mark.parametrize(
    ("backend", "workers"), WAYS, ids=[backend for backend, _ in WAYS]
)


def until(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Waits for something to become true; fails the test if it does not."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
    return found


def inline(pipeline: sv.Pipeline, **options: Any) -> list[str]:
    return [digest(batch) for batch in pipeline.loader(backend="inline", **options)]


def worker_pids() -> list[int]:
    """The live worker processes of this process."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            if any(word.endswith("silva/run/pools/worker.py") for word in child.cmdline()):
                found.append(child.pid)
    return found


def taken(batches: Iterator[Any] | Any) -> tuple[list[str], BaseException | None]:
    """The digests of what came before an error, and the error."""
    found: list[str] = []
    try:
        for batch in batches:
            found.append(digest(batch))  # noqa: PERF401  what came before an error counts
    except Exception as error:  # noqa: BLE001  the test looks at it
        return found, error
    return found, None


def start_script(folder: Path, text: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Starts a script as a user would: a file, no test machinery."""
    file = folder / "script.py"
    if not file.exists() or file.read_text() != text:  # one that was just started may be reading it
        file.write_text(text)
    return subprocess.Popen(
        [sys.executable, str(file), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        **options,
    )


def run_script(folder: Path, text: str, *arguments: str, seconds: float = 60) -> str:
    """What a script printed; fails the test if it failed."""
    process = start_script(folder, text, *arguments)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the script hung:\n{out}\n{err}") from None
    assert process.returncode == 0, f"exit status {process.returncode}\n{out}\n{err}"
    return out
