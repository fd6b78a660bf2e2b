"""Inline and threads: the pools that need no second process."""

from __future__ import annotations

import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable

from silva.physical.call import Worker
from silva.run.task import Task, execute

PAUSE = 0.2
"""Seconds between two looks at whether anything is wrong."""


class InlinePool:
    """Runs a task on the consumer's own thread when its result is asked for: breakpoints work."""

    width = 0

    def __init__(self) -> None:
        self._worker = Worker(shares_generators=False)

    def submit(self, task: Task) -> None:
        pass

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        if not task.finished.is_set():
            task.finish(execute(task.stage, task.payload, task.context, self._worker))

    def stacks(self) -> str:
        return ""

    def close(self) -> None:
        pass


class ThreadPool:
    """Worker threads that take tasks in the order submitted."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._queue: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(
                target=_work, args=(self._queue,), name=f"silva-worker-{i}", daemon=True
            )
            for i in range(width)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Task) -> None:
        self._queue.put(task)

    def wait(self, task: Task, on_idle: Callable[[float], None]) -> None:
        began = time.monotonic()
        while not task.finished.wait(PAUSE):
            on_idle(time.monotonic() - began)

    def stacks(self) -> str:
        frames = sys._current_frames()
        shown = []
        for thread in self._threads:
            frame = frames.get(thread.ident or -1)
            if frame is not None:
                shown.append(f"{thread.name}:\n{''.join(traceback.format_stack(frame))}")
        return "\n".join(shown)

    def close(self) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout=5)


def _work(tasks: queue.SimpleQueue[Task | None]) -> None:
    worker = Worker(shares_generators=True)
    while (task := tasks.get()) is not None:
        if task.cancelled:
            continue
        task.started = time.monotonic()
        try:
            task.finish(execute(task.stage, task.payload, task.context, worker))
        except BaseException as error:  # noqa: BLE001  raised again on the consumer's thread
            task.finish(None, error)
        del task
