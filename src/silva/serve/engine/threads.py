"""The threads that run one costly step of a served pipeline, each with a worker's state."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from silva.errors import StepError
from silva.lifetime import Thread
from silva.physical.stage.call import Worker

Work = Callable[[Worker], None]


class Threads:
    """Threads that are started when all others are busy, and stay. One thread, the event loop's,
    submits work and says when it has seen its end. Work that hangs keeps its thread, and another
    one is started for what comes next."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._threads: list[Thread] = []
        self._unfinished = 0

    def submit(self, work: Work) -> None:
        """Runs `work` on a thread. Raises a `StepError` if the system gives no further one: the
        work is not begun then."""
        if self._unfinished >= len(self._threads):
            thread = Thread(self._run, f"serve-{len(self._threads)}")
            try:
                thread.start()
            except RuntimeError as error:
                raise StepError(f"a thread cannot be started: {error}") from error
            self._threads.append(thread)
        self._unfinished += 1
        self._work.put(work)

    def __contains__(self, thread: threading.Thread) -> bool:
        return thread in self._threads

    def finished(self) -> None:
        """The end of one work was seen."""
        self._unfinished -= 1

    def _run(self) -> None:
        worker = Worker(shares_generators=False, answers=True)
        try:
            while True:
                work = self._work.get()
                if work is None:
                    return
                work(worker)
                del work  # or what it holds would live as long as the thread has nothing to do
        finally:
            mine = threading.current_thread()
            self._threads = [one for one in self._threads if one is not mine]

    def stop(self) -> list[Thread]:
        """Ends the threads that have nothing to do, and the others after their work; returns all,
        to be joined."""
        threads = list(self._threads)
        for _ in threads:
            self._work.put(None)
        return threads
