"""When a call to an endpoint is tried again, how long it waits, and when nobody tries any more.

Only what may pass by itself is tried again: no connection, a time-out, 408, 429 and 5xx. A retry
budget bounds the extra load: it grows with calls that succeed, so a dead endpoint is not hammered.
After several failures the circuit is open: calls wait until one of them was let through to see
whether the endpoint has come back. An endpoint that is full (429) is not ill: calls come back when
it says, which costs no budget.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_PAUSE = 0.25
"""Seconds before the first retry; each further pause is twice as long."""
_LONGEST_PAUSE = 20.0
_RETRY_STATUS = frozenset({408, 429, 500, 502, 503, 504, 529})
_SHARE = 0.2
"""Retries that each call which succeeds pays for."""
_SAVED = 10.0
"""Retries that the budget holds beside one for each call in flight: a fault that hits all of them
at once costs none of them its answer."""
_FAILURES = 5
"""Failures that open the circuit, each of a call that began after the one before was known."""
_WINDOW_SECONDS = 60.0
"""Seconds for which a failure counts."""
_OPEN_SECONDS = 5.0
"""Seconds after which one call is let through."""


def is_retried(status: int) -> bool:
    """Whether a reply with this status may be followed by a better one."""
    return status in _RETRY_STATUS


def pause(attempt: int, retry_after: float | None) -> float:
    """Seconds before the next attempt, counted from 0: what the endpoint asks for, otherwise a
    random part of an exponential back-off, so that clients do not come back together."""
    longest = min(_PAUSE * 2 ** min(attempt, 10), _LONGEST_PAUSE)
    drawn: float = longest * (0.5 + random.random() / 2)
    return drawn if retry_after is None else max(drawn, retry_after)


def retry_after(header: str | None, now: datetime | None = None) -> float | None:
    """The seconds of a Retry-After header, which is a number or a date; None for anything else.

    >>> retry_after("2.5")
    2.5
    >>> retry_after("Thu, 01 Jan 2026 00:00:30 GMT", datetime(2026, 1, 1, tzinfo=UTC))
    30.0
    """
    try:
        found = float(header or "")
    except ValueError:
        found = _until(header or "", now)
    return found if 0 <= found < float("inf") else None


def _until(date: str, now: datetime | None) -> float:
    try:
        then = parsedate_to_datetime(date)
    except ValueError:
        return -1.0
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max((then - (now or datetime.now(UTC))).total_seconds(), 0.0)


@dataclass
class Breaker:
    """The state of one endpoint, shared by all calls to it."""

    clock: Callable[[], float]
    concurrency: int = 1
    """Calls that are in flight at once."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _used: float = 0.0
    """Retries that were taken from the budget, and not paid for since."""
    _failed_at: deque[float] = field(default_factory=lambda: deque(maxlen=_FAILURES))
    """When failures happened that count."""
    _probe_at: float | None = None
    """When one call may see whether the endpoint is back; None while the circuit is closed."""
    _full_until: float = 0.0
    """When an endpoint that is full may be asked again."""
    _failing_since: float | None = None
    """The first failure after the last success."""

    def wait(self) -> float:
        """Seconds after which a call may ask again whether it may be made; 0: now.

        >>> now = [0.0]
        >>> breaker = Breaker(lambda: now[0])
        >>> for _ in range(8): breaker.failed(began=0.0)  # at once: one fault
        >>> breaker.wait()
        0.0
        >>> for at in (1.0, 2.0, 3.0, 4.0):
        ...     now[0] = at
        ...     breaker.failed(began=at)
        >>> breaker.wait()
        5.0
        >>> now[0] = 9.0
        >>> breaker.wait(), breaker.wait()  # one call alone
        (0.0, 5.0)
        """
        with self._lock:
            now = self.clock()
            if now < self._full_until:
                return self._full_until - now
            if self._probe_at is None:
                return 0.0
            if now < self._probe_at:
                return self._probe_at - now
            self._probe_at = now + _OPEN_SECONDS
            return 0.0

    def has_failed_for(self, seconds: float) -> bool:
        """Whether nothing has succeeded for so long."""
        with self._lock:
            since = self._failing_since
            return since is not None and self.clock() - since >= seconds

    def succeeded(self) -> bool:
        """Notes a call that went well; returns whether the circuit was open."""
        with self._lock:
            was_open = self._probe_at is not None
            self._probe_at = self._failing_since = None
            self._failed_at.clear()
            self._used = max(self._used - _SHARE, 0.0)
            return was_open

    def failed(self, began: float) -> None:
        """Notes a failure of a call that began then."""
        with self._lock:
            now = self.clock()
            if self._failing_since is None:
                self._failing_since = now
            if self._failed_at and began <= self._failed_at[-1]:
                return  # of the same fault as the one before
            self._failed_at.append(now)
            recent = sum(now - at <= _WINDOW_SECONDS for at in self._failed_at)
            if recent >= _FAILURES:
                self._probe_at = now + _OPEN_SECONDS

    def full(self, seconds: float) -> None:
        """Notes that the endpoint takes no more calls for so many seconds."""
        with self._lock:
            now = self.clock()
            if self._failing_since is None:
                self._failing_since = now
            self._full_until = max(self._full_until, now + seconds)

    def may_retry(self) -> bool:
        """Takes one retry from the budget; False if there is none."""
        with self._lock:
            if self._used + 1 > _SAVED + self.concurrency:
                return False
            self._used += 1
            return True
