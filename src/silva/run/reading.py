"""Prefetches units of a chunked source by a few threads; the rows of each unit stay in order.

Units may be a few KiB or many MiB. A reader goes on to further units while few bytes are waiting.
Readers and consumer wake each other only if the other waits: a wake-up per small unit would cost
more than reading it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from silva.errors import DeadlineError, LoaderError
from silva.io.source import Chunked
from silva.lifetime import Thread, join_all
from silva.run.pools.threads import PAUSE, thread_stacks

_AHEAD = 4
"""Blocks (of a few MiB each) of one unit that may wait."""
_AHEAD_BYTES = 2 << 20
"""Bytes of small units that may wait."""

Run = tuple[int, int, int, int | None]
"""(position of the unit in the order, unit, first row, end or None)."""


class UnitReader:
    """Reads the next units while the consumer is busy with this one."""

    def __init__(
        self,
        source: Chunked,
        columns: tuple[str, ...],
        runs: list[Run],
        width: int,
        deadline: float = 600.0,
    ) -> None:
        self._source, self._columns = source, columns
        self._runs = runs
        self._deadline = deadline
        lock = threading.Lock()
        self._filled, self._room = threading.Condition(lock), threading.Condition(lock)
        """Wake the consumer, and the readers."""
        self._waits_for = -1
        """The run that the consumer waits for; -1 while it does not wait."""
        self._waiting = 0
        """Bytes that were read and not taken."""
        self._buffers: dict[int, deque[tuple[Any, int]]] = {}
        self._ended: set[int] = set()
        self._next = 0
        self._current = 0
        self._width = max(width, 1)
        self._closed = False
        self._threads = [
            Thread(self._work, f"reader-{i}") for i in range(min(self._width, len(runs)))
        ]

    def __iter__(self) -> Iterator[tuple[Run, Iterator[Any]]]:
        for thread in self._threads:
            thread.start()
        try:
            for i, run in enumerate(self._runs):
                yield run, self._take(i)
                with self._room:
                    self._ended.discard(i)
                    left = self._buffers.pop(i, ())
                    self._waiting -= sum(size for _, size in left)
                    self._current = i + 1
                    if left or self._is_near():
                        self._room.notify_all()
        finally:
            self.close()

    def _take(self, i: int) -> Iterator[Any]:
        while True:
            with self._filled:
                self._await(i)
                buffer = self._buffers.get(i)
                if not buffer:
                    return
                item, size = buffer.popleft()
                before, self._waiting = self._waiting, self._waiting - size
                half = _AHEAD_BYTES // 2
                if before >= half > self._waiting or len(buffer) == _AHEAD - 1:
                    self._room.notify_all()
            if isinstance(item, BaseException):
                raise item
            yield item

    def _await(self, i: int) -> None:
        """Waits until a reader has rows of run `i`, or has reached its end."""
        began = time.monotonic()
        while not self._buffers.get(i) and i not in self._ended:
            if self._closed:
                raise LoaderError("the loader was closed while it was being read")
            self._waits_for = i
            self._filled.wait(PAUSE)
            self._waits_for = -1
            waited = time.monotonic() - began
            if waited > self._deadline:
                raise DeadlineError(
                    f"nothing came from {self._source.describe()} (unit {self._runs[i][1]}) for "
                    f"{waited:.0f} s (deadline={self._deadline:g}).\n{thread_stacks(self._threads)}"
                )

    def _is_near(self) -> bool:
        """Whether the next unit is read regardless of the bytes that wait."""
        return self._next < self._current + self._width + 1

    def _may_start(self) -> bool:
        """Whether a reader may begin the next unit."""
        return self._is_near() or self._waiting < _AHEAD_BYTES

    def _work(self) -> None:
        while True:
            with self._room:
                while not self._closed and self._next < len(self._runs) and not self._may_start():
                    self._room.wait()
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
                if not self._put(i, item, sum(column.nbytes for column in item.values())):
                    return
        except BaseException as error:  # noqa: BLE001  raised again on the consumer's thread
            self._put(i, error, _AHEAD_BYTES)  # what is beyond it can wait
        with self._filled:
            self._ended.add(i)
            self._tell(i)

    def _put(self, i: int, item: Any, size: int) -> bool:
        with self._room:
            while i in self._buffers and len(self._buffers[i]) >= _AHEAD and not self._closed:
                self._room.wait()
            if self._closed or i not in self._buffers:
                return False
            self._buffers[i].append((item, size))
            self._waiting += size
            self._tell(i)
            return True

    def _tell(self, i: int) -> None:
        if self._waits_for == i:
            self._filled.notify()

    def close(self) -> None:
        with self._room:
            self._closed = True
            self._room.notify_all()
            self._filled.notify_all()
        join_all(self._threads)
