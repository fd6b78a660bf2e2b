"""A live line about the loop, on stderr: how far, how fast, and how long the trainer waited.

On a terminal it is redrawn in place, by the loop itself and no thread of its own. Elsewhere (a log
file, a notebook) a plain line is written every few seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from silva.columns import Block
from silva.insight.memory import Memory
from silva.insight.words import percent, size
from silva.plan.verify import is_batched

if TYPE_CHECKING:
    from rich.console import Console

_PLAIN_SECONDS = 5.0


class Line(Protocol):
    """Where the numbers are shown."""

    def show(self, progress: Progress) -> None: ...
    def close(self, progress: Progress) -> None: ...


class Progress:
    """The numbers of one epoch."""

    def __init__(self, loader: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.epoch: int = loader.epoch
        self.done: int = loader._step
        self.rows = 0
        self.waited = 0.0
        self.total = _total(loader)
        self._clock = clock
        self._began = clock()
        self.memory = Memory(loader._executor.processes)

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def texts(self) -> list[str]:
        """Rows per second, share of time waited, memory."""
        spent = max(self.seconds, 1e-9)
        return [
            f"{self.rows / spent:,.0f} rows/s",
            f"waited {percent(min(self.waited / spent, 1.0))}",
            size(self.memory.now()),
        ]

    @property
    def count(self) -> str:
        return f"{self.done:,}" if self.total is None else f"{self.done:,}/{self.total:,}"


def progress(
    batches: Iterator[dict[str, Any]], loader: Any, console: Console | None = None
) -> Iterator[dict[str, Any]]:
    """The same batches, watched: shown on a line, and counted for the report."""
    seen = Progress(loader)
    watch = loader._watch
    batched = is_batched(loader._logical)
    line = _line(console)
    try:
        while True:
            watch.ask()
            before = watch.waited
            batch = next(batches, None)
            if batch is None:
                return
            rows = rows_of(batch) if batched else 1
            watch.got(rows)
            seen.done += 1
            seen.rows += rows
            seen.waited += watch.waited - before
            line.show(seen)
            yield batch
    finally:
        watch.end()
        line.close(seen)


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


def _total(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _line(console: Console | None) -> Line:
    if console is None:
        from rich.console import Console

        console = Console(file=sys.stderr)  # in a notebook not a terminal, whatever isatty says
    from silva.insight.line import LiveLine

    return LiveLine(console) if console.is_terminal else PlainLine(console)


class PlainLine:
    """A line of text every few seconds, and one at the end."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._last = clock()

    def show(self, progress: Progress) -> None:
        if self._clock() - self._last >= _PLAIN_SECONDS:
            self._last = self._clock()
            self._write(progress)

    def close(self, progress: Progress) -> None:
        self._write(progress)

    def _write(self, progress: Progress) -> None:
        parts = [f"epoch {progress.epoch}", f"{progress.count} batches", *progress.texts()]
        self._console.file.write("  ".join(parts) + "\n")
        self._console.file.flush()
