"""The pools that need no second process: inline and threads."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable

from silva.errors import LoaderError
from silva.lifetime import Thread, join_all
from silva.physical.stage.call import Worker
from silva.run.pools.task import Pool, Task, execute

PAUSE = 0.2
"""Seconds between two checks of a wait: is a worker dead, is the deadline over?"""


class InlinePool(Pool):
    """Runs a task on the consumer's thread when its result is asked for, so that breakpoints
    work."""

    def __init__(self) -> None:
        self._worker = Worker(shares_generators=False)

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        if not task.finished.is_set():
            task.finish(
                execute(task.stage, task.payload, task.context, self._worker, slot=task.slot)
            )


class ThreadPool(Pool):
    """Worker threads that take tasks in the order in which they were submitted. Those beyond the
    first `count` are started when they are first used."""

    def __init__(self, count: int, most: int) -> None:
        self.width = most
        self._owner = os.getpid()
        self._tasks = _Tasks(count)
        self._count = count
        self._threads: list[Thread] = []
        self._starting = threading.Lock()

    def start(self) -> None:
        self._start(self._count)

    def _start(self, count: int) -> None:
        with self._starting:  # the next epoch may use the pool from a thread of its own
            for number in range(len(self._threads), count):
                thread = Thread(_work, f"worker-{number}", (self._tasks, number))
                self._threads.append(thread)
                thread.start()

    def submit(self, task: Task) -> None:
        check_owner(self._owner)
        self._tasks.queue.put(task)

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        wait_for(task, self._owner, on_idle)

    def use(self, count: int) -> None:
        if count > len(self._threads) and not self._tasks.closing:
            self._start(count)
        self._tasks.use(count)

    def stacks(self) -> str:
        return thread_stacks(self._threads)

    def close(self) -> None:
        self._tasks.closing = True
        self._tasks.use(self.width)
        for _ in self._threads:
            self._tasks.queue.put(None)
        join_all(self._threads)


class _Tasks:
    """What threads share with their pool. They hold no reference to the pool itself, so that it can
    be garbage collected."""

    def __init__(self, width: int) -> None:
        self.queue: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self.closing = False
        self._used = width
        self._changed = threading.Condition()

    def use(self, count: int) -> None:
        """Limits the threads that take tasks to the first `count`."""
        if count != self._used:
            with self._changed:
                self._used = count
                self._changed.notify_all()

    def take(self, number: int) -> Task | None:
        """Waits for the next task of a thread; None when the pool is closed."""
        if number >= self._used:
            with self._changed:
                self._changed.wait_for(lambda: number < self._used)
        return self.queue.get()


def _work(tasks: _Tasks, number: int) -> None:
    worker = Worker(shares_generators=True)
    while (task := tasks.take(number)) is not None:
        if task.cancelled or tasks.closing:
            continue
        task.started = time.monotonic()
        try:
            task.finish(execute(task.stage, task.payload, task.context, worker, slot=task.slot))
        except BaseException as error:  # noqa: BLE001  raised again on the consumer's thread
            task.finish(None, error)
        del task


def wait_for(task: Task, owner: int, on_idle: Callable[[float], None]) -> None:
    """Waits until a task is finished; the implementation of `Pool.wait`."""
    began = time.monotonic()
    while not task.finished.wait(PAUSE):
        check_owner(owner)
        on_idle(time.monotonic() - began)


def check_owner(process: int) -> None:
    """Raises in a forked child: workers belong to the process that started them."""
    if os.getpid() != process:
        raise LoaderError(
            "this iterator was started before os.fork(), and its workers stayed with the parent: "
            "start the loop in the child, or make a loader there"
        )


def thread_stacks(threads: Iterable[threading.Thread]) -> str:
    """The stack trace of each thread."""
    frames = sys._current_frames()
    shown = []
    for thread in threads:
        frame = frames.get(thread.ident or -1)
        if frame is not None:
            shown.append(f"{thread.name}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(shown)
