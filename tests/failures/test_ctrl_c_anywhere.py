"""Ctrl-C between any two calls: the loop ends with KeyboardInterrupt, and nothing is left.

The signal is raised as the main thread enters or leaves its n-th function: one of silva's own, for
n drawn at random from all of them; and one that starts a thread, for every n, since that is a
moment which no timer would hit: a thread has started, and its owner may not know of it yet. (C
functions, and the methods of `threading.Condition`, are left out: CPython itself would lose track
of a lock there. So are generator expressions: CPython ignores what is raised while it drops one.)
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from failure_tools import until

import silva as sv

ROWS = 64
OWN = str(Path(sv.__file__).parent)
STARTS = (threading.Thread.start.__code__, threading.Event.wait.__code__)
"""A thread that was started is waited for."""

Work = Callable[[Any, Path], None]
Counts = Callable[[Any], bool]


def in_silva(code: Any) -> bool:
    own = code.co_filename.startswith(OWN) and code.co_name != "<genexpr>"
    return own or code in STARTS


def as_threads_start(code: Any) -> bool:
    return code in STARTS


def around_locks(code: Any) -> bool:
    return code.co_filename.endswith(("/writer.py", "/locks.py"))


class Moments:
    """Counts calls; at one of them, Ctrl-C."""

    def __init__(self, counts: Counts, moment: int) -> None:
        self.calls, self._counts, self._moment = 0, counts, moment

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "return") and self._counts(frame.f_code):
            self.calls += 1
            if self.calls == self._moment:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)


@contextmanager
def counted(counts: Counts, moment: int = -1) -> Iterator[Moments]:
    moments = Moments(counts, moment)
    sys.setprofile(moments)
    try:
        yield moments
    finally:
        sys.setprofile(None)


def read(backend: Any, folder: Path) -> None:
    rows = sv.from_columns({"x": range(ROWS)}).derive(y=lambda x: x + 1).shuffle(seed=1).batch(8)
    with rows.loader(backend=backend, workers=2) as loader:
        list(loader)


def write(backend: Any, folder: Path) -> None:
    rows = sv.from_columns({"x": range(ROWS)}).derive(y=lambda x: x + 1)
    rows.to_parquet(folder / "out", shard_rows=16, backend=backend, workers=2, cache="off")


def append(backend: Any, folder: Path) -> None:
    rows = pa.table({"x": range(ROWS)})
    sv.Table.create(folder / "table", rows).append(rows).delete(sv.col("x") == 1).gc()


def locks() -> list[str]:
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [f"lock {words[5]}" for words in lines if words[4] == str(os.getpid())]


def left(before: set[psutil.Process]) -> list[str]:
    gc.collect()
    names = [t.name for t in threading.enumerate() if t.name.startswith("silva-")]
    children = set(psutil.Process().children(recursive=True)) - before
    return names + [str(process.pid) for process in children] + locks()


def interrupted(
    work: Work, backend: str, folder: Path, counts: Counts, choose: Callable[[int], Iterable[int]]
) -> None:
    for i in range(2):  # what is imported the first time is not what is looked at
        with counted(counts) as whole:
            work(backend, folder / f"whole-{i}")
    before = set(psutil.Process().children(recursive=True))
    for moment in sorted(set(choose(whole.calls))):
        try:
            with counted(counts, moment) as moments:
                work(backend, folder / str(moment))
        except KeyboardInterrupt:
            pass
        else:
            assert moments.calls < moment, "nobody heard it"
        until(lambda: not left(before))


@pytest.mark.rest
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_ctrl_c_while_threads_start_leaves_nothing(backend: str, tmp_path: Path):
    interrupted(read, backend, tmp_path, as_threads_start, lambda calls: range(1, 9))


@pytest.mark.rest
@pytest.mark.parametrize("work", [read, write])
@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_ctrl_c_at_any_moment_leaves_nothing(work: Work, backend: str, tmp_path: Path):
    chance = random.Random(1)
    moments = [chance.random() for _ in range(60)]
    interrupted(work, backend, tmp_path, in_silva, lambda n: [1 + int(m * n) for m in moments])


@pytest.mark.rest
def test_ctrl_c_while_a_table_is_written_leaves_no_lock(tmp_path: Path):
    interrupted(append, "inline", tmp_path, around_locks, lambda calls: range(1, calls + 1))
