"""How much of a piece of work holds Python's lock, measured while it runs.

A second thread wakes up every half millisecond. If the work releases the lock, it wakes in time; if the
work holds it, it must wait for Python's switch interval (5 ms) each time. The share of wake-ups that came
late is the share of time that the lock was held.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

_NAP = 0.0005


class GilProbe:
    """Measures while its `with` block runs; `share` and `seconds` add up over several."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._late = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def share(self) -> float:
        """Share of the time that the lock was held, 0 to 1."""
        return min(self._late / self.seconds, 1.0) if self.seconds else 1.0

    def __enter__(self) -> GilProbe:
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, name="silva-gil-probe", daemon=True)
        self._began = time.perf_counter()
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
        interval = sys.getswitchinterval()
        while not self._stop.is_set():
            before = time.perf_counter()
            time.sleep(_NAP)
            waited = time.perf_counter() - before
            if waited > interval * 0.8 and not self._stop.is_set():
                self._late += waited
