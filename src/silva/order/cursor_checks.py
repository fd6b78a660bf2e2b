"""Building blocks for checking cursors: strict checks of values, and a ledger of remaining rows.

The work does not grow with the numbers that are checked, and no value of a state is shown in full:
it may be endless, or nested too deeply to be printed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NoReturn

from silva.errors import StateError

MOST = 1 << 48
"""The largest number in a state: rows are counted to 2⁴⁸, so sums of them fit into 64 bits."""

Row = Any
"""A place, or (unit, row): compares in the order of the rows."""


def shown(value: Any) -> str:
    """A value in a few characters, whatever it is.

    >>> shown(7), shown(10**5000), shown("x" * 100), shown([[]])
    ('7', 'a huge number', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxx…", 'a list')
    """
    if isinstance(value, str):
        return repr(value[:60]) if len(value) <= 40 else f"{value[:29]!r}"[:-1] + "…"
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if abs(value) < 1 << 64 else "a huge number"
    return f"a {type(value).__name__}"


def refuse(scope: CheckScope, why: str) -> NoReturn:
    raise StateError(f"{scope.where}: {why}. The state does not fit this pipeline, or is damaged")


def check_whole(value: Any, least: int, most: int, scope: CheckScope, what: str) -> int:
    """The value, if it is an int (not a bool) within these bounds."""
    if type(value) is not int:
        refuse(scope, f"{what} must be a whole number, not {shown(value)}")
    if not least <= value <= most:
        if least > most:
            refuse(scope, f"{what} must be absent, not {shown(value)}")
        refuse(scope, f"{what} must be between {least} and {most}, not {shown(value)}")
    return value


def check_list(
    value: Any, scope: CheckScope, what: str, length: int | None = None, most: int = MOST
) -> Sequence[Any]:
    """The value, if it is a list of this length, or of at most `most` items."""
    if not isinstance(value, list | tuple):
        refuse(scope, f"{what} must be a list, not {shown(value)}")
    if (length is not None and len(value) != length) or len(value) > most:
        refuse(
            scope, f"{what} must be a list of {length or f'at most {most}'}, not of {len(value)}"
        )
    return value


def check_fields(value: Any, names: tuple[str, ...], scope: CheckScope) -> None:
    """Raises unless the value is a dict with exactly these fields."""
    if not isinstance(value, dict) or value.keys() != set(names):
        fields = "{" + ", ".join(names) + "}"
        refuse(scope, f"the fields must be {fields}, not {_outline(value)}")


def _outline(value: Any) -> str:
    if not isinstance(value, dict):
        return shown(value)
    names = [shown(name) for name in list(value)[:8]]
    return "{" + ", ".join(names) + ("…" if len(value) > 8 else "") + "}"


Key = tuple[Any, ...]


@dataclass
class RowLedger:
    """The rows that are still to come and those that wait in buckets, by source and pass."""

    left: dict[Key, list[tuple[Row, Row, tuple[int, ...], str]]] = field(default_factory=dict)
    """(first, end, parts of the first row that were given, where the state says so)."""
    waits: dict[Key, list[tuple[Row, tuple[int, ...], bool, str]]] = field(default_factory=dict)
    """(row, part, whether its place decides when it comes, where the state says so)."""
    reached: dict[tuple[Key, int], int] = field(default_factory=dict)
    """The pass that a shard has reached."""
    begins: dict[tuple[Any, ...], dict[int, Any]] = field(default_factory=dict)
    """The cursor at which each window mentioned in the state begins."""

    def check(self) -> None:
        """Raises `StateError` where a row would come twice."""
        for windows in self.begins.values():
            places = [begin["at"] for _, begin in sorted(windows.items()) if _is_place(begin)]
            if any(one >= other for one, other in pairwise(places)):
                raise StateError("the windows in the state do not follow each other")
        for spans in self.left.values():
            spans.sort(key=lambda span: span[:2])
            for one, other in pairwise(spans):
                if one[1] > other[0]:
                    raise StateError(
                        f"{other[3]} and {one[3]} hold the same rows, which would come twice"
                    )
        for key, rows in self.waits.items():
            spans = self.left.get(key, [])
            starts = [span[0] for span in spans]
            seen = set()
            for row, part, ordered, where in rows:
                at = bisect_right(starts, row) - 1 if ordered else -1
                if (row, part) in seen or (at >= 0 and _comes(row, part, *spans[at][:3])):
                    raise StateError(f"{where}: a waiting row is named twice, or is still to come")
                seen.add((row, part))


def _is_place(cursor: Any) -> bool:
    return isinstance(cursor, dict) and "at" in cursor


def _comes(row: Row, part: tuple[int, ...], first: Row, end: Row, done: tuple[int, ...]) -> bool:
    """Whether a row is still to come, given the run of rows that it may belong to. The row after
    the last of a unit is the first of a later one; not every source knows a unit's rows."""
    begins = isinstance(row, tuple) and row[0] > first[0] and row[1] == 0
    return bool(row < end and not (done and part <= done and (row == first or begins)))


@dataclass(frozen=True)
class CheckScope:
    """The part of a state that is being checked: whose cursor, of which pass, within which row."""

    ledger: RowLedger
    shards: int
    shard: int
    seed: int
    epoch: int
    where: str
    """The part of the state, for error messages."""
    path: Key = ()
    """The source, and the pass over it."""
    parts: tuple[int, ...] = ()
    ordered: bool = True
    """Whether rows come in the order of their places: then no waiting row is still to come."""
    counts: bool = True
    """Whether this is part of the stream, rather than only a way to find a row again."""

    def child(self, number: int) -> CheckScope:
        where = f"{self.where}, pipeline {number}"
        return replace(self, where=where, path=(*self.path, number))

    def in_pass(self, number: int) -> CheckScope:
        """The scope of a pass: each pass of a pipeline that repeats is an epoch of its own."""
        if self.counts:
            self.ledger.reached.setdefault((self.path, self.shard), number)
        epoch = pass_epoch(self.epoch, number)
        return replace(self, path=(*self.path, f"pass {number}"), epoch=epoch)

    def has_reached(self, number: int) -> None:
        """Raises unless the pipeline has reached this pass. A window or row that is computed again
        may hold rows of a later one."""
        if not self.ordered or self.parts:
            return
        if number > self.ledger.reached.get((self.path, self.shard), number):
            refuse(self, f"a waiting row belongs to pass {number}, which has not begun")

    def within(self, parts: tuple[int, ...]) -> CheckScope:
        """The scope within an exploded row. In a row exploded twice, parts do not order rows."""
        if self.parts and parts:
            return replace(self, parts=(*parts, *self.parts), ordered=False)
        return replace(self, parts=(*parts, *self.parts))

    def in_windows(self) -> CheckScope:
        return replace(self, ordered=False)

    def detached(self) -> CheckScope:
        """The scope of a cursor that only finds a row again, with a ledger of its own."""
        return replace(self, ledger=RowLedger(begins=self.ledger.begins), counts=False)

    def window_begins(self, form: Any, window: int, cursor: Any) -> None:
        """Raises unless every mention of a window in the state agrees on where it begins."""
        known = self.ledger.begins.setdefault((self.path, self.shard, id(form)), {})
        if known.setdefault(window, cursor) != cursor:
            refuse(self, f"window {window} begins at two places")

    def remains(self, first: Row, end: Row) -> None:
        if self.counts and first < end:
            span = (first, end, self.parts, self.where)
            self.ledger.left.setdefault(self.path, []).append(span)

    def marks(self, row: Row) -> None:
        waiting = (row, self.parts, self.ordered, self.where)
        self.ledger.waits.setdefault(self.path, []).append(waiting)

    def marks_within(self, mark: Any) -> None:
        """Notes a waiting row that is found by a cursor: no place decides when it comes."""
        waiting = (repr(mark), self.parts, False, self.where)
        self.ledger.waits.setdefault((*self.path, "made"), []).append(waiting)


def pass_epoch(epoch: int, number: int) -> int:
    """The epoch that a pipeline of a mix sees in its pass `number`."""
    return epoch + (number << 32)
