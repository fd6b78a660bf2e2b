"""Requests that are answered within a program."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from silva.errors import PlanError, RowError
from silva.lifetime import Thread, close_at_exit, join_all
from silva.plan.arguments import duration
from silva.plan.node import Node
from silva.serve.engine.engine import Engine, Late, Outcome
from silva.serve.engine.interrupted import passing_on

Reply = dict[str, Any] | list[dict[str, Any]] | None

_GRACE = 1.0
"""Seconds that the event loop gets beyond the deadline of a request, to say what it waits for."""


class Program:
    """An engine with an event loop of its own, for threads and for other loops."""

    def __init__(self, plan: Node) -> None:
        self._lock = threading.Lock()
        self._closed = True
        self._process = os.getpid()
        self._engine = Engine(plan)
        with passing_on():
            self._engine.open()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(_live, "ask", (self._loop,))
        self._thread.start()
        self._closed = False
        close_at_exit(self)

    @property
    def is_here(self) -> bool:
        """Whether its threads run in this process, which may be a fork of the one that made it."""
        return self._process == os.getpid()

    def ask(self, row: Mapping[str, Any], deadline: float) -> Reply:
        future = self._begin(row, deadline)
        try:
            with passing_on():
                return _reply(future.result(deadline + _GRACE))
        except TimeoutError:
            if future.done():  # a step raised it
                raise
            raise Late("a step on the event loop") from None
        finally:
            future.cancel()

    async def ask_async(self, row: Mapping[str, Any], deadline: float) -> Reply:
        future = asyncio.wrap_future(self._begin(row, deadline))
        try:
            await asyncio.wait((future,), timeout=deadline + _GRACE)
            if not future.done():
                raise Late("a step on the event loop")
            with passing_on():
                return _reply(future.result())
        finally:
            future.cancel()

    def _begin(self, row: Mapping[str, Any], deadline: float) -> Future[Outcome]:
        duration("ask(deadline=…)", deadline, finite=True)
        thread = threading.current_thread()
        if thread is self._thread or self._engine.runs_on(thread):
            raise PlanError(
                "a step asks the pipeline that it is part of, which would wait for itself: let the "
                "step ask another pipeline, or call the function that you need"
            )
        answer = self._engine.answer(row, deadline=deadline)
        return asyncio.run_coroutine_threadsafe(answer, self._loop)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self.is_here:
            self._loop.call_soon_threadsafe(self._loop.stop)
            join_all([self._thread])
            self._engine.close()

    def __del__(self) -> None:
        self.close()


def opening() -> threading.Lock:
    """The lock under which a pipeline gets its program: threads that ask at once open one."""
    return _opening


_opening = threading.Lock()


def _forget() -> None:
    """The thread that held the lock is not in a forked child."""
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _live(loop: asyncio.AbstractEventLoop) -> None:
    """Runs a loop to its end. The thread owns the loop: garbage collection may close the program on
    this very thread."""
    loop.run_forever()
    loop.close()


def _reply(outcome: Outcome) -> Reply:
    """The row of an outcome; a list of rows where a step explodes it."""
    if outcome.dropped_by is not None:
        return None
    if outcome.failures and not outcome.substituted:
        failure = outcome.failures[0]
        told = failure.traceback or failure.error
        if told.startswith("Traceback"):  # its first line does not say what happened
            told = f"{failure.error}\n{told}"
        raise RowError(
            f"`{failure.step}` failed on the request: {told}",
            key=failure.key,
            step=failure.step,
        ) from failure.cause
    return outcome.rows if outcome.exploded else outcome.rows[0]
