"""What a segment reads: rows that its worker fetches, or the blocks of another flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from silva.columns import Block
from silva.run.flows.trail import Joined, Mark, Offset, Piece, Reader, Trail

_SMALL_BYTES = 1 << 18
"""Pieces that are worth a copy to make one block of several."""


class Input(Protocol):
    slack: int
    """How many times the rows asked for it may give, where cutting would cost more."""

    def next(self, rows: int) -> tuple[Any, Trail] | None:
        """The input of one task, of about so many rows, and its trail; None at the end."""

    def left(self) -> int | None:
        """Rows still to come, where that is known."""

    def fetch(self, marks: list[Mark]) -> Any:
        """The input that holds the rows with these marks, in this order."""


class BlocksInput:
    """The input of a segment over another flow: its blocks, cut to the size that is asked for, or
    joined where they are much smaller."""

    slack = 1

    def __init__(
        self, pieces: Iterator[Piece], fetch: Callable[[list[Mark]], Block], whole: bool = False
    ) -> None:
        self.fetch = fetch
        self._whole = whole
        self._reader = Reader(pieces)
        self._error: Exception | None = None
        """What reading on has raised: it comes after the rows before it."""

    def next(self, rows: int) -> tuple[Block, Trail] | None:
        if self._error is not None:
            raise self._error
        ready = self._reader.available()
        if not ready:
            return None
        if not self._whole and ready < rows // 2 and self._reader.at_hand() < _SMALL_BYTES:
            return self._joined(rows)
        block, trail, start = self._reader.take(ready if self._whole else rows)
        return block, trail if start == 0 else Offset(trail, start)

    def _joined(self, rows: int) -> tuple[Block, Trail]:
        blocks: list[Block] = []
        runs: list[tuple[Trail, int, int]] = []
        try:
            while rows and self._reader.available():
                block, trail, start = self._reader.take(rows)
                blocks.append(block)
                runs.append((trail, start, len(block)))
                rows -= len(block)
        except Exception as error:  # noqa: BLE001  raised when it is its turn
            self._error = error
        return Block.concat(blocks), Joined(runs)

    def left(self) -> None:
        return None
