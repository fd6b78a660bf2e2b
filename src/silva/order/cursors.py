"""Cursors: the form of each kind of node's cursor, declared once, together with its check.

The form of a cursor follows from the pipeline as written (`order.forms`), never from how, when or
under which policy it runs. A form checks a cursor before anything is opened, so flows need no
checks. The work grows with the cursor and the pipeline, never with the numbers in the cursor.

A *mark* finds one row again: the state names the rows that wait in a bucket by their marks. A mark
holds all that the row depends on: its source, the pass of a pipeline that repeats, the parts of
exploded rows, and the cursor of the whole chunk or window where a row is made of several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from silva.order.cursor_checks import (
    MOST,
    CheckScope,
    RowLedger,
    check_fields,
    check_list,
    check_whole,
    refuse,
)
from silva.order.mixing import Schedule, could_have_given
from silva.order.permutation import permute
from silva.order.shards import shard_range, share, unit_bounds

Cursor = Any
"""JSON: whole numbers, strings, lists and dicts. None is the beginning."""

SizeChange = tuple[str, int]
"""(`take`, `skip` or `sample`, rows)."""

Mark = Any
"""JSON that finds one row again."""

_MOST_RANGES = 1 << 16
_MOST_UNIT_ROWS = 1 << 32
PHASES = ("filling", "draining", "ended")
"""The phases of a bucket: rows still come; waiting rows are given out; nothing is left."""


class CountedRows(Protocol):
    """An indexed source, as far as a cursor needs it."""

    def length(self) -> int: ...


class CountedUnits(Protocol):
    """A chunked source, as far as a cursor needs it."""

    def units(self) -> int: ...

    def unit_rows(self) -> np.ndarray | None: ...


class Position(NamedTuple):
    """The position of a flow: a cursor, and the failures counted on the way to it."""

    cursor: Cursor
    failed: int = 0
    """Rows that failed."""
    seen: int = 0
    """Rows that entered a stage."""

    def plus(self, failed: int, seen: int) -> Position:
        return Position(self.cursor, self.failed + failed, self.seen + seen)


class Form(Protocol):
    """The form of a node's cursors and marks."""

    def check(self, cursor: Cursor, scope: CheckScope) -> None:
        """Raises `StateError` unless a stream can continue from this cursor."""

    def check_mark(self, mark: Mark, scope: CheckScope) -> None:
        """Raises `StateError` unless the mark may name a row."""


@dataclass(frozen=True)
class PlacesForm:
    """An indexed source: `{"at": place}`, or `{"ranges": [[first, end], …]}` after resharding, or
    where places were handed out of order. A mark is a place."""

    source: CountedRows = field(compare=False)
    chosen: tuple[SizeChange, ...] = ()
    """The takes, skips and samples, in this order."""

    @property
    def size(self) -> int:
        """The number of places. A source may have to look at its files to count them."""
        size = self.source.length()
        for verb, count in self.chosen:
            match verb:
                case "take":
                    size = min(count, size)
                case "skip":
                    size = max(size - count, 0)
                case "sample":
                    size = count
        return size

    def check(self, cursor: Cursor, scope: CheckScope) -> None:
        size = self.size
        start, stop = shard_range(size, scope.shards, scope.shard)
        if cursor is None:
            scope.remains(start, stop)
        elif isinstance(cursor, dict) and "ranges" in cursor:
            check_fields(cursor, ("ranges",), scope)
            before = 0
            for pair in check_list(cursor["ranges"], scope, "ranges", most=_MOST_RANGES):
                check_list(pair, scope, "a range", 2)
                first = check_whole(pair[0], before, size, scope, "the start of a range")
                before = check_whole(pair[1], first + 1, size, scope, "the end of a range")
                scope.remains(first, before)
        else:
            check_fields(cursor, ("at",), scope)
            scope.remains(check_whole(cursor["at"], start, stop, scope, "the place"), stop)

    def check_mark(self, mark: Mark, scope: CheckScope) -> None:
        scope.marks(check_whole(mark, 0, self.size - 1, scope, "the place of a waiting row"))


@dataclass(frozen=True)
class UnitsForm:
    """A chunked source: `{"unit": place of the unit in the order, "row": row in it}`. A mark is
    `[unit, row]`."""

    source: CountedUnits = field(compare=False)
    seed: int | None
    """The seed that permutes the units; None where they keep their order."""

    def order(self, seed: int, epoch: int, places: np.ndarray | None = None) -> np.ndarray:
        """The units in the order in which they are read, or those at some places of it."""
        units = self.source.units()
        places = np.arange(units) if places is None else places
        if self.seed is None:
            return places
        return permute(places, units, "units", self.seed, seed, epoch)

    def _rows(self, unit_at: int, scope: CheckScope) -> int:
        """The number of rows of a unit, or the most it could have where they are not counted."""
        rows = self.source.unit_rows()
        if rows is None:
            return _MOST_UNIT_ROWS
        return int(rows[self.order(scope.seed, scope.epoch, np.array([unit_at]))[0]])

    def _position(self, unit: Any, row: Any, scope: CheckScope) -> tuple[int, int]:
        units = self.source.units()
        found = check_whole(unit, 0, units, scope, "the unit")
        most = 0 if found == units else self._rows(found, scope)
        return found, check_whole(row, 0, most, scope, "the row in its unit")

    def _bounds(self, scope: CheckScope) -> tuple[tuple[int, int], tuple[int, int], int]:
        """Where the shard begins and ends, and the number of shards that share its units."""
        rows = self.source.unit_rows()
        ordered = None if rows is None else rows[self.order(scope.seed, scope.epoch)]
        return unit_bounds(self.source.units(), ordered, scope.shards, scope.shard)

    def check(self, cursor: Cursor, scope: CheckScope) -> None:
        first, stop, _ = self._bounds(scope)
        if cursor is not None:
            check_fields(cursor, ("unit", "row"), scope)
            found = self._position(cursor["unit"], cursor["row"], scope)
            # The row after the last of a unit is the first of the next.
            if found < first or (found > stop and found[1]):
                refuse(scope, f"row {found[1]} of unit {found[0]} is not in this shard")
            first = max(first, found)
        if scope.shards == 1 or self.source.unit_rows() is not None:
            scope.remains(first, stop)

    def check_mark(self, mark: Mark, scope: CheckScope) -> None:
        check_list(mark, scope, "the unit and row of a waiting row", 2)
        found = self._position(mark[0], mark[1], scope)
        by_row = self.source.unit_rows() is None and self.source.units() < scope.shards
        if found[0] == self.source.units() or found[1] == self._rows(found[0], scope):
            refuse(scope, f"there is no row {found[1]} of unit {found[0]} that could wait")
        if by_row and found[1] % scope.shards != scope.shard:
            refuse(scope, f"a waiting row is row {found[1]} of unit {found[0]}, in another shard")
        scope.marks(found)


class _OverInput(ABC):
    """A form around the form of an input, which begins where the input begins."""

    input: Form

    def check(self, cursor: Cursor, scope: CheckScope) -> None:
        if cursor is None:
            self.input.check(None, scope)
        else:
            self._check(cursor, scope)

    @abstractmethod
    def _check(self, cursor: Cursor, scope: CheckScope) -> None: ...


@dataclass(frozen=True)
class PartsForm(_OverInput):
    """Exploded rows: `{"in": cursor, "done": parts}`, where `done` names the last part given of the
    row that follows, one number for each explode; `[]` between rows. A mark is `[mark, part,
    …]`."""

    input: Form
    levels: int

    def _check(self, cursor: Cursor, scope: CheckScope) -> None:
        check_fields(cursor, ("in", "done"), scope)
        done = check_list(cursor["done"], scope, "the parts given", most=self.levels)
        self.input.check(cursor["in"], scope.within(self._parts(done, scope) if done else ()))

    def check_mark(self, mark: Mark, scope: CheckScope) -> None:
        check_list(mark, scope, "a waiting part of a row", 1 + self.levels)
        self.input.check_mark(mark[0], scope.within(self._parts(list(mark[1:]), scope)))

    def _parts(self, parts: Any, scope: CheckScope) -> tuple[int, ...]:
        check_list(parts, scope, "the parts of a row", self.levels)
        return tuple(check_whole(part, 0, MOST, scope, "the part of a row") for part in parts)


@dataclass(frozen=True)
class WindowsForm(_OverInput):
    """Rows in windows, each read again as a whole: `{"window": number, "from": cursor before it,
    "given": rows of it that were given}`. A mark is that of the row below; where rows are `made` of
    a whole window, it is `[cursor before the window, row in it]`."""

    input: Form
    most: int
    """The most rows of a window that may have been given while some are left."""
    made: bool = False

    def _check(self, cursor: Cursor, scope: CheckScope) -> None:
        check_fields(cursor, ("window", "from", "given"), scope)
        window = check_whole(cursor["window"], 0, MOST, scope, "the window")
        check_whole(cursor["given"], 0, self.most, scope, "the rows given of a window")
        if (window == 0) != (cursor["from"] is None):
            refuse(scope, f"window {window} does not begin where the state says")
        self.input.check(cursor["from"], scope.in_windows())
        scope.window_begins(self, window, cursor["from"])

    def check_mark(self, mark: Mark, scope: CheckScope) -> None:
        if not self.made:
            self.input.check_mark(mark, scope.in_windows())
            return
        check_list(mark, scope, "a waiting row of a window", 2)
        self.check(mark[0], scope.detached())
        if mark[0] is None or mark[0]["given"]:
            refuse(scope, "a waiting row does not say where its window begins")
        check_whole(mark[1], 0, self.most, scope, "the place of a waiting row in its window")
        scope.marks_within(mark)


@dataclass(frozen=True)
class ChunksForm(_OverInput):
    """A function of fixed chunks: `{"in": cursor before the chunk, "given": rows of it given}`. A
    mark is `[cursor before the chunk, row in it]`: the chunk is computed again as a whole."""

    input: WindowsForm
    size: int

    def _check(self, cursor: Cursor, scope: CheckScope) -> None:
        check_fields(cursor, ("in", "given"), scope)
        self._check_begin(cursor["in"], scope)
        check_whole(cursor["given"], 0, self.size - 1, scope, "the rows given of a chunk")

    def check_mark(self, mark: Mark, scope: CheckScope) -> None:
        check_list(mark, scope, "a waiting row of a chunk", 2)
        self._check_begin(mark[0], scope.detached())
        check_whole(mark[1], 0, self.size - 1, scope, "the place of a waiting row in its chunk")
        scope.marks_within(mark)

    def _check_begin(self, cursor: Cursor, scope: CheckScope) -> None:
        self.input.check(cursor, scope)
        if cursor is None or cursor["given"]:
            refuse(scope, "a chunk does not begin where the state says")


@dataclass(frozen=True)
class CountedForm(_OverInput):
    """Rows that are taken or skipped: `{"taken": rows, "of": cursor}`, or `"skipped"`."""

    input: Form
    name: str
    count: int

    def _check(self, cursor: Cursor, scope: CheckScope) -> None:
        check_fields(cursor, (self.name, "of"), scope)
        most = share(self.count, scope.shards, scope.shard)
        least = most if self.name == "skipped" else 0
        check_whole(cursor[self.name], least, most, scope, f"the rows {self.name}")
        self.input.check(cursor["of"], scope)

    def check_mark(self, mark: Mark, scope: CheckScope) -> None:
        self.input.check_mark(mark, scope)


@dataclass(frozen=True)
class ConcatForm:
    """One pipeline after the other: `{"child": which, "of": its cursor}`. A mark is `[which,
    mark]`."""

    many: tuple[Form, ...]

    def check(self, cursor: Cursor, scope: CheckScope) -> None:
        child = 0
        if cursor is not None:
            check_fields(cursor, ("child", "of"), scope)
            child = check_whole(cursor["child"], 0, len(self.many) - 1, scope, "the pipeline")
            self.many[child].check(cursor["of"], scope.child(child))
            child += 1
        for later in range(child, len(self.many)):
            self.many[later].check(None, scope.child(later))

    def check_mark(self, mark: Mark, scope: CheckScope) -> None:
        check_list(mark, scope, "a waiting row", 2)
        child = check_whole(mark[0], 0, len(self.many) - 1, scope, "its pipeline")
        self.many[child].check_mark(mark[1], scope.child(child))


@dataclass(frozen=True)
class ZipForm:
    """Pipelines side by side: `{"each": [cursor, …]}`. A mark is a list of marks."""

    many: tuple[Form, ...]

    def check(self, cursor: Cursor, scope: CheckScope) -> None:
        each: Sequence[Cursor] = [None] * len(self.many)
        if cursor is not None:
            check_fields(cursor, ("each",), scope)
            each = check_list(cursor["each"], scope, "each pipeline", len(self.many))
        for child, inner in enumerate(each):
            self.many[child].check(inner, scope.child(child))

    def check_mark(self, mark: Mark, scope: CheckScope) -> None:
        check_list(mark, scope, "a waiting row", len(self.many))
        for child, inner in enumerate(mark):
            self.many[child].check_mark(inner, scope.child(child))


@dataclass(frozen=True)
class MixForm:
    """Pipelines in proportions: `{"given": [rows, …], "each": [cursor, …]}`, and where pipelines
    repeat `"passes": [passes that were completed, …]`. A mark is `[pipeline, pass, mark]`."""

    many: tuple[Form, ...]
    schedule: Schedule
    repeats: bool

    def check(self, cursor: Cursor, scope: CheckScope) -> None:
        count = len(self.many)
        given: Sequence[Any] = [0] * count
        passes: Sequence[Any] = given
        each: Sequence[Cursor] = [None] * count
        if cursor is not None:
            check_fields(cursor, ("given", "each", *(("passes",) if self.repeats else ())), scope)
            given = check_list(cursor["given"], scope, "the rows given", count)
            each = check_list(cursor["each"], scope, "each pipeline", count)
            passes = check_list(cursor.get("passes", passes), scope, "the passes", count)
        for child in range(count):
            below = scope.child(child)
            rows = check_whole(given[child], 0, MOST, below, "the rows given")
            # Each pass gave a row, but for the first: a filter may draw anew in the second.
            done = check_whole(passes[child], 0, rows + 1, below, "the passes of a pipeline")
            if rows and each[child] is None and not done:
                refuse(below, f"{rows} rows were given by a pipeline that has not begun")
            self.many[child].check(each[child], below.in_pass(done))
        if self.repeats and all(passes):
            refuse(scope, "every pipeline of the mix has ended")
        # A pass that has given nothing yet may be empty: then the pipeline has ended.
        live = [not done or inner is not None for done, inner in zip(passes, each, strict=True)]
        if self.repeats and not could_have_given(self.schedule, given, live):
            refuse(scope, "the pipelines of the mix cannot have given so many rows each")

    def check_mark(self, mark: Mark, scope: CheckScope) -> None:
        check_list(mark, scope, "a waiting row", 3)
        child = check_whole(mark[0], 0, len(self.many) - 1, scope, "its pipeline")
        below = scope.child(child)
        most = MOST if self.repeats else 0
        done = check_whole(mark[1], 0, most, below, "the pass of a waiting row")
        below.has_reached(done)
        self.many[child].check_mark(mark[2], below.in_pass(done))


@dataclass(frozen=True)
class BucketForm(_OverInput):
    """Rows that wait for others of similar length: `{"of": cursor, "waiting": [[mark, …], …],
    "given": batches that were given, "phase": one of `PHASES`}`."""

    input: Form
    sizes: tuple[int, ...]
    """Rows in a batch of each bucket, over all shards."""

    def _check(self, cursor: Cursor, scope: CheckScope) -> None:
        check_fields(cursor, ("of", "waiting", "given", "phase"), scope)
        if cursor["phase"] not in PHASES:
            refuse(scope, f"the phase is none of {', '.join(PHASES)}")
        check_whole(cursor["given"], 0, MOST, scope, "the batches given")
        self.input.check(cursor["of"], scope)
        waiting = check_list(cursor["waiting"], scope, "the buckets", len(self.sizes))
        for size, marks in zip(self.sizes, waiting, strict=True):
            most = max(size // scope.shards, 1) - 1
            for mark in check_list(marks, scope, "the waiting rows", most=most):
                self.input.check_mark(mark, scope)

    def check_mark(self, mark: Mark, scope: CheckScope) -> None:
        raise NotImplementedError("batches do not wait in buckets")


def check_cursors(
    form: Form, cursors: dict[str, Cursor], *, shards: int, seed: int, epoch: int
) -> None:
    """Raises `StateError` unless the cursors of all shards have this form and no row comes
    twice."""
    ledger = RowLedger()
    for shard, cursor in cursors.items():
        where = f"the cursor of shard {shard}"
        form.check(cursor, CheckScope(ledger, shards, int(shard), seed, epoch, where))
    ledger.check()
