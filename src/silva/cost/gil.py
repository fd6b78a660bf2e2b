"""The share of its time that a piece of work holds the GIL, sampled while it runs.

A second thread asks for the GIL every half millisecond. If the work releases it, the thread wakes
up in time; if the work holds it, the thread waits for Python's switch interval (5 ms), or until the
work is done. The share of its time that it spent waiting is the share that the GIL was held."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from silva.lifetime import Thread

_NAP = 0.0005
_SLACK = 0.00025
"""Seconds that a timer is late by itself."""


class GilProbe:
    """Measures while its `with` block runs; `share` and `seconds` add up over several."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._waited = 0.0
        self._watched = 0.0
        self._spans: list[tuple[float, float, bool]] = []
        """(from, until, whether the GIL was held), of the latest `with` block."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def share(self) -> float:
        """The share of the time that the GIL was held, 0 to 1."""
        return min(self._waited / self._watched, 1.0) if self._watched else 1.0

    def held(self, start: float, stop: float) -> tuple[float, float]:
        """The seconds that the GIL was held and the seconds that were sampled, between two moments
        of the latest `with` block."""
        held = watched = 0.0
        for since, until, was_held in self._spans:
            both = min(until, stop) - max(since, start)
            if both > 0:
                watched += both
                held += both if was_held else 0.0
        return held, watched

    def __enter__(self) -> GilProbe:
        self._stop.clear()
        self._spans.clear()
        self._began = time.perf_counter()
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
        assert self._thread is not None
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            before = time.perf_counter()
            self._stop.wait(_NAP)
            late = time.perf_counter() - before - _NAP
            if late > _SLACK:  # whether the GIL was held during the nap is not known
                self._waited += late
                self._watched += late
                self._spans.append((before + _NAP, before + _NAP + late, True))
            elif not self._stop.is_set():
                self._watched += _NAP
                self._spans.append((before, before + _NAP, False))
