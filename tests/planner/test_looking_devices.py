"""Real runs beside a disk or a trainer that becomes slower or faster: the plan follows them at the
border of a batch, and the stream stays."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import silva as sv
from silva.columns import Array, Column
from silva.cost.machine import Machine
from silva.plan.decision import Decision
from silva.testing import stream

pytestmark = pytest.mark.rest

FAST, ROWS = 40_000, 46_000
"""Rows before the disk becomes slow, and all rows."""
BLOCK = (128,)
"""Rows of blocks, which would be many while the disk is fast, and keep it busy for long then."""
ONE_CORE = replace(Machine.here(), cpus=1)
"""On which workers can only overlap waits."""


@sv.register_source("files_on_a_slow_disk")
@dataclass(frozen=True)
class Files:
    """Files of which the names are known at once, and the contents come from a disk that becomes
    slow: whoever reads them waits, and computes nothing."""

    rows: int
    fast: float
    slow: float

    costly: ClassVar[tuple[str, ...]] = ("content",)
    runs_user_code: ClassVar[bool] = False

    def columns(self) -> tuple[str, ...]:
        return ("name", "content")

    def fingerprint(self) -> str:
        return str(self.rows)

    def length(self) -> int:
        return self.rows

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        if "content" in columns:
            time.sleep(float(np.where(rows < FAST, self.fast, self.slow).sum()))
        every = {"name": rows, "content": rows}
        return {name: Array(every[name]) for name in columns}


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def by_name(name):
    spin(5e-5)
    return name % 3 == 0


def by_content(content):
    return content % 10 == 0


def computed(content):
    spin(2e-5)
    return -content


def dearer(content):
    spin(4e-4)
    return -content


def slow(content):
    spin(1e-3)
    return -content


def rows_before(change: Decision) -> int:
    """The rows after which the plan changed."""
    (note,) = change.notes
    return int(note.split()[1].replace(",", ""))


def changes_after(loader: sv.Loader, rows: int) -> list[Decision]:
    return [change for change in loader.facts().history if rows_before(change) > rows]


def on_a_slow_disk(backend: Any) -> bool:
    """Whether the plan changes once the disk is slow; the stream never does."""
    rows = sv.from_source(Files(ROWS, fast=1e-5, slow=1e-3))
    pipeline = rows.filter(by_content).filter(by_name).batch(16)
    with pipeline.loader(backend=backend, workers=2).with_seams(block_sizes=BLOCK) as loader:
        found = stream(loader)
        gains = [change.predicted_gain or 0.0 for change in changes_after(loader, FAST)]
        (stage,) = loader.facts().stages
        assert any("content after the filters" in step.label for step in stage.steps)
    x = np.arange(ROWS)
    assert len(found) == -(-np.count_nonzero((x % 3 == 0) & (x % 10 == 0)) // 16)
    return any(gain > 1.1 for gain in gains)


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_a_disk_that_becomes_slow_is_read_after_the_other_filter(
    backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the disk is fast, the filter on contents drops more rows for less; once it is slow, the
    filter on names saves reads."""
    for number in range(3):  # where the machine is busy, the first choice may be the last one
        monkeypatch.setenv("SILVA_PROFILES", str(tmp_path / str(number)))
        if on_a_slow_disk(backend):
            return
    raise AssertionError("the plan never changed")


def test_a_disk_that_becomes_slow_gets_workers_that_wait_for_it_together() -> None:
    rows = sv.from_source(Files(ROWS, fast=1e-6, slow=1e-3))
    pipeline = rows.derive(y=computed).batch(16)
    with pipeline.loader(workers=2).with_seams(machine=ONE_CORE, block_sizes=BLOCK) as loader:
        found = stream(loader)
        (stage,) = loader.facts().stages
        assert stage.backend != "inline"
    assert found == stream(sv.from_source(Files(ROWS, 0, 0)).derive(y=computed).batch(16).loader())


# Another consumer.


def train(loader: sv.Loader, seconds: Callable[[int], float]) -> list[Any]:
    """The batches of an epoch, by a trainer on another device that takes so many seconds for each,
    by its number."""
    found = []
    for number, batch in enumerate(loader):
        found.append([column.tolist() for column in batch.values()])
        time.sleep(seconds(number))
    return found


def test_a_trainer_that_becomes_slow_gets_a_worker_beside_it() -> None:
    rows = sv.from_columns({"content": range(8000)})
    pipeline = rows.derive(y=dearer).batch(16)
    with pipeline.loader(workers=1).with_seams(machine=ONE_CORE) as loader:
        found = train(loader, lambda number: 0.0 if number < 150 else 0.013)
        (stage,) = loader.facts().stages
        assert stage.backend != "inline"
    with pipeline.loader(backend="inline") as plain:
        assert found == train(plain, lambda number: 0.0)


def test_a_trainer_that_becomes_fast_gets_a_cache() -> None:
    """Beside a slow trainer, computing rows once more costs nothing."""
    rows = sv.from_columns({"content": range(1000)})
    pipeline = rows.derive(y=slow).batch(16)
    with pipeline.loader(workers=2, epochs=9) as loader:
        found = [train(loader, lambda number: 0.15)]
        assert loader.facts().history == ()
        found += [train(loader, lambda number: 0.0) for _ in range(8)]
        caches = [change for change in changes_after(loader, 1000) if change.what == "cache"]
        assert "the loop is" in caches[0].why
    with pipeline.options(optimize=False).loader(backend="inline") as plain:
        assert found == 9 * [train(plain, lambda number: 0.0)]
