"""One input of a stage on its way to a result, and what runs it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from silva.columns import Block, empty
from silva.columns.bed import Spot, lying
from silva.columns.column import Allocate
from silva.physical.call import Worker
from silva.physical.context import Context
from silva.physical.places import Places
from silva.physical.stage import Result, Runs
from silva.physical.units import UnitRows


class Task:
    """A stage, its input, and in time its results: one, or several that follow each other."""

    __slots__ = (
        "_lock", "attempts", "cancelled", "context", "done", "error", "finished", "landed",
        "parts", "payload", "results", "runs", "spot", "stage", "started", "then", "wake",
    )  # fmt: skip

    def __init__(self, stage: Runs, payload: Any, context: Context) -> None:
        self.stage = stage
        self.payload = payload
        self.context = context
        self.results: list[Result] | None = None
        self.error: BaseException | None = None
        self.done = False
        self.finished = threading.Event()
        self.spot: Spot | None = None
        """Where its rows lie in a batch, where that is known."""
        self.landed: deque[Task] | None = None
        """Where it puts itself when it is finished: who has many in flight need not look at all."""
        self.wake: threading.Event | None = None
        """Set too when the task is finished, by whoever waits for any of several."""
        self._lock = threading.Lock()
        self.cancelled = False
        self.attempts = 0
        """How many workers died on it."""
        self.started: float | None = None
        self.runs = 0
        """How many workers have it now; two when a slow one is raced."""
        self.then: Callable[[], None] | None = None
        """Called once it is finished, by who finished it."""
        self.parts: list[tuple[Task, Pool]] = []
        """What it is being done by, where its stage is cut in two."""

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self.cancelled = True
        for part, _ in self.parts:
            part.cancelled = True

    def finish(self, results: list[Result] | None, error: BaseException | None = None) -> None:
        """Sets the outcome, unless another worker was first."""
        with self._lock:
            if self.done:
                return
            self.results, self.error, self.done = results, error, True
        if self.then is not None:
            then, self.then = self.then, None
            then()  # before anybody is woken: what is to follow is then on its way
        if self.landed is not None:
            self.landed.append(self)
        self.finished.set()
        if self.wake is not None:
            self.wake.set()

    def describe(self) -> str:
        """Which rows it stands for, for error messages."""
        from silva.physical.batch_value import BatchValue
        from silva.physical.context import row_key

        if isinstance(self.payload, Places | UnitRows):
            return self.payload.describe()
        if isinstance(self.payload, BatchValue):
            return f"the batch that begins with row {row_key(self.payload.id)}"
        first, last = int(self.payload.ids[0]), int(self.payload.ids[-1])
        return f"rows {row_key(first)} to {row_key(last)}"


def execute(
    stage: Runs,
    payload: Any,
    context: Context,
    worker: Worker,
    allocate: Allocate = empty,
    spot: Spot | None = None,
) -> list[Result]:
    """Runs a stage on one input and settles its columns: all backends do just this."""
    with lying(spot):
        return [_settled(result, allocate) for result in stage.run(payload, context, worker)]


def _settled(result: Result, allocate: Allocate) -> Result:
    block = result.block
    columns = {name: column.settled(allocate) for name, column in block.columns.items()}
    return replace(result, block=Block(columns, block.ids, block.places))


class Pool(Protocol):
    """Runs tasks somewhere."""

    @property
    def width(self) -> int:
        """Tasks that can run at once; 0 where they run when waited for."""

    @property
    def ready(self) -> bool:
        """Somebody is there to run them."""

    @property
    def complete(self) -> bool:
        """Nobody who is needed is still on the way."""

    def submit(self, task: Task) -> None: ...

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        """Returns once the task is finished; `on_idle(seconds waited)` is called now and then."""

    def help(self, task: Task, worker: Worker) -> None:
        """Does a task here and now, while nobody else is there to."""

    def race(self, task: Task) -> None:
        """Has a task that is slow done by somebody else as well, where that is possible."""

    def use(self, count: int) -> None:
        """Only so many workers take tasks from now on."""

    def stacks(self) -> str:
        """What every worker is doing right now."""

    def close(self) -> None: ...
