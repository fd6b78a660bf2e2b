"""The tasks of a stage that are in flight, in order, and what they hold.

The trainer's thread looks at it for every block. So tasks report that they have finished, and a
look handles those alone, however many are in flight.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from silva.run.pools.task import Pool, Task

T = TypeVar("T")
"""The trail that comes with an input."""


class Flight(Generic[T]):
    """A task in flight."""

    __slots__ = ("nbytes", "pool", "rows", "task", "trail")

    def __init__(self, trail: T, task: Task, pool: Pool, rows: int) -> None:
        self.trail = trail
        self.task = task
        self.pool = pool
        self.rows = rows
        self.nbytes: int | None = None
        """Bytes of its results; None until it was seen to have finished."""


class Window(Generic[T]):
    def __init__(self) -> None:
        self.landed: deque[Task] = deque()
        """Tasks that have finished since the latest look; the threads that ran them append here."""
        self._all: deque[Flight[T]] = deque()
        self._running: dict[Task, Flight[T]] = {}
        """Tasks that were not yet seen to have finished."""
        self.rows = 0
        self.running_rows = 0
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

    def add(self, flight: Flight[T]) -> None:
        """Adds a task. Its `landed` was set to the window's before it was submitted."""
        self._all.append(flight)
        self._running[flight.task] = flight
        self.rows += flight.rows
        self.running_rows += flight.rows

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
