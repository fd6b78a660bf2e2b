"""Requests that are answered within a program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from silva.errors import RowError
from silva.lifetime import Thread, close_at_exit, join_all
from silva.plan.node import Node
from silva.serve.engine import Engine, Outcome

Reply = dict[str, Any] | list[dict[str, Any]] | None


class Program:
    """An engine with an event loop of its own, for threads and for other loops."""

    def __init__(self, plan: Node) -> None:
        self._lock = threading.Lock()
        self._closed = True
        self._engine = Engine(plan)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(_live, "ask", (self._loop,))
        self._thread.start()
        self._closed = False
        close_at_exit(self)

    def ask(self, row: Mapping[str, Any], deadline: float) -> Reply:
        answer = self._engine.answer(row, deadline=deadline)
        return _reply(asyncio.run_coroutine_threadsafe(answer, self._loop).result())

    async def ask_async(self, row: Mapping[str, Any], deadline: float) -> Reply:
        answer = self._engine.answer(row, deadline=deadline)
        future = asyncio.run_coroutine_threadsafe(answer, self._loop)
        return _reply(await asyncio.wrap_future(future))

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        join_all([self._thread])
        self._engine.close()

    def __del__(self) -> None:
        self.close()


def _live(loop: asyncio.AbstractEventLoop) -> None:
    """Runs a loop to its end. The thread owns the loop: garbage collection may close the program on
    this very thread."""
    loop.run_forever()
    loop.close()


def _reply(outcome: Outcome) -> Reply:
    """The row of an outcome; a list of rows where a step explodes it."""
    if outcome.failures:
        failure = outcome.failures[0]
        raise RowError(
            f"`{failure.step}` failed on the request: {failure.error}\n{failure.traceback}",
            key=failure.key,
            step=failure.step,
        ) from failure.cause
    if outcome.dropped_by is not None or not outcome.rows:
        return None
    return outcome.rows[0] if not outcome.exploded else outcome.rows
