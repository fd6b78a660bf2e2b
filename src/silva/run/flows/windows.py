"""Windows of rows: each is shuffled by itself, or packed into lines of one length."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Array, Block
from silva.errors import ColumnError, StateError
from silva.order.packing import Span, pack_spans, split_long
from silva.order.permutation import permute
from silva.physical import plan as physical
from silva.physical.stage.context import key_at
from silva.plan import node as logical
from silva.plan.schema import POSITIONS, SEGMENTS
from silva.run.flows.flow import (
    Cursor,
    Fetched,
    Flow,
    Joined,
    Mark,
    Position,
    Reader,
    Session,
    TrailedBlock,
    trail_from,
)

_NUMBERS = "biufc"
_EXACT = 1 << 53
"""Whole numbers up to this one are exact as float64."""


@dataclass(frozen=True, eq=False, slots=True)
class WindowTrail:
    """The trail of one window: resume reads the window again and drops the rows that were given."""

    window: int
    begin: Position
    end: Position
    size: int
    rows: Joined | None
    """The trail of the rows below; None if each row is made of the whole window."""
    order: np.ndarray | None = None

    def after(self, row: int) -> Position:
        if row + 1 >= self.size:
            cursor, failed, seen = self.end
            return Position({"window": self.window + 1, "from": cursor, "given": 0}, failed, seen)
        cursor, failed, seen = self.begin
        return Position({"window": self.window, "from": cursor, "given": row + 1}, failed, seen)

    def mark(self, row: int) -> Mark:
        if self.rows is None:
            return [{"window": self.window, "from": self.begin.cursor, "given": 0}, row]
        return self.rows.mark(row if self.order is None else int(self.order[row]))


def fetch_windows(
    open_at: Callable[[Cursor], Flow],
    marks: list[Mark],
    rows_of: Callable[[Block, list[int]], Fetched],
) -> Fetched:
    """Reads rows marked as [cursor before the window, row in it]; each window is read once."""
    windows: dict[str, list[int]] = {}
    for number, (begin, _) in enumerate(marks):
        windows.setdefault(json.dumps(begin), []).append(number)
    parts: list[tuple[list[int], Fetched]] = []
    for begin, numbers in windows.items():
        trailed = next(iter(open_at(json.loads(begin)).blocks()), None)
        rows = [marks[number][1] for number in numbers]
        if trailed is None or max(rows) >= len(trailed.block):
            raise StateError("the state names a row of a window that is shorter")
        parts.append((numbers, rows_of(trailed.block, rows)))
    return Fetched.joined(parts)


_START = {"window": 0, "from": None, "given": 0}

Remake = Callable[[int, Block, Joined], tuple[Block, Joined | None, np.ndarray | None]]
"""Makes new rows of a window, given its number, its rows and their trail. Returns them with what
`WindowTrail` calls `rows` and `order`."""


def _remade(flow: Flow, size: int, own: Cursor, remake: Remake) -> Iterator[TrailedBlock]:
    """Cuts a flow into windows of `size` rows, from the cursor `own` on, and makes new rows of each
    window by itself."""
    reader = Reader(flow.blocks())
    window, begin, given = own["window"], Position(own["from"]), own["given"]
    while True:
        blocks, runs = reader.gather(size)
        if not blocks:
            return
        block, rows = Block.concat(blocks), Joined(runs)
        end = rows.after(len(block) - 1)
        made, marked, order = remake(window, block, rows)
        trail = WindowTrail(window, begin, end, len(made), marked, order)
        if given < len(made):
            yield TrailedBlock(made.slice(given, len(made)), trail_from(trail, given))
        window, begin, given = window + 1, end, 0


class WindowsFlow:
    """Windows of `width` rows, each shuffled by itself where there is a seed."""

    def __init__(self, node: physical.Windows, session: Session, cursor: Cursor) -> None:
        self._node, self._session = node, session
        self._own = cursor or _START
        self._flow = session.open(node.input, self._own["from"])
        self.fetch = self._flow.fetch

    def blocks(self) -> Iterator[TrailedBlock]:
        return _remade(self._flow, self._node.width, self._own, self._shuffled)

    def _shuffled(
        self, window: int, block: Block, rows: Joined
    ) -> tuple[Block, Joined, np.ndarray | None]:
        if self._node.seed is None:
            return block, rows, None
        context = self._session.context
        key = (self._node.seed, context.seed, context.epoch, self._session.shard, window)
        order = permute(np.arange(len(block)), len(block), "window", *key)
        return block.take(order), rows, order


class PackFlow:
    """Token sequences packed into lines of one length. Each window of rows is packed by itself, so
    that state is (window, lines given).

    The type of a packed column is the common type of its window's rows. No value changes on the
    way: what numpy would round, turn into text or flatten is an error that names the row and the
    column.
    """

    def __init__(self, node: physical.Pack, session: Session, cursor: Cursor) -> None:
        self._node, self._session = node, session
        self._own = cursor or _START
        self._flow = session.open(node.input, self._own["from"])

    def blocks(self) -> Iterator[TrailedBlock]:
        def packed(window: int, block: Block, rows: Joined) -> tuple[Block, None, None]:
            return _packed(block, self._node.spec), None, None

        return _remade(self._flow, self._node.spec.window, self._own, packed)

    def fetch(self, marks: list[Mark]) -> Fetched:
        def reopened(begin: Cursor) -> Flow:
            return PackFlow(self._node, self._session.for_reading_again(), begin)

        return fetch_windows(reopened, marks, _lines)


def _packed(block: Block, spec: logical.Pack) -> Block:
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
    lines = pack_spans(split_long(lengths, spec.length), spec.length)
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


def _lines(packed: Block, lines: list[int]) -> Fetched:
    return Fetched(packed.take(np.array(lines, dtype=np.int64)), list(range(len(lines))))


def _fill(lines: list[list[Span]], rows: Sequences, length: int, pad: int) -> np.ndarray:
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
