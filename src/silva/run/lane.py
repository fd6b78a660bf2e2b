"""How one stage is run at the moment: how large its blocks are, how many in flight, and where."""

from __future__ import annotations

from dataclasses import dataclass, field

from silva.io.source import runs_user_code
from silva.optimize.model import Backend, Load, choose_place
from silva.physical.stage import Result, Runs
from silva.physical.steps import Call, Keep, MapWhole
from silva.plan.function import Function
from silva.profile.costs import Cost
from silva.profile.gil import GilProbe
from silva.run.width import Width

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
_OPERATORS_SHARE = 0.1
"""Of a built-in operator's time, what is spent holding Python's lock."""


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
    followed: int = 0
    """Blocks since the stage became what it is."""
    again: int = 0
    """Of these, blocks that were done again in the order written, because a row failed."""
    steps: list[Cost] = field(default_factory=list)
    """What reading took, and then each step."""
    late: Cost = field(default_factory=Cost)
    """What reading took of columns that were left until after a filter."""


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
        self.width = Width(max(workers, 1))
        """Of the workers, how many are used."""
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

    def follow(self, stage: Runs) -> None:
        """The stage has become another: what was measured of its steps is not about these."""
        if stage.label != self.stage.label:
            self.stats.steps, self.stats.late = [], Cost()
            self.stats.followed = self.stats.again = 0
        self.stage = stage

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
        width = self.width.now
        if blocks < 2 * width + 1:
            return True
        if self.stats.blocks < _FIRST_BLOCKS or blocks >= _MOST_BLOCKS:
            return False  # blocks are small as long as little is known: no need for many
        return rows < 2 * self.need_rows + width * self.next_rows()

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
        stats.followed += 1
        stats.again += result.again
        self._seeded = self._seeded or result.seeded is not None
        if len(stats.steps) < len(result.uses):
            stats.steps = [Cost() for _ in result.uses]
        for cost, use in zip(stats.steps, result.uses, strict=False):
            cost.add(use)
        if result.late is not None:
            stats.late.add(result.late)
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
        load, busy = self.load(), max(self.stats.busy, 1e-9)
        left = float("inf") if self.rows_left is None else self.rows_left * load.seconds
        place = choose_place(
            load,
            self.workers,
            left=left + self.later_rows * load.seconds,
            meanwhile=self.consumer_seconds / busy,
            shares_generators=self._seeded,
        )
        self.backend, self.reason = place.backend, place.reason

    def load(self) -> Load:
        """What a row costs, as far as it was seen."""
        stats = self.stats
        share = _OPERATORS_SHARE if self.probe is None else self.probe.share
        cpu = stats.cpu / stats.rows_in if stats.rows_in else self._seconds_per_row
        return Load(self._seconds_per_row, cpu, share, self._bytes_per_row)


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
