"""All runs of a service: a request finds its run or starts one; runs without readers end.

A reader (a name at an address) has one run: when it asks for another stream, it leaves the run that
it had. A run without readers ends. When the maximum number of runs is reached, one run ends for the
new one: the least recently used run of the address that has the most. So a reader that asks for
many streams gets in nobody's way but its own. Readers of a run that was ended continue in another
run from where they were, as after any interruption.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from silva.errors import ServiceError
from silva.loader import Loader
from silva.service.shared_run import SharedRun, key_of
from silva.service.wire import BatchRequest, StreamKey

Begin = Callable[[StreamKey, dict[str, Any]], Loader]
"""Makes a loader of a stream that continues from a state."""


class _StreamRuns:
    """The runs of one stream. A request holds the lock while it looks for a run, so that two
    requests for the same batches do not start two runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs: list[SharedRun] = []
        self.users = 0
        """The number of requests that look for a run now."""


class SharedRuns:
    """Finds, starts and ends the runs of a service."""

    def __init__(
        self, begin: Begin, *, most: int, memory: int, patience: float, idle: float
    ) -> None:
        self._loader = begin
        self._most, self._memory = most, memory
        self._patience, self._idle = patience, idle
        self._lock = threading.Lock()
        """Guards the lists; never held while a run starts or ends."""
        self._streams: dict[StreamKey, _StreamRuns] = {}
        self._beginning = 0
        self._closed = False

    def all(self) -> list[tuple[StreamKey, SharedRun]]:
        with self._lock:
            return [(stream, run) for stream, mine in self._streams.items() for run in mine.runs]

    def find(self, stream: StreamKey, request: BatchRequest, address: str) -> tuple[SharedRun, int]:
        """A run that keeps or makes the batch after this state, and the number of that batch. If
        there is none, it is started."""
        with self._lock:
            mine = self._streams.setdefault(stream, _StreamRuns())
            mine.users += 1
        try:
            with mine.lock:
                found = self._running(mine, request) or (
                    self._begin(stream, mine, request, address),
                    0,
                )
        finally:
            with self._lock:
                mine.users -= 1
                self._forget_unused(stream, mine)
        for _, run in self.all():
            if run is not found[0]:
                run.leave(reader_of(request, address))
        return found

    def _running(self, mine: _StreamRuns, request: BatchRequest) -> tuple[SharedRun, int] | None:
        key = key_of(request.state)
        with self._lock:
            runs = list(mine.runs)
        for run in runs:
            number = run.number_of(key)
            if number is not None:
                return run, number
        if request.exact or not runs:
            return None
        run = max(runs, key=lambda run: run.made)
        return run, run.oldest

    def _begin(
        self, stream: StreamKey, mine: _StreamRuns, request: BatchRequest, address: str
    ) -> SharedRun:
        self._make_room(address)
        try:
            loader = self._loader(stream, request.state)
            run = SharedRun(loader, stream.parts, self._room, self._patience, self._idle, address)
        finally:
            with self._lock:
                self._beginning -= 1
        with self._lock:
            closed = self._closed
            if not closed:
                mine.runs.append(run)
        if closed:
            run.close()
            raise ServiceError("the service is being closed")
        run.start()
        return run

    def _make_room(self, address: str) -> None:
        """Counts a run that starts; ends another one first if there are too many."""
        with self._lock:
            if self._closed:
                raise ServiceError("the service is being closed")
            runs = [run for mine in self._streams.values() for run in mine.runs]
            victim = None
            if len(runs) + self._beginning >= self._most:
                victim = _least_wanted(runs, address)
                if victim is None:
                    raise ServiceError(
                        f"the service already has {self._most} runs, and readers wait for all of "
                        "them: allow more with Service(…, runs=…)"
                    )
                self._remove(victim)
            self._beginning += 1
        if victim is not None:
            victim.close()

    def _room(self) -> int:
        """The memory of each run, in bytes."""
        return self._memory // max(1, len(self.all()))

    def end(self, run: SharedRun) -> None:
        with self._lock:
            self._remove(run)
        run.close()

    def _remove(self, run: SharedRun) -> None:
        for stream, mine in list(self._streams.items()):
            if run in mine.runs:
                mine.runs.remove(run)
                self._forget_unused(stream, mine)

    def _forget_unused(self, stream: StreamKey, mine: _StreamRuns) -> None:
        if not mine.runs and not mine.users:
            self._streams.pop(stream, None)

    def end_unwanted(self) -> None:
        """Ends runs without readers."""
        for _, run in self.all():
            if run.is_idle(time.monotonic()):
                self.end(run)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        for _, run in self.all():
            self.end(run)


def reader_of(request: BatchRequest, address: str) -> str:
    """The name of a reader; the same name at another address is another reader."""
    return f"{request.reader} at {address}"


def _least_wanted(runs: list[SharedRun], address: str) -> SharedRun | None:
    """The run that ends when a run starts for a reader at this address. None if readers wait for
    every run, and no address has more runs than this one would have."""
    held = Counter(run.address for run in runs)
    fair = [run for run in runs if held[run.address] > held[address] + 1 or not run.is_waited_for]
    return min(
        fair,
        key=lambda run: (-held[run.address], run.is_waited_for, run.last_request),
        default=None,
    )
