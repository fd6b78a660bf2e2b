"""Claims about writers at the same time, each in a process of its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import silva as sv
from benchmarks.claims import Finding
from benchmarks.measure import Children
from benchmarks.store.log import Log, table
from benchmarks.store.setting import Sizes
from benchmarks.store.tables import put

_CHILDREN = Children("benchmarks.store.child")
_WRITERS, _APPENDS = 4, 5
_ROWS = 160
"""Of an append."""
_DEADLINE = 60.0


def concurrent_appends(sizes: Sizes) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        log = put(f"{folder}/table", table(Log(_ROWS), seed=_WRITERS * _APPENDS))
        _at_once(folder, "append")
        versions, sessions = log.version.number - 1, log.read(["session"])
        present = {row["session"] for row in sessions}
        wanted = _WRITERS * _APPENDS
        whole = sum(_sessions(seed) <= present for seed in range(wanted))
        right = log.rows == (1 + wanted) * _ROWS
    yield Finding(
        f"{_WRITERS} writers at once, {_APPENDS} appends each: appends that are there as a whole",
        f"{wanted} of {wanted}",
        f"{whole} of {wanted}, in {versions} versions",
        float(whole),
        whole == versions == wanted and right,
    )


def concurrent_columns(sizes: Sizes) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        log = put(f"{folder}/table", table(Log(sizes.rows)))
        _at_once(folder, "column")
        rows = log.read(["dwell", *(f"dwell_{number}" for number in range(_WRITERS))])
        explained = str(rows.explain())
        batches = list(rows.batch(1024).loader(backend="inline"))
        added = sum(
            f"dwell_{number} (stored)" in explained
            and all((b[f"dwell_{number}"] == b["dwell"] * (number + 2)).all() for b in batches)
            for number in range(_WRITERS)
        )
    yield Finding(
        f"{_WRITERS} writers at once, each adds and stores a column: columns that are there",
        f"{_WRITERS} of {_WRITERS}",
        f"{added} of {_WRITERS}",
        float(added),
        added == _WRITERS,
    )


def _sessions(seed: int) -> set[int]:
    return set(table(Log(_ROWS), seed=seed).column("session").to_pylist())


def _at_once(folder: str, work: str) -> None:
    with ThreadPoolExecutor(_WRITERS) as pool:
        started = [
            pool.submit(_CHILDREN.run, "write_at_once", folder=folder, work=work, number=number)
            for number in range(_WRITERS)
        ]
        for child in started:
            child.result()


def write_at_once(folder: str, work: str, number: int) -> dict[str, Any]:
    """One of the writers; it begins when all are ready."""
    log = sv.Table.open(f"{folder}/table")
    given = [table(Log(_ROWS), seed=number * _APPENDS + turn) for turn in range(_APPENDS)]
    (Path(folder) / f"ready-{number}").touch()
    deadline = time.monotonic() + _DEADLINE
    while len(list(Path(folder).glob("ready-*"))) < _WRITERS:
        if time.monotonic() > deadline:
            raise TimeoutError("the other writers did not start")
        time.sleep(0.002)
    if work == "append":
        for rows in given:
            log.append(rows)
    else:
        name = f"dwell_{number}"
        log.derive(**{name: sv.col("dwell") * (number + 2)}).materialize(name)
    return {}
