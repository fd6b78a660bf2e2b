"""How one stage is run at the moment: how large its blocks are, how many are in flight, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from silva.physical.stage import Result, Runs
from silva.physical.steps import Call, Keep, MapWhole
from silva.plan.function import Function
from silva.profile.gil import GilProbe

Backend = Literal["inline", "threads", "processes"]

_BLOCK_SECONDS = 0.05
"""Long enough to hide what a block costs to hand over, short enough to start and stop quickly."""
_BLOCK_BYTES = 8 << 20
_MOST_ROWS = 1 << 17
_MOST_PYTHON_ROWS = 1 << 14
"""Lists of more Python objects than this fall out of the CPU's cache."""
_FIRST_ROWS = 32
_ENOUGH_SECONDS = 0.04
"""Time to watch a stage before deciding where it runs."""
_COPY_SECONDS = 1 / 2e9
"""Seconds a byte costs to bring over from another process."""
_PROCESS_START = 0.3
"""Seconds until a worker process earns its keep."""


@dataclass
class LaneStats:
    """Counters of a stage, from the start of the loader."""

    blocks: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_out: int = 0
    busy: float = 0.0
    """Seconds that workers spent in the stage."""
    cpu: float = 0.0
    starved: float = 0.0
    """Seconds that the consumer waited for the stage."""
    blocked: int = 0
    """Times that the stage could not go ahead because its share of memory was full."""
    queue_fill: float = 0.0
    """Blocks done and waiting when the consumer came, on average."""
    step_seconds: list[float] = field(default_factory=list)


class Lane:
    def __init__(
        self, stage: Runs, name: str, backend: Backend | None, workers: int, budget: int
    ) -> None:
        self.stage = stage
        self.name = name
        self.forced = backend
        self.backend: Backend = backend or "inline"
        self.decided = backend is not None or workers == 0
        self.reason = "as asked for" if backend or not workers else "measuring"
        self.workers = workers
        self.budget = budget
        self.align = 1
        self.rows_left: int | None = None
        self.stats = LaneStats()
        self.probe = GilProbe()
        self.need_rows = 0
        """Rows that the consumer takes at once; a window should hold two such helpings."""
        self.consumer_seconds = 0.0
        """Time that the consumer spent between two blocks: work that a worker could overlap with.
        """
        self._seconds_per_row = 0.0
        self._bytes_per_row = 0.0
        self._rows = _FIRST_ROWS
        self._most_rows = _MOST_PYTHON_ROWS if _calls_python(stage) else _MOST_ROWS

    def next_rows(self) -> int:
        """Rows of the next block."""
        rows = self._rows
        if self.align > 1 and rows >= self.align:
            rows -= rows % self.align
        elif self.align > 1 and rows * 4 >= self.align:
            rows = self.align
        return max(rows, 1)

    def admits(self, blocks: int, rows: int, done_bytes: int, running_rows: int) -> bool:
        """Whether one more block may go ahead, with so many in flight or waiting."""
        if blocks == 0:
            return True  # the head of the order always may
        if self.backend == "inline":
            return False
        expected = done_bytes + (running_rows + self.next_rows()) * self._bytes_per_row
        if expected > self.budget:
            self.stats.blocked += 1
            return False
        if blocks < 2 * self.workers + 1:
            return True
        return rows < 2 * self.need_rows + self.workers * self.next_rows()

    def learn(self, result: Result, rows_in: int) -> None:
        """Takes note of a finished block."""
        stats, block = self.stats, result.block
        nbytes = block.nbytes
        stats.blocks += 1
        stats.rows_in += rows_in
        stats.rows_out += len(block)
        stats.bytes_out += nbytes
        stats.busy += result.seconds
        stats.cpu += result.cpu
        if result.step_seconds:
            if len(stats.step_seconds) != len(result.step_seconds):
                stats.step_seconds = [0.0] * len(result.step_seconds)
            stats.step_seconds = [
                a + b for a, b in zip(stats.step_seconds, result.step_seconds, strict=True)
            ]
        if rows_in == 0:
            return
        weight = 0.5 if stats.blocks > 1 else 1.0
        self._seconds_per_row += weight * (result.seconds / rows_in - self._seconds_per_row)
        per_row = nbytes / rows_in
        self._bytes_per_row = max(
            per_row, self._bytes_per_row + weight * (per_row - self._bytes_per_row)
        )
        by_time = _BLOCK_SECONDS / max(self._seconds_per_row, 1e-9)
        by_bytes = min(_BLOCK_BYTES, self.budget // 8) / max(self._bytes_per_row, 1e-9)
        self._rows = max(1, int(min(by_time, by_bytes, self._most_rows, self._rows * 4)))

    def decide(self) -> None:
        """Chooses the backend once enough was seen, by what the stage costs and who holds the
        lock."""
        if self.decided or self.probe.seconds < _ENOUGH_SECONDS:
            return
        self.decided = True
        share, per_row = self.probe.share, self._seconds_per_row
        left = float("inf") if self.rows_left is None else self.rows_left * per_row
        meanwhile = self.consumer_seconds / max(self.stats.busy, 1e-9)
        # Amdahl: the lock is one lane; and beside a worker, the consumer's own time is free
        by_threads = _overlapped(1 / (share + (1 - share) / self.workers), meanwhile)
        moved = per_row + self._bytes_per_row * _COPY_SECONDS
        by_processes = _overlapped(self.workers * per_row / moved, meanwhile)
        seen = f"{_duration(per_row)} a row, the lock is held {share:.0%} of the time"
        if left < _PROCESS_START / 2:
            self.reason = f"{_duration(per_row)} a row, {_duration(left)} left: not worth a worker"
        elif by_processes > 1.2 * by_threads and left * (1 - 1 / by_processes) > 2 * _PROCESS_START:
            self.backend = "processes"
            self.reason = f"{seen}: processes {by_processes:.1f}×, threads {by_threads:.1f}×"
        elif by_threads > 1.15:
            self.backend = "threads"
            self.reason = f"{seen}: threads {by_threads:.1f}×"
        else:
            self.reason = f"{seen}: workers would not help"


def _overlapped(speed: float, meanwhile: float) -> float:
    """How much faster stage and consumer are together when the stage, `speed` times as fast, runs
    beside the consumer, who takes `meanwhile` of the stage's own time."""
    return (1 + meanwhile) / max(1 / speed, meanwhile)


def _duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _calls_python(stage: Runs) -> bool:
    """Whether a function is called for every row."""
    return any(isinstance(step, Call | MapWhole) for step in getattr(stage, "steps", ())) or any(
        isinstance(step, Keep) and isinstance(step.step, Function)
        for step in getattr(stage, "steps", ())
    )
