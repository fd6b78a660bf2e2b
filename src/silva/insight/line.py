"""The live line on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from silva.insight.progress import Progress

_REDRAW_SECONDS = 0.1
_BAR = 24


class LiveLine:
    """One line, redrawn in place at most ten times a second."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        # What the user prints stays the user's: rich must not carry it over to stderr.
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._clock = clock
        self._last = -_REDRAW_SECONDS
        self._live.start()

    def show(self, progress: Progress) -> None:
        if self._clock() - self._last >= _REDRAW_SECONDS:
            self._last = self._clock()
            self._live.update(_table(progress), refresh=True)

    def close(self, progress: Progress) -> None:
        self._live.update(_table(progress), refresh=True)
        self._live.stop()


def _table(progress: Progress) -> Table:
    speed, waited, memory = progress.texts()
    table = Table.grid(padding=(0, 2))
    cells = [Text(f"epoch {progress.epoch}", style="bold")]
    bar = None
    if progress.total is not None:
        bar = ProgressBar(total=max(progress.total, 1), completed=progress.done, width=_BAR)
    cells += [
        Text(f"{progress.count} batches"),
        Text(speed, style="cyan"),
        Text(waited, style="green"),
        Text(memory, style="dim"),
    ]
    table.add_row(cells[0], *([bar] if bar is not None else []), *cells[1:])
    return table
