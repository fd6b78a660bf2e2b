"""How much of a piece of work holds Python's lock, measured while it runs.

A second thread asks for the lock every half millisecond. If the work releases it, the thread is
back in time; if the work holds it, the thread must wait for Python's switch interval (5 ms), or
until the work is done. The share of its time that it spent waiting is the share that the lock was
held.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

_NAP = 0.0005
_SLACK = 0.00025
"""Timers come this late by themselves."""


class GilProbe:
    """Measures while its `with` block runs; `share` and `seconds` add up over several."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._waited = 0.0
        self._watched = 0.0
        self._spans: list[tuple[float, float, bool]] = []
        """(from, until, the lock was held), of the latest `with` block."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def share(self) -> float:
        """Share of the time that the lock was held, 0 to 1."""
        return min(self._waited / self._watched, 1.0) if self._watched else 1.0

    def held(self, start: float, stop: float) -> tuple[float, float]:
        """Between two moments of the latest `with` block: seconds that the lock was held, and
        seconds in which anybody looked."""
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
        self._thread = threading.Thread(target=self._watch, name="silva-gil-probe", daemon=True)
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
            if late > _SLACK:  # while it slept the lock may have been held or not: that is left out
                self._waited += late
                self._watched += late
                self._spans.append((before + _NAP, before + _NAP + late, True))
            elif not self._stop.is_set():
                self._watched += _NAP
                self._spans.append((before, before + _NAP, False))
