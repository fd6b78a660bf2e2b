"""How fast some work is when it is done over and over, by several threads at once."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator

from silva.physical.call import Worker

Work = Callable[[int, Worker], Iterator[int]]
"""Does the work of some round on a worker, and says now and then how many rows it has done."""


def rows_a_second(work: Work, width: int, seconds: float) -> float:
    """How fast some work is on so many threads at once, run over and over for so long.

    >>> def work(turn, worker):
    ...     yield 10
    >>> rows_a_second(work, 1, 0.01) > 0
    True
    """
    alone = width <= 1
    workers = [Worker(shares_generators=not alone) for _ in range(max(width, 1))]
    turns = itertools.count()
    for worker in workers:
        next(work(next(turns), worker), 0)  # what is built once is not what is measured
    done = [0] * len(workers)
    failed: list[BaseException] = []
    began = time.perf_counter()

    def run(number: int) -> None:
        try:
            while not failed:
                for rows in work(next(turns), workers[number]):
                    done[number] += rows
                    if time.perf_counter() - began >= seconds:
                        return
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            failed.append(error)

    if alone:
        run(0)
    else:
        threads = [
            threading.Thread(target=run, args=(i,), name=f"silva-replay-{i}", daemon=True)
            for i in range(len(workers))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    return sum(done) / max(time.perf_counter() - began, 1e-9)
