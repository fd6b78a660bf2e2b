"""How one stage is run at the moment: how large its blocks are, how many in flight, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from silva.io.source import runs_user_code
from silva.physical.stage import Result, Runs
from silva.physical.steps import Call, Keep, MapWhole
from silva.plan.function import Function
from silva.profile.gil import GilProbe

Backend = Literal["inline", "threads", "processes"]

_BLOCK_SECONDS = 0.05
"""Long enough to hide what a block costs to hand over, short enough to start and stop quickly."""
_BLOCK_BYTES = 8 << 20
_MOST_ROWS = 1 << 17
_MOST_PYTHON_ROWS = 1 << 13
"""Lists of more Python objects than this fall out of the CPU's cache."""
_MOST_BLOCKS = 256
"""In flight at once: each look at the window takes time."""
_FIRST_BLOCKS = 16
"""By then blocks have found their size."""
_FIRST_ROWS = 4
_ENOUGH_SECONDS = 0.04
"""Time to watch a stage before deciding where it runs."""
_ENOUGH_KNOWN_SECONDS = 0.002
"""The same without functions of the user's: who holds the lock is known, only the cost is not."""
_WATCHED_SECONDS = 0.004
"""Python's lock changes hands every 5 ms: in less, a probe sees little."""
_COPY_SECONDS = 1 / 2e9
"""Seconds a byte costs to bring over from another process."""
_OPERATORS_SHARE = 0.1
"""Of a built-in operator's time, what is spent holding Python's lock."""
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
    most_bytes: int = 0
    """The most bytes of finished blocks that were ever waiting for the consumer."""
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
        self.later_rows = 0
        """Rows of epochs to come, as far as can be told."""
        self.stats = LaneStats()
        self.probe = GilProbe() if _has_functions(stage) else None
        """Watches the lock while functions run; of built-in operators it is known."""
        self.need_rows = 0
        """Rows that the consumer takes at once; a window should hold two such helpings."""
        self.consumer_seconds = 0.0
        """Time that the consumer spent between two blocks: work that a worker could overlap with.
        """
        self._seconds_per_row = 0.0
        self._bytes_per_row = 0.0
        # several blocks go ahead at once on workers, before anything is known of a row's size
        self._rows = 1 if self.backend != "inline" else _FIRST_ROWS
        self._seeded = False
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
        self.stats.most_bytes = max(self.stats.most_bytes, done_bytes)
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
        if self.stats.blocks < _FIRST_BLOCKS or blocks >= _MOST_BLOCKS:
            return False  # blocks are small as long as little is known: no need for many
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
        self._seeded = self._seeded or result.seeded is not None
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
        per_row = max(nbytes, result.bytes_in) / rows_in
        self._bytes_per_row = max(
            per_row, self._bytes_per_row + weight * (per_row - self._bytes_per_row)
        )
        by_time = _BLOCK_SECONDS / max(self._seconds_per_row, 1e-9)
        by_bytes = min(_BLOCK_BYTES, self.budget // 8) / max(self._bytes_per_row, 1e-9)
        self._rows = max(1, int(min(by_time, by_bytes, self._most_rows, self._rows * 4)))

    def begin(self, rows: int | None, epoch: int, epochs: int | None) -> None:
        """An epoch begins: what was too little for a worker before may be enough by now. Where
        nobody says how many epochs there are, as many are expected as there were."""
        self.rows_left = rows
        more = epoch if epochs is None else max(epochs - epoch - 1, 0)
        self.later_rows = more * (rows or 0)
        if self.forced is None and self.backend == "inline" and self.workers:
            self.decided = False

    def watch(self) -> GilProbe | None:
        """The probe, where the next block is worth watching: long enough to tell something, or due
        because a decision is."""
        if self.decided or self.probe is None:
            return None
        long = self._rows * self._seconds_per_row > _WATCHED_SECONDS
        return self.probe if long or self.stats.busy > _ENOUGH_SECONDS / 2 else None

    def decide(self) -> None:
        """Chooses the backend once enough was seen, by what the stage costs and who holds the
        lock."""
        enough = _ENOUGH_KNOWN_SECONDS if self.probe is None else _ENOUGH_SECONDS
        if self.decided or self.stats.busy < enough:
            return
        if self.probe is not None and not self.probe.seconds:
            return  # the next block is watched
        self.decided = True
        share = _OPERATORS_SHARE if self.probe is None else self.probe.share
        per_row = self._seconds_per_row
        left = float("inf") if self.rows_left is None else self.rows_left * per_row
        left += self.later_rows * per_row
        meanwhile = self.consumer_seconds / max(self.stats.busy, 1e-9)
        # Amdahl: the lock is one lane; and beside a worker, the consumer's own time is free
        by_threads = _overlapped(1 / (share + (1 - share) / self.workers), meanwhile)
        if self._seeded:
            by_threads = 1.0  # it draws from global generators, which threads would share
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


def _has_functions(stage: Runs) -> bool:
    """Whether the stage calls functions of the user's, or reads a source that may hold the lock."""
    steps, read = getattr(stage, "steps", None), getattr(stage, "read", None)
    if steps is None or (read is not None and runs_user_code(read.source)):
        return True
    return any(
        isinstance(getattr(step, "function", None) or getattr(step, "step", None), Function)
        for step in steps
    )


def _calls_python(stage: Runs) -> bool:
    """Whether a function is called for every row."""
    return any(isinstance(step, Call | MapWhole) for step in getattr(stage, "steps", ())) or any(
        isinstance(step, Keep) and isinstance(step.step, Function) and not step.step.marks.batched
        for step in getattr(stage, "steps", ())
    )
