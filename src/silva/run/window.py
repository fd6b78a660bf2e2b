"""The tasks of a stage that are in flight, in order, and what they hold.

It is looked at for every block, on the trainer's thread. So tasks say themselves that they have
finished, and a look takes note of those alone, however many are in flight.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from silva.run.task import Pool, Task


class Flight:
    """A task on its way."""

    __slots__ = ("nbytes", "pool", "rows", "task", "trail")

    def __init__(self, trail: Any, task: Task, pool: Pool, rows: int) -> None:
        self.trail = trail
        self.task = task
        self.pool = pool
        self.rows = rows
        self.nbytes: int | None = None
        """Of its results; None until it was seen to have finished."""


class Window:
    def __init__(self) -> None:
        self.landed: deque[Task] = deque()
        """Tasks that have finished since the latest look, put there by whatever thread they did on.
        """
        self._all: deque[Flight] = deque()
        self._running: dict[Task, Flight] = {}
        """Those that were not seen to have finished."""
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

    def add(self, flight: Flight) -> None:
        """Of a task whose `landed` is the window's, from before it was given to anybody."""
        self._all.append(flight)
        self._running[flight.task] = flight
        self.rows += flight.rows
        self.running_rows += flight.rows

    def look(self) -> None:
        """Takes note of what has finished since."""
        while self.landed:
            task = self.landed.popleft()
            flight = self._running.pop(task, None)
            if flight is None:
                continue  # it was waited for and taken
            flight.nbytes = sum(result.block.nbytes for result in task.results or ())
            self.running_rows -= flight.rows
            self.done_bytes += flight.nbytes

    def take(self) -> Flight:
        """The first in the order, which is in flight no more."""
        flight = self._all.popleft()
        self.rows -= flight.rows
        if flight.nbytes is None:
            del self._running[flight.task]
            self.running_rows -= flight.rows
        else:
            self.done_bytes -= flight.nbytes
        return flight

    def bring_forward(self) -> bool:
        """Puts a task first that has finished; whether there is one."""
        self.look()
        for i, flight in enumerate(self._all):
            if flight.nbytes is not None:
                del self._all[i]
                self._all.appendleft(flight)
                return True
        return False

    @property
    def first(self) -> Flight:
        return self._all[0]

    def trails(self) -> list[Any]:
        return [flight.trail for flight in self._all]

    def cancel(self) -> None:
        """Nobody wants them any more."""
        for flight in self._all:
            flight.task.landed = None
            flight.task.cancel()
        self.landed.clear()  # tasks in it know it: the garbage collector alone would end that
