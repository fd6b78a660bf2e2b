"""A task: one input of a stage, and later its results; and the interface of pools."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from silva.columns import Block, empty
from silva.columns.allocation import BatchSlot, filling
from silva.columns.column import Allocate
from silva.errors import SilvaError, StepError
from silva.physical.stage.batch_value import BatchValue
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context, row_key
from silva.physical.stage.raised import in_words, user_traceback
from silva.physical.stage.read import Places, UnitRows
from silva.physical.stage.stage import Result, Runs


class Task:
    """A stage, one input, and later its results: one, or several consecutive ones."""

    __slots__ = (
        "_lock", "attempts", "cancelled", "context", "done", "error", "finished", "landed",
        "payload", "results", "runs", "slot", "stage", "started", "wake",
    )  # fmt: skip

    def __init__(self, stage: Runs, payload: Any, context: Context) -> None:
        self.stage = stage
        self.payload = payload
        self.context = context
        self.results: list[Result] | None = None
        self.error: BaseException | None = None
        self.done = False
        self.finished = threading.Event()
        self.slot: BatchSlot | None = None
        """The place of its rows in a batch, where that is known."""
        self.landed: deque[Task] | None = None
        """The finished task appends itself here, so that nobody has to poll all tasks in flight."""
        self.wake: threading.Event | None = None
        """Set when the task is finished; a waiter for any of several tasks shares it among them."""
        self._lock = threading.Lock()
        self.cancelled = False
        self.attempts = 0
        """How many workers died while running it."""
        self.started: float | None = None
        self.runs = 0
        """How many workers run it now: two while a slow one is raced."""

    def cancel(self) -> None:
        """Marks the task as no longer needed, and drops its results."""
        with self._lock:
            self.cancelled, self.results = True, None

    def finish(self, results: list[Result] | None, error: BaseException | None = None) -> None:
        """Sets the results or the error, unless another worker has done so before."""
        with self._lock:
            if self.done:
                return
            self.results, self.error, self.done = results, error, True
            if self.cancelled:
                self.results = None
        if self.landed is not None:
            self.landed.append(self)
        self.finished.set()
        if self.wake is not None:
            self.wake.set()

    def take(self) -> list[Result]:
        """Removes and returns the results: a worker that lost the race, or hangs, may keep the task
        itself for ever."""
        results, self.results = self.results, None
        assert results is not None
        return results

    def describe(self) -> str:
        """The rows of the task, for error messages."""
        return describe(self.payload)


def describe(payload: Any) -> str:
    """The rows of a stage's input, for error messages."""
    if isinstance(payload, Places | UnitRows):
        return payload.describe()
    if isinstance(payload, BatchValue):
        return f"the batch that begins with row {row_key(payload.id)}"
    if not len(payload):
        return "no rows"
    first, last = int(payload.ids[0]), int(payload.ids[-1])
    return f"rows {row_key(first)} to {row_key(last)}"


def execute(
    stage: Runs,
    payload: Any,
    context: Context,
    worker: Worker,
    allocate: Allocate = empty,
    slot: BatchSlot | None = None,
) -> list[Result]:
    """Runs a stage on one input and settles its columns; every backend does just this. An exception
    that is not the failure of a row becomes a `StepError`, the same on every backend."""
    try:
        with filling(slot):
            return [_settled(result, allocate) for result in stage.run(payload, context, worker)]
    except (KeyboardInterrupt, SilvaError):
        raise
    except BaseException as error:
        shown = f"{in_words(error)}\n{user_traceback(error).rstrip()}"
        raise StepError(f"`{stage.label}` failed on {describe(payload)}: {shown}") from error


def _settled(result: Result, allocate: Allocate) -> Result:
    block = result.block
    columns = {name: column.settled(allocate) for name, column in block.columns.items()}
    return replace(result, block=Block(columns, block.ids, block.places))


class Pool(Protocol):
    """Runs tasks: on the consumer's thread, on threads, in processes or on a cluster."""

    @property
    def width(self) -> int:
        """Tasks that can run at once; 0 if a task runs when it is waited for."""

    @property
    def ready(self) -> bool:
        """Whether at least one worker has started."""

    @property
    def complete(self) -> bool:
        """Whether all required workers have started."""

    def submit(self, task: Task) -> None: ...

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        """Returns once the task is finished; `on_idle(seconds waited)` is called now and then."""

    def help(self, task: Task, worker: Worker) -> None:
        """Runs a task on this thread if no worker has started yet."""

    def race(self, task: Task) -> None:
        """Gives a slow task to a second worker as well, where that is possible."""

    def use(self, count: int) -> None:
        """Limits the number of workers that take tasks."""

    def stacks(self) -> str:
        """The stack traces of all workers."""

    def close(self) -> None: ...
