"""The tasks of a stage that are in flight, in order, and what they hold.

It is looked at for every block, on the trainer's thread: what is known of a task that has finished
is counted once, and not at each look.
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
        self._all: deque[Flight] = deque()
        self._running: list[Flight] = []
        """Those that were not seen to have finished, in order."""
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
        self._all.append(flight)
        self._running.append(flight)
        self.rows += flight.rows
        self.running_rows += flight.rows

    def look(self) -> None:
        """Takes note of what has finished since."""
        finished = [flight for flight in self._running if flight.task.finished.is_set()]
        for flight in finished:
            results = flight.task.results or ()
            flight.nbytes = sum(result.block.nbytes for result in results)
            self._land(flight)
            self.done_bytes += flight.nbytes

    def take(self) -> Flight:
        """The first in the order, which is in flight no more."""
        flight = self._all.popleft()
        self.rows -= flight.rows
        if flight.nbytes is None:
            self._land(flight)
        else:
            self.done_bytes -= flight.nbytes
        return flight

    def _land(self, flight: Flight) -> None:
        self._running.remove(flight)
        self.running_rows -= flight.rows

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
            flight.task.cancel()
