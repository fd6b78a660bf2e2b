"""Until when what runs now is awaited, as a call of a model can ask.

The engine runs each batch under a `Limit`. A step that waits for something far away takes its time
from `limit()`, which every thread of a step has, and ends early once nobody awaits the batch.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar


class Limit:
    """The time that a batch has, and whether anybody still awaits it. Threads may share it."""

    def __init__(self, until: float) -> None:
        """`until`: the latest deadline of its requests, on the clock `time.monotonic`."""
        self._until = until
        self._lock = threading.Lock()
        self._given_up = False
        self._calls: list[Callable[[], None]] = []

    def left(self) -> float:
        """Seconds until the last request that awaits the batch is given up; 0.0 once all are.

        >>> limit = Limit(time.monotonic() + 10)
        >>> 9 < limit.left() <= 10
        True
        >>> limit.give_up()
        >>> limit.left()
        0.0
        """
        return 0.0 if self._given_up else max(self._until - time.monotonic(), 0.0)

    @property
    def is_given_up(self) -> bool:
        """Whether nobody awaits the batch any more."""
        return self._given_up

    def when_given_up(self, call: Callable[[], None]) -> None:
        """Calls `call` once nobody awaits the batch, at once if that is so already. It is called on
        the thread of the event loop, and must neither wait nor raise."""
        with self._lock:
            if not self._given_up:
                self._calls.append(call)
                return
        call()

    def extend(self, until: float) -> None:
        """One more request awaits the batch."""
        self._until = max(self._until, until)

    def give_up(self) -> None:
        with self._lock:
            self._given_up = True
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    @contextlib.contextmanager
    def applies(self) -> Iterator[None]:
        """Runs a block under this limit."""
        token = _limit.set(self)
        try:
            yield
        finally:
            _limit.reset(token)


_limit: ContextVar[Limit | None] = ContextVar("silva_limit", default=None)


def limit() -> Limit | None:
    """The limit of the batch that runs on this thread; None offline."""
    return _limit.get()
