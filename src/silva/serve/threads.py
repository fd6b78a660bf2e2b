"""The threads that run the costly steps of a served pipeline, each with a worker's state."""

from __future__ import annotations

import queue
from collections.abc import Callable

from silva.lifetime import Thread, close_at_exit, join_all
from silva.physical.stage.call import Worker

Work = Callable[[Worker], None]


class Threads:
    """Threads that are started when all others are busy, and stay. One thread, the event loop's,
    submits work and says when it has seen its end."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._threads: list[Thread] = []
        self._unfinished = 0
        close_at_exit(self)

    def submit(self, work: Work) -> None:
        """Runs `work` on a thread; it must not raise."""
        self._unfinished += 1
        if self._unfinished > len(self._threads):
            thread = Thread(self._run, f"serve-{len(self._threads)}")
            self._threads.append(thread)
            thread.start()
        self._work.put(work)

    def finished(self) -> None:
        """The end of one work was seen."""
        self._unfinished -= 1

    def _run(self) -> None:
        worker = Worker(shares_generators=False)
        while True:
            work = self._work.get()
            if work is None:
                return
            work(worker)
            del work  # or what it holds would live as long as the thread has nothing to do

    def close(self) -> None:
        threads, self._threads = self._threads, []
        for _ in threads:
            self._work.put(None)
        join_all(threads)
