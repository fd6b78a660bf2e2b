"""Tasks, each one input of a stage; the protocol of pools, which run them; and the tasks of a stage
that are in flight."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Generic, TypeVar

from silva.columns import Block, empty
from silva.columns.allocation import BatchSlot, filling
from silva.columns.column import Allocate
from silva.cost.machine import queued_seconds
from silva.errors import SilvaError, StepError
from silva.physical.stage.batch_steps import BatchStage, CollateStage
from silva.physical.stage.batch_value import BatchValue
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context, row_key
from silva.physical.stage.raised import in_words, user_traceback
from silva.physical.stage.read import Places, UnitRows
from silva.physical.stage.stage import Result, Runs, Stage
from silva.plan.function import Function

RowsPayload = Places | UnitRows | Block
"""The input of a task of rows: those that a worker reads itself, or a block."""
Payload = RowsPayload | BatchValue


class Task:
    """A stage, one input, and later its results: one, or several consecutive ones."""

    __slots__ = (
        "_lock", "attempts", "cancelled", "context", "done", "error", "finished", "landed",
        "payload", "results", "runs", "slot", "stage", "started", "wake",
    )  # fmt: skip

    def __init__(
        self,
        stage: Runs,
        payload: Payload,
        context: Context,
        landed: deque[Task] | None = None,
        wake: threading.Event | None = None,
    ) -> None:
        self.stage = stage
        self.payload = payload
        self.context = context
        self.results: list[Result] | None = None
        self.error: BaseException | None = None
        self.done = False
        self.finished = threading.Event()
        self.slot: BatchSlot | None = None
        """The place of its rows in a batch, where that is known."""
        self.landed = landed
        """The finished task appends itself here, so that nobody has to poll all tasks in flight."""
        self.wake = wake
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


def describe(payload: Payload) -> str:
    """The rows of a stage's input, for error messages."""
    if isinstance(payload, Places | UnitRows):
        return payload.describe()
    if isinstance(payload, BatchValue):
        return f"the batch that begins with row {row_key(payload.id)}"
    if not len(payload):
        return "no rows"
    first, last = int(payload.ids[0]), int(payload.ids[-1])
    return f"rows {row_key(first)} to {row_key(last)}"


def functions_of(stage: Runs) -> list[Function]:
    """The functions of the user's that a stage calls."""
    called: list[object] = []
    match stage:
        case Stage():
            called += [step.runs for step in stage.steps]
        case BatchStage():
            called += [node.runs for node in stage.nodes]
        case CollateStage():
            called.append(stage.function)
    return [function for function in called if isinstance(function, Function)]


def execute(
    stage: Runs,
    payload: Payload,
    context: Context,
    worker: Worker,
    allocate: Allocate = empty,
    slot: BatchSlot | None = None,
) -> list[Result]:
    """Runs a stage on one input and settles its columns; every backend does just this. An exception
    that is not the failure of a row becomes a `StepError`, the same on every backend."""
    results: list[Result] = []
    queued = queued_seconds()
    try:
        with filling(slot):
            for result in stage.run(payload, context, worker):
                before, queued = queued, queued_seconds()
                results.append(_settled(result, allocate, queued - before))
        return results
    except (KeyboardInterrupt, SilvaError):
        raise
    except BaseException as error:
        shown = f"{in_words(error)}\n{user_traceback(error).rstrip()}"
        raise StepError(f"`{stage.label}` failed on {describe(payload)}: {shown}") from error


def _settled(result: Result, allocate: Allocate, queued: float) -> Result:
    block = result.block
    columns = {name: column.settled(allocate) for name, column in block.columns.items()}
    return replace(result, block=Block(columns, block.ids, block.places), queued=queued)


class Pool:
    """Runs tasks: on the consumer's thread, on threads, in processes or on a cluster. Methods
    that a pool does not need do nothing."""

    width: int = 0
    """Tasks that can run at once; 0 if a task runs when it is waited for."""
    given: int = 1
    """Tasks that a worker has at a time, with the memory for their results."""

    @property
    def ready(self) -> bool:
        """Whether at least one worker has started."""
        return True

    @property
    def complete(self) -> bool:
        """Whether all required workers have started."""
        return True

    def start(self) -> None:
        """Starts the workers."""

    def submit(self, task: Task) -> None:
        """Adds a task."""

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        """Returns once the task is finished; `on_idle(seconds waited)` is called now and then."""
        raise NotImplementedError

    def help(self, task: Task, worker: Worker) -> None:
        """Runs a task on this thread if no worker has started yet."""

    def race(self, task: Task) -> None:
        """Gives a slow task to a second worker as well, where that is possible."""

    def use(self, count: int) -> None:
        """Limits the number of workers that take tasks."""

    def free_bytes(self) -> int:
        """Bytes of shared memory that waits for its next use."""
        return 0

    def release_free(self, most: float) -> None:
        """Releases shared memory that waits for its next use, until `most` bytes are left."""

    def release_freed_memory(self) -> None:
        """Releases memory that the heaps of workers on this machine keep, those of this process
        apart."""

    def processes(self) -> list[int]:
        """The process ids of workers that silva has started."""
        return []

    def stacks(self) -> str:
        """The stack traces of all workers."""
        return ""

    def close(self) -> None:
        """Ends the workers."""


class TaskQueue:
    """The tasks of a pool that wait for a worker. Its lock, `changed`, also guards which worker has
    which task."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.tasks: deque[Task] = deque()
        self.broken: Exception | None = None
        """The reason why no worker can be started any more."""

    def submit(self, task: Task, everybody: bool = False) -> None:
        """Adds a task, and wakes one waiting thread or `everybody`."""
        with self.changed:
            if self.broken is not None:
                raise self.broken
            self.tasks.append(task)
            self.changed.notify_all() if everybody else self.changed.notify()

    def run_here(self, task: Task, worker: Worker) -> None:
        """Runs a task on this thread, unless a worker has it."""
        with self.changed:
            if task not in self.tasks:
                return
            self.tasks.remove(task)
        task.finish(execute(task.stage, task.payload, task.context, worker))

    def next(self, may_take: Callable[[Task], bool] = lambda task: True) -> Task | None:
        """Removes and returns the first task that is still needed; None if there is none, or the
        first one may not be taken. The caller holds the lock."""
        while self.tasks and may_take(self.tasks[0]):
            task = self.tasks.popleft()
            if not (task.cancelled or task.finished.is_set()):
                return task
        return None

    def give_back(self, tasks: Iterable[Task]) -> None:
        """Puts tasks that a worker had to the front, unless another one has or had them."""
        with self.changed:
            back = [t for t in tasks if not t.finished.is_set() and not t.runs]
            self.tasks.extendleft(t for t in reversed(back) if t not in self.tasks)
            self.changed.notify_all()

    def give_up(self, error: Exception, given: list[Task]) -> None:
        """Fails all tasks, now and later; `given` are those that workers have."""
        with self.changed:
            self.broken = error
            tasks = [*given, *self.tasks]
            self.tasks.clear()
        for task in tasks:
            task.finish(None, error)


T = TypeVar("T")
"""The trail that comes with an input."""


class Flight(Generic[T]):
    """A task in flight."""

    __slots__ = ("input_bytes", "nbytes", "pool", "rows", "task", "trail")

    def __init__(self, trail: T, task: Task, pool: Pool, rows: int) -> None:
        self.trail = trail
        self.task = task
        self.pool = pool
        self.rows = rows
        self.input_bytes = task.payload.nbytes if isinstance(task.payload, Block) else 0
        """Bytes of a block that it was given, which it keeps until its results are taken."""
        self.nbytes: int | None = None
        """Bytes of its results; None until it was seen to have finished."""


class TasksInFlight(Generic[T]):
    """The tasks of a stage that are in flight, in order, and what they hold.

    The trainer's thread looks at it for every block. So tasks report that they have finished, and a
    look handles those alone, however many are in flight.
    """

    def __init__(self) -> None:
        self.landed: deque[Task] = deque()
        """Tasks that have finished since the latest look; the threads that ran them append here."""
        self._all: deque[Flight[T]] = deque()
        self._running: dict[Task, Flight[T]] = {}
        """Tasks that were not yet seen to have finished."""
        self.rows = 0
        self.running_rows = 0
        self.input_bytes = 0
        self.done_bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def ready(self) -> int:
        """Rows of tasks that had finished at the latest look."""
        return self.rows - self.running_rows

    @property
    def done(self) -> int:
        """Tasks that had finished at the latest look."""
        return len(self._all) - len(self._running)

    def held(self, bytes_per_row: float, more_rows: int = 0, at_once: int = 0) -> float:
        """About how many bytes are in flight, with a task of `more_rows` more. Results that have
        not arrived count as `bytes_per_row` per row; while that is unknown (0), as many bytes as
        their inputs have. Those of tasks that run count twice, of which there may be `at_once`: a
        worker has the rows that its functions made beside the columns that it makes of them."""
        running = (self.running_rows + more_rows) * bytes_per_row
        expected = running if bytes_per_row else self.input_bytes
        tasks = len(self._running) + (more_rows > 0)
        twice = expected * at_once / max(at_once, tasks, 1)
        return self.input_bytes + self.done_bytes + expected + twice

    def to_come(self, bytes_per_row: float, at_once: int) -> float:
        """About how many of these bytes are those of tasks that no worker has, if workers have
        `at_once`: free memory is there for their results."""
        tasks = max(len(self._running), 1)
        return self.running_rows * bytes_per_row * max(tasks - at_once, 0) / tasks

    def add(self, flight: Flight[T]) -> None:
        """Adds a task. Its `landed` was set to this object's before it was submitted."""
        self._all.append(flight)
        self._running[flight.task] = flight
        self.rows += flight.rows
        self.running_rows += flight.rows
        self.input_bytes += flight.input_bytes

    def look(self) -> None:
        """Handles the tasks that have finished since the latest look."""
        while self.landed:
            task = self.landed.popleft()
            flight = self._running.pop(task, None)
            if flight is None:
                continue  # it was waited for and taken
            flight.nbytes = sum(result.block.nbytes for result in task.results or ())
            self.running_rows -= flight.rows
            self.done_bytes += flight.nbytes

    def take(self) -> Flight[T]:
        """Removes the first task and returns it."""
        flight = self._all.popleft()
        self.rows -= flight.rows
        self.input_bytes -= flight.input_bytes
        if flight.nbytes is None:
            del self._running[flight.task]
            self.running_rows -= flight.rows
        else:
            self.done_bytes -= flight.nbytes
        return flight

    def bring_forward(self) -> bool:
        """Moves a finished task to the front; False if there is none."""
        self.look()
        for i, flight in enumerate(self._all):
            if flight.nbytes is not None:
                del self._all[i]
                self._all.appendleft(flight)
                return True
        return False

    @property
    def first(self) -> Flight[T]:
        return self._all[0]

    def trails(self) -> list[T]:
        return [flight.trail for flight in self._all]

    def cancel(self) -> None:
        """Cancels all tasks."""
        for flight in self._all:
            flight.task.landed = None
            flight.task.cancel()
        self.landed.clear()  # tasks in it know it: the garbage collector alone would end that
