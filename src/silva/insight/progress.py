"""A live line about the loop, on stderr: progress, throughput, time waited, and memory.

On a terminal it is redrawn in place, by the loop itself and not by a thread. Elsewhere (a log file,
a notebook) a plain line is written every few seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import psutil

from silva.columns import Block
from silva.facts.formatting import percent, size
from silva.facts.loop import LoopClock

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PLAIN_SECONDS = 5.0
"""Time between two plain lines."""
_REDRAW_SECONDS = 0.1
"""Least time between two updates of the live line."""
_MEMORY_SECONDS = 1.0
"""Least time between two reads of the memory, since each costs a system call per process."""
_BAR = 24
"""Characters of the bar."""


class ResidentMemory:
    """The resident memory of this process and its workers."""

    def __init__(
        self, workers: Callable[[], list[int]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._workers = workers
        self._clock = clock
        self._read_at = -_MEMORY_SECONDS
        self._bytes = 0

    def now(self) -> int:
        """Bytes, at most a second old.

        >>> ResidentMemory(workers=list).now() > 0
        True
        """
        if self._clock() - self._read_at >= _MEMORY_SECONDS:
            self._read_at = self._clock()
            self._bytes = _resident(psutil.Process().pid) + sum(map(_resident, self._workers()))
        return self._bytes


def _resident(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:  # the worker has just ended
        return 0


class EpochProgress:
    """The numbers of one epoch."""

    def __init__(
        self,
        *,
        epoch: int,
        done: int,
        total: int | None,
        workers: Callable[[], list[int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`done` of `total` batches are behind; `workers` returns the ids of worker processes."""
        self.epoch, self.done, self.total = epoch, done, total
        self.rows = 0
        self.waited = 0.0
        self._clock = clock
        self._began = clock()
        self._memory = ResidentMemory(workers)

    def texts(self) -> list[str]:
        """Rows per second, share of time waited, memory."""
        spent = max(self._clock() - self._began, 1e-9)
        return [
            f"{self.rows / spent:,.0f} rows/s",
            f"waited {percent(min(self.waited / spent, 1.0))}",
            size(self._memory.now()),
        ]

    @property
    def count(self) -> str:
        return f"{self.done:,}" if self.total is None else f"{self.done:,}/{self.total:,}"


class ProgressLine(Protocol):
    """Shows the numbers."""

    def show(self, progress: EpochProgress) -> None: ...
    def close(self, progress: EpochProgress) -> None: ...


def show_progress(
    batches: Iterator[dict[str, Any]],
    progress: EpochProgress,
    clock: LoopClock,
    *,
    batched: bool,
    console: Console | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields the same batches, counts them, and shows the numbers; `batched`: not single rows."""
    line = _line(console)
    try:
        while True:
            clock.ask()
            before = clock.waited
            batch = next(batches, None)
            if batch is None:
                return
            rows = rows_of(batch) if batched else 1
            clock.receive(rows)
            progress.done += 1
            progress.rows += rows
            progress.waited += clock.waited - before
            line.show(progress)
            yield batch
    finally:
        clock.end()
        line.close(progress)


def rows_of(batch: dict[str, Any] | Block) -> int:
    """The rows of a batch: the length of its first column that has one.

    >>> rows_of({"mean": 0.5, "x": [1, 2, 3]})
    3
    """
    if isinstance(batch, Block):
        return len(batch)
    for value in batch.values():
        shape = getattr(value, "shape", None)
        if shape != () and hasattr(value, "__len__") and not isinstance(value, str | bytes):
            return len(value)
    return 1


def _line(console: Console | None) -> ProgressLine:
    if console is None:
        from rich.console import Console

        console = Console(file=sys.stderr)  # in a notebook not a terminal, whatever isatty says
    return LiveLine(console) if console.is_terminal else PlainLine(console)


class LiveLine:
    """One line, redrawn in place at most ten times a second."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        # rich must not redirect what the program itself prints
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._clock = clock
        self._last = -_REDRAW_SECONDS
        self._live.start()

    def show(self, progress: EpochProgress) -> None:
        if self._clock() - self._last >= _REDRAW_SECONDS:
            self._last = self._clock()
            self._live.update(_table(progress), refresh=True)

    def close(self, progress: EpochProgress) -> None:
        self._live.update(_table(progress), refresh=True)
        self._live.stop()


def _table(progress: EpochProgress) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    speed, waited, memory = progress.texts()
    bars = []
    if progress.total is not None:
        bars = [ProgressBar(total=max(progress.total, 1), completed=progress.done, width=_BAR)]
    table = Table.grid(padding=(0, 2))
    table.add_row(
        Text(f"epoch {progress.epoch}", style="bold"),
        *bars,
        Text(f"{progress.count} batches"),
        Text(speed, style="cyan"),
        Text(waited, style="green"),
        Text(memory, style="dim"),
    )
    return table


class PlainLine:
    """A line of text every few seconds, and one at the end."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._last = clock()

    def show(self, progress: EpochProgress) -> None:
        if self._clock() - self._last >= _PLAIN_SECONDS:
            self._last = self._clock()
            self._write(progress)

    def close(self, progress: EpochProgress) -> None:
        self._write(progress)

    def _write(self, progress: EpochProgress) -> None:
        parts = [f"epoch {progress.epoch}", f"{progress.count} batches", *progress.texts()]
        self._console.file.write("  ".join(parts) + "\n")
        self._console.file.flush()
