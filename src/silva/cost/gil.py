"""The share of its time that a piece of work holds the GIL, sampled while it runs.

A second thread asks for the GIL every half millisecond. If the work releases it, the thread wakes
up in time; if the work holds it, the thread waits for Python's switch interval (5 ms), or until the
work is done. The share of its time that it spent waiting is the share that the GIL was held.

On a busy machine both threads also wait for a core. A probe without a core is late although the GIL
may be free, and finds the GIL free while the work, which would hold it, has no core. The system
counts both waits (`queued_seconds`), and neither is evidence: the first is taken from the time that
the GIL was held, the second from the time that it was free."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from silva.cost.machine import queued_seconds
from silva.lifetime import Thread

_NAP = 0.0005
"""Seconds between two questions whether the GIL is free."""
_SLACK = _NAP / 2
"""Seconds that a timer may be late by itself."""
WATCHED_SECONDS = sys.getswitchinterval()
"""The shortest sample that counts: after so long (5 ms), Python asks who holds the GIL for it."""


class GilProbe:
    """Measures while its `with` block runs; `share` and `seconds` add up over several."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._held = self._free = 0.0
        """Seconds in which the GIL was held and was free, of all `with` blocks."""
        self._spans: list[tuple[float, float, bool]] = []
        """(from, until, whether the GIL was held), of the latest `with` block."""
        self._believed = {True: 1.0, False: 1.0}
        """The share of its spans that is evidence, of those that were held and those that were
        not."""
        self._queued = 0.0
        """Seconds that the probe's own thread waited for a core."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def known(self) -> bool:
        """Whether there is enough evidence for a share."""
        return self._held + self._free >= WATCHED_SECONDS

    @property
    def share(self) -> float:
        """The share of the time that the GIL was held, 0 to 1; all of it while that is not
        known, as Python holds it."""
        return self._held / (self._held + self._free) if self.known else 1.0

    def held(self, start: float, stop: float) -> tuple[float, float]:
        """The seconds that the GIL was held and the seconds that were sampled, between two moments
        of the latest `with` block."""
        held = watched = 0.0
        for since, until, was_held in self._spans:
            both = (min(until, stop) - max(since, start)) * self._believed[was_held]
            if both > 0:
                watched += both
                held += both if was_held else 0.0
        return held, watched

    def __enter__(self) -> GilProbe:
        self._stop.clear()
        self._spans.clear()
        self._began, self._queued_before = time.perf_counter(), queued_seconds()
        self._thread = Thread(self._watch, "gil-probe")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self.seconds += time.perf_counter() - self._began
        queued = queued_seconds() - self._queued_before
        assert self._thread is not None
        self._thread.join()
        self._judge(self._queued, queued)

    def _judge(self, probe_queued: float, work_queued: float) -> None:
        """Adds the evidence of the latest `with` block, given the seconds that both threads waited
        for a core.

        >>> probe = GilProbe()
        >>> probe._spans = [(0.0, 0.030, True), (0.030, 0.050, False)]
        >>> probe._judge(0.0, 0.0)
        >>> round(probe.share, 2)
        0.6
        >>> probe = GilProbe()
        >>> probe._spans = [(0.0, 0.030, True), (0.030, 0.050, False)]
        >>> probe._judge(0.0, 0.020)  # it was free only while the work had no core
        >>> round(probe.share, 2)
        1.0
        """
        for was_held, queued in ((True, probe_queued), (False, work_queued)):
            seen = sum(until - since for since, until, held in self._spans if held == was_held)
            evidence = max(seen - queued, 0.0)
            self._believed[was_held] = evidence / seen if seen else 1.0
            if was_held:
                self._held += evidence
            else:
                self._free += evidence

    def _watch(self) -> None:
        queued = queued_seconds()
        while not self._stop.is_set():
            before = time.perf_counter()
            self._stop.wait(_NAP)
            late = time.perf_counter() - before - _NAP
            if late > _SLACK:  # whether the GIL was held during the nap is not known
                self._spans.append((before + _NAP, before + _NAP + late, True))
            elif not self._stop.is_set():
                self._spans.append((before, before + _NAP, False))
        self._queued = queued_seconds() - queued
