"""Token sequences packed into lines of one length, window by window.

The type of a packed column is the common type of its window's rows. No value changes on the way:
what numpy would round, turn into text or flatten is an error that names the row and the column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Array, Block
from silva.errors import ColumnError
from silva.order.packing import Piece as Run
from silva.order.packing import pack_pieces, split_long
from silva.physical import plan as physical
from silva.physical.stage.context import key_at
from silva.plan.schema import POSITIONS, SEGMENTS
from silva.run.flows.trail import (
    Cursor,
    Fetched,
    Joined,
    Mark,
    Offset,
    OpenFlow,
    Piece,
    Position,
    Reader,
)
from silva.run.flows.windows import WindowTrail, fetch_windows
from silva.run.session import Session

_NUMBERS = "biufc"
_EXACT = 1 << 53
"""Whole numbers up to this one are exact as float64."""


class PackFlow:
    """Each window of rows is packed by itself, so that state is (window, lines given)."""

    def __init__(
        self, node: physical.Pack, session: Session, open_flow: OpenFlow, cursor: Cursor
    ) -> None:
        self._node, self._session, self._open = node, session, open_flow
        self._spec = node.spec
        own = cursor or {"window": 0, "from": None, "given": 0}
        self._window, self._given = own["window"], own["given"]
        self._begin = Position(own["from"])
        self._flow = open_flow(node.input, session, own["from"])

    def pieces(self) -> Iterator[Piece]:
        reader = Reader(self._flow.pieces())
        begin = self._begin
        while True:
            blocks, runs = reader.gather(self._spec.window)
            if not blocks:
                return
            rows = Joined(runs)
            block = Block.concat(blocks)
            end = rows.after(len(block) - 1)
            packed = self._pack(block)
            trail = WindowTrail(self._window, begin, end, len(packed), None)
            given, self._given = self._given, 0
            if given < len(packed):
                yield Piece(packed.slice(given, len(packed)), Offset(trail, given))
            self._window += 1
            begin = end

    def _pack(self, block: Block) -> Block:
        spec = self._spec
        rows = {name: Sequences.of(block, name) for name in spec.columns}
        first_column = rows[spec.columns[0]]
        lengths = first_column.lengths()
        for name in spec.columns[1:]:
            other = rows[name].lengths()
            for row in np.flatnonzero(other != lengths)[:1].tolist():
                raise rows[name].error(
                    row, f"has {other[row]} items, and {lengths[row]} in {spec.columns[0]!r}"
                )
        if spec.overflow == "error":
            for row in np.flatnonzero(lengths > spec.length)[:1].tolist():
                raise first_column.error(
                    row,
                    f"has {lengths[row]} items, more than {spec.length}; use overflow='split' or "
                    "'truncate'",
                )
        if spec.overflow == "truncate":
            lengths = np.minimum(lengths, spec.length)
        lines = pack_pieces(split_long(lengths, spec.length), spec.length)
        columns: dict[str, Array] = {
            name: Array(_fill(lines, rows[name], spec.length, spec.pad)) for name in spec.columns
        }
        segments = np.zeros((len(lines), spec.length), dtype=np.int32)
        positions = np.zeros((len(lines), spec.length), dtype=np.int32)
        for i, line in enumerate(lines):
            at = 0
            for number, (_, start, stop) in enumerate(line, start=1):
                size = stop - start
                segments[i, at : at + size] = number
                positions[i, at : at + size] = np.arange(size)
                at += size
        columns[SEGMENTS], columns[POSITIONS] = Array(segments), Array(positions)
        first = np.array([line[0][0] for line in lines], dtype=np.int64)
        part = np.array([line[0][1] for line in lines], dtype=np.uint64)
        places = part if block.places is None else block.places[first] ^ part
        return Block(dict(columns), block.ids[first], places)

    def fetch(self, marks: list[Mark]) -> Fetched:
        return fetch_windows(self._reopened, marks, _lines)

    def _reopened(self, begin: Cursor) -> PackFlow:
        return PackFlow(self._node, self._session.for_reading_again(), self._open, begin)


def _lines(packed: Block, lines: list[int]) -> Fetched:
    return Fetched(packed.take(np.array(lines, dtype=np.int64)), list(range(len(lines))))


def _fill(lines: list[list[Run]], rows: Sequences, length: int, pad: int) -> np.ndarray:
    filled = rows.fill(pad)
    out = np.full((len(lines), length), filled, dtype=filled.dtype)
    for i, line in enumerate(lines):
        at = 0
        for row, start, stop in line:
            out[i, at : at + stop - start] = rows.arrays[row][start:stop]
            at += stop - start
    return out


@dataclass(frozen=True, eq=False, slots=True)
class Sequences:
    """One column of a window."""

    block: Block
    name: str
    arrays: list[np.ndarray]

    @staticmethod
    def of(block: Block, name: str) -> Sequences:
        found = Sequences(block, name, [])
        for number, row in enumerate(block.columns[name].rows()):
            found.arrays.append(found._array(number, row))
        return found

    def lengths(self) -> np.ndarray:
        return np.array([len(a) for a in self.arrays], dtype=np.int64)

    def error(self, number: int, why: str) -> ColumnError:
        key = key_at(self.block.ids, self.block.places, number)
        return ColumnError(f"pack: row {key} of column {self.name!r} {why}")

    def _array(self, number: int, row: Any) -> np.ndarray:
        if np.ma.is_masked(row):
            raise self.error(number, "has missing items: fill them before pack")
        try:
            array = np.asarray(row)
        except Exception as error:  # whatever an object of the user's answers
            raise self.error(number, f"is no sequence of numbers: {error}") from error
        if array.ndim != 1:
            told = f"has the shape {array.shape}" if array.ndim else f"is {_shown(row)}"
            raise self.error(number, f"{told}: pack takes sequences of numbers")
        if array.size and array.dtype.kind not in _NUMBERS:
            raise self.error(number, f"holds {_shown(_odd(row))}: pack takes sequences of numbers")
        if array.dtype.kind in "fc" and array is not row and not isinstance(row, np.ndarray):
            for item in row:
                whole = type(item) is not float and isinstance(item, int | np.integer)
                if whole and not -_EXACT <= item <= _EXACT:
                    raise self.error(number, f"holds {item}, which would become a float: cast it")
        return array

    def dtype(self) -> np.dtype:
        """The type that holds the numbers of all rows."""
        first = {a.dtype: i for i, a in reversed(list(enumerate(self.arrays))) if a.size}
        if not first:
            return np.dtype(np.int64)
        common = np.result_type(*sorted(first, key=str))
        if common.kind in "fc" and len(first) > 1:
            self._check_exact(first, common)
        return common

    def _check_exact(self, first: dict[np.dtype, int], common: np.dtype) -> None:
        if all(kind.kind in "biu" for kind in first):
            last = max(first.values())
            kinds = " and ".join(sorted(map(str, first)))
            raise self.error(
                last, f"is of {self.arrays[last].dtype}: no whole number holds {kinds}, cast them"
            )
        for number, array in enumerate(self.arrays):
            if array.dtype.kind in "iu":
                with np.errstate(invalid="ignore"):
                    again = array.astype(common).real.astype(array.dtype)
                if (again != array).any():
                    raise self.error(
                        number,
                        f"holds whole numbers that {common} of other rows would round",
                    )

    def fill(self, pad: int) -> Any:
        """The value that pads a line."""
        dtype = self.dtype()
        try:
            filled = np.full((), pad, dtype)
            if filled.item() != pad:
                raise OverflowError
        except OverflowError:
            raise ColumnError(
                f"pack(pad={pad}) does not fit the {dtype} of column {self.name!r}: give another "
                "pad, or cast the column"
            ) from None
        return filled


def _odd(row: Any) -> Any:
    """The first item that is not a number, or else the largest, which no numpy type holds."""
    for item in row:
        if isinstance(item, bool) or not isinstance(item, int | float | complex | np.number):
            return item
    return max(row, key=abs)


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except Exception:  # noqa: BLE001  an object of the user's
        return f"a {type(value).__name__}"
