"""Units of a chunked source, read ahead of need by a few threads, each unit's rows in order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from silva.errors import DeadlineError
from silva.run.threads import PAUSE, join_all, thread_stacks

_AHEAD = 4
"""Runs of rows (a few MiB each) that a unit may have waiting."""
_FAREWELL = 1.0
"""Seconds that closing waits for readers: one that hangs in a read cannot be ended, only left."""

Run = tuple[int, int, int, int | None]
"""(place in the order, unit, first row, end or None)."""


class UnitReader:
    """Reads the next units while the consumer is busy with this one."""

    def __init__(
        self,
        source: Any,
        columns: tuple[str, ...],
        runs: list[Run],
        width: int,
        deadline: float = 600.0,
    ) -> None:
        self._source, self._columns = source, columns
        self._runs = runs
        self._deadline = deadline
        self._changed = threading.Condition()
        self._buffers: dict[int, deque[Any]] = {}
        self._ended: set[int] = set()
        self._next = 0
        self._current = 0
        self._width = max(width, 1)
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"silva-reader-{i}", daemon=True)
            for i in range(min(self._width, len(runs)))
        ]

    def __iter__(self) -> Iterator[tuple[Run, Iterator[Any]]]:
        for thread in self._threads:
            thread.start()
        try:
            for i, run in enumerate(self._runs):
                yield run, self._take(i)
                with self._changed:
                    self._ended.discard(i)
                    self._buffers.pop(i, None)
                    self._current = i + 1
                    self._changed.notify_all()
        finally:
            self.close()

    def _take(self, i: int) -> Iterator[Any]:
        while True:
            with self._changed:
                self._await(i)
                if not self._buffers.get(i):
                    return
                item = self._buffers[i].popleft()
                self._changed.notify_all()
            if isinstance(item, BaseException):
                raise item
            yield item

    def _await(self, i: int) -> None:
        """Waits until a reader has rows of run `i`, or has ended it."""
        began = time.monotonic()
        while not self._buffers.get(i) and i not in self._ended:
            self._changed.wait(PAUSE)
            waited = time.monotonic() - began
            if waited > self._deadline:
                raise DeadlineError(
                    f"nothing came from {self._source.describe()} (unit {self._runs[i][1]}) for "
                    f"{waited:.0f} s (deadline={self._deadline:g}).\n{thread_stacks(self._threads)}"
                )

    def _work(self) -> None:
        while True:
            with self._changed:
                # a reader may run at most `width` units ahead of the one being consumed
                while self._next >= self._current + self._width + 1 and not self._closed:
                    self._changed.wait()
                if self._closed or self._next >= len(self._runs):
                    return
                i = self._next
                self._next += 1
                self._buffers[i] = deque()
            self._read(i)

    def _read(self, i: int) -> None:
        _, unit, start, _ = self._runs[i]
        try:
            for item in self._source.open(unit, start, self._columns):
                if not self._put(i, item):
                    return
        except BaseException as error:  # noqa: BLE001  raised again on the consumer's thread
            self._put(i, error)
        with self._changed:
            self._ended.add(i)
            self._changed.notify_all()

    def _put(self, i: int, item: Any) -> bool:
        with self._changed:
            while i in self._buffers and len(self._buffers[i]) >= _AHEAD and not self._closed:
                self._changed.wait()
            if self._closed or i not in self._buffers:
                return False
            self._buffers[i].append(item)
            self._changed.notify_all()
            return True

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        join_all(self._threads, _FAREWELL)
