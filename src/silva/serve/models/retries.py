"""When a call to an endpoint is tried again, how long it waits, and when nobody tries any more.

Only what may pass by itself is tried again: no connection, a time-out, 408, 429 and 5xx. A retry
budget bounds the extra load: it grows with calls that succeed, so a dead endpoint is not hammered.
After several failures in a row the circuit is open: calls fail at once, until one call is let
through to see whether the endpoint has come back.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

_PAUSE = 0.25
"""Seconds before the first retry; each further pause is twice as long."""
_LONGEST_PAUSE = 20.0
_RETRY_STATUS = frozenset({408, 429, 500, 502, 503, 504, 529})
_SHARE = 0.2
"""Retries that each call which succeeds pays for."""
_SAVED = 10.0
"""Retries that the budget holds at most, and at first."""
_FAILURES = 5
"""Failures in a row that open the circuit."""
_OPEN_SECONDS = 5.0
"""Seconds after which one call is let through."""


def is_retried(status: int) -> bool:
    """Whether a reply with this status may be followed by a better one."""
    return status in _RETRY_STATUS


def pause(attempt: int, retry_after: float | None) -> float:
    """Seconds before the next attempt, counted from 0: what the endpoint asks for, otherwise a
    random part of an exponential back-off, so that clients do not come back together."""
    longest = min(_PAUSE * 2**attempt, _LONGEST_PAUSE)
    drawn: float = longest * (0.5 + random.random() / 2)
    return drawn if retry_after is None else max(drawn, retry_after)


@dataclass
class Breaker:
    """The state of one endpoint, shared by all calls to it."""

    clock: Callable[[], float]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _budget: float = _SAVED
    _failures: int = 0
    _probe_at: float = 0.0
    """When one call may see whether the endpoint has come back."""

    def admits(self) -> bool:
        """Whether a call may be made now.

        >>> now = [0.0]
        >>> breaker = Breaker(lambda: now[0])
        >>> for _ in range(5): breaker.failed()
        >>> breaker.admits()
        False
        >>> now[0] = 6.0
        >>> breaker.admits(), breaker.admits()  # one call alone
        (True, False)
        """
        with self._lock:
            if self._failures < _FAILURES:
                return True
            if self.clock() < self._probe_at:
                return False
            self._probe_at = self.clock() + _OPEN_SECONDS
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._failures = 0
            self._budget = min(self._budget + _SHARE, _SAVED)

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            if self._failures >= _FAILURES:
                self._probe_at = self.clock() + _OPEN_SECONDS

    def may_retry(self) -> bool:
        """Takes one retry from the budget; False if there is none."""
        with self._lock:
            if self._budget < 1:
                return False
            self._budget -= 1
            return True
