"""Inline and threads: the pools that need no second process."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable

from silva.errors import LoaderError
from silva.physical.call import Worker
from silva.run.task import Task, execute

PAUSE = 0.2
"""Seconds between two looks at whether anything is wrong."""
_FAREWELL = 1.0
"""Seconds that closing waits for threads: one that hangs in a step cannot be ended, only left."""


class InlinePool:
    """Runs a task on the consumer's own thread when its result is asked for: breakpoints work."""

    width = 0
    ready = complete = True

    def __init__(self) -> None:
        self._worker = Worker(shares_generators=False)

    def submit(self, task: Task) -> None:
        pass

    def use(self, count: int) -> None:
        pass

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        if not task.finished.is_set():
            task.finish(
                execute(task.stage, task.payload, task.context, self._worker, spot=task.spot)
            )

    def help(self, task: Task, worker: Worker) -> None:
        pass

    def race(self, task: Task) -> None:
        pass

    def stacks(self) -> str:
        return ""

    def close(self) -> None:
        pass


class ThreadPool:
    """Worker threads that take tasks in the order submitted."""

    ready = complete = True

    def __init__(self, width: int) -> None:
        self.width = width
        self._owner = os.getpid()
        self._tasks = _Tasks(width)
        self._threads = [
            threading.Thread(
                target=_work, args=(self._tasks, i), name=f"silva-worker-{i}", daemon=True
            )
            for i in range(width)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Task) -> None:
        check_owner(self._owner)
        self._tasks.queue.put(task)

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        wait_for(task, self._owner, on_idle)

    def use(self, count: int) -> None:
        self._tasks.use(count)

    def help(self, task: Task, worker: Worker) -> None:
        pass

    def race(self, task: Task) -> None:
        pass

    def stacks(self) -> str:
        return thread_stacks(self._threads)

    def close(self) -> None:
        self._tasks.closing = True
        self._tasks.use(self.width)
        for _ in self._threads:
            self._tasks.queue.put(None)
        join_all(self._threads, _FAREWELL)


class _Tasks:
    """What threads share with their pool, and all that they hold of it: a pool can be dropped."""

    def __init__(self, width: int) -> None:
        self.queue: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self.closing = False
        self._used = width
        self._changed = threading.Condition()

    def use(self, count: int) -> None:
        """Only the first so many threads take tasks from now on."""
        if count != self._used:
            with self._changed:
                self._used = count
                self._changed.notify_all()

    def take(self, number: int) -> Task | None:
        """The next task of a thread; None when all is over."""
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
            task.finish(execute(task.stage, task.payload, task.context, worker, spot=task.spot))
        except BaseException as error:  # noqa: BLE001  raised again on the consumer's thread
            task.finish(None, error)
        del task


def wait_for(task: Task, owner: int, on_idle: Callable[[float], None]) -> None:
    """Returns once a task is finished, in the process that began it; what `Pool.wait` is."""
    began = time.monotonic()
    while not task.finished.wait(PAUSE):
        check_owner(owner)
        on_idle(time.monotonic() - began)


def check_owner(process: int) -> None:
    """Workers belong to the process that started them; a forked child has only their names."""
    if os.getpid() != process:
        raise LoaderError(
            "this iterator was started before os.fork(), and its workers stayed with the parent: "
            "start the loop in the child, or make a loader there"
        )


def thread_stacks(threads: Iterable[threading.Thread]) -> str:
    """What each thread is doing right now."""
    frames = sys._current_frames()
    shown = []
    for thread in threads:
        frame = frames.get(thread.ident or -1)
        if frame is not None:
            shown.append(f"{thread.name}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(shown)


def join_all(threads: Iterable[threading.Thread], seconds: float) -> None:
    """Waits for threads to end, `seconds` for all of them together. Garbage collection may call
    this on one of the threads themselves."""
    until = time.monotonic() + seconds
    mine = list(threads)
    if threading.current_thread() in mine:
        return
    for thread in mine:
        if thread.ident is not None:
            thread.join(timeout=max(0.0, until - time.monotonic()))
