"""What a table must hold, by the notes of those who write it.

A writer notes what it begins, and what it was told is done; what it had begun when it was killed it
looks up when it comes back. A version that is read between two looks at the notes must hold what
was done before the first, and nothing that was not begun before the second.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

MINE = 1_000_000
"""Appends that a writer may make."""
ROWS = 100
"""That an append may have."""
BASE = 20
"""Rows that nobody deletes."""


def rows_of(append: int) -> pa.Table:
    """The rows of an append, known by its number."""
    ids = [append * ROWS + j for j in range(BASE if append == 0 else 1 + append % 37)]
    return pa.table({
        "id": ids,
        "append": [append] * len(ids),
        "text": [f"row {i}" * (i % 3) for i in ids],
        "list": [[i] * (i % 4) for i in ids],
    })  # fmt: skip


@dataclass
class Notes:
    """What a writer began, by number: what it is, and whether it is done (None: nobody knows)."""

    begun: dict[int, tuple[str, Any]] = field(default_factory=dict)
    settled: dict[int, bool] = field(default_factory=dict)

    @staticmethod
    def read(file: Path) -> Notes:
        notes = Notes()
        for line in file.read_bytes().splitlines() if file.exists() else []:
            number, *what = json.loads(line)
            if len(what) == 1:
                notes.settled[number] = what[0]
            else:
                notes.begun[number] = (what[0], what[1])
        return notes

    def of(self, kind: str) -> list[tuple[int, Any, bool | None]]:
        """In the order in which they were begun."""
        return [
            (number, what, self.settled.get(number))
            for number, (found, what) in self.begun.items()
            if found == kind
        ]

    def kept(self) -> list[int]:
        """Appends that are in the table, where nothing is under way."""
        gone = {what for _, what, done in self.of("delete") if done}
        return [what for _, what, done in self.of("append") if done and what not in gone]


def is_there(found: dict[str, list[Any]], name: int, number: int, kind: str, what: Any) -> bool:
    if kind in ("append", "delete"):
        return (what in found["append"]) == (kind == "append")
    if kind == "put":
        return number in found.get(f"put{name}", ())
    if kind == "share":
        return number in own_rows(found, name).get("shared", ())
    derived = found.get(f"derived{name}")
    return derived is not None and derived == [i * number for i in found["id"]]


def own_rows(found: dict[str, list[Any]], name: int) -> dict[str, list[Any]]:
    """The rows that a writer appended."""
    own = [append // MINE == name + 1 for append in found["append"]]
    return {column: list(itertools.compress(rows, own)) for column, rows in found.items()}


def check(found: dict[str, list[Any]], before: list[Notes], after: list[Notes]) -> None:
    """Holds a version against what was noted before it was read and after."""
    counts = Counter(found["append"])
    _check_rows(found)
    _check_append(0, True, counts)
    for name, (early, late) in enumerate(zip(before, after, strict=True)):
        own = {a for a in counts if a // MINE == name + 1}
        if unknown := own - {what for _, what, _ in late.of("append")}:
            raise AssertionError(f"appends that nobody made: {unknown}")
        gone: dict[int, bool | None] = {}
        for number, what, done in late.of("delete"):
            known = _known(early.settled.get(number), done)
            if known is not False:
                gone[what] = known
        for number, what, done in late.of("append"):
            there = _known(early.settled.get(number), done)
            if what in gone:
                there = False if gone[what] else None
            _check_append(what, there, counts)
        _check_column(found, f"put{name}", early, late, "put", _as_put)
        _check_column(found, f"derived{name}", early, late, "derive", _as_derived)
        shared = own_rows({"shared": [None] * len(found["append"])} | found, name)
        _check_column(shared, "shared", early, late, "share", _as_shared)


def _known(early: bool | None, late: bool | None) -> bool | None:
    """Whether something is in what was read between two looks at the notes."""
    return early if early is not None else (None if late else late)


def _check_rows(found: dict[str, list[Any]]) -> None:
    if len(set(found["id"])) != len(found["id"]):
        raise AssertionError(f"rows twice: {[i for i, n in Counter(found['id']).items() if n > 1]}")
    for i, append, text, items in zip(
        found["id"], found["append"], found["text"], found["list"], strict=True
    ):
        if (append, text, items) != (i // ROWS, f"row {i}" * (i % 3), [i] * (i % 4)):
            raise AssertionError(f"row {i} is {(append, text, items)}")


def _check_append(append: int, there: bool | None, counts: Counter[int]) -> None:
    """Wholly there or not at all; and where that is known, as it should be."""
    whole = rows_of(append).num_rows
    allowed = {None: (0, whole), True: (whole,), False: (0,)}[there]
    if counts[append] not in allowed:
        raise AssertionError(f"append {append}: {counts[append]} rows, not one of {allowed}")


Change = tuple[int, Any]
"""The number of a change of a column, and what it wrote."""


def _check_column(
    found: dict[str, list[Any]],
    name: str,
    early: Notes,
    late: Notes,
    kind: str,
    made: Callable[[dict[str, list[Any]], list[Change]], list[Any]],
) -> None:
    """It is what the changes that were done made of it, or with one that was begun after them."""
    possible: list[list[Change]] = [[]]
    for number, what, done in late.of(kind):
        known = _known(early.settled.get(number), done)
        if known is not False:
            more = [[*changes, (number, what)] for changes in possible]
            possible = more if known else [*possible, *more]
    column = found.get(name)
    without = [None] * len(found["append"]) if kind == "share" else None
    if not any(column == (made(found, changes) if changes else without) for changes in possible):
        last = [changes[-1:] for changes in possible]
        raise AssertionError(f"{name} is {(column or ['not there'])[:40]}, none of {last}")


def _as_put(found: dict[str, list[Any]], changes: list[Change]) -> list[Any]:
    """Rows that a put does not name keep the value that they have."""
    values = {append: number for number, appends in changes for append in appends}
    return [values.get(append, -1) for append in found["append"]]


def _as_shared(found: dict[str, list[Any]], changes: list[Change]) -> list[Any]:
    """All writers put values of their own rows into one column, which no writer makes alone."""
    values = {append: number for number, appends in changes for append in appends}
    return [values.get(append) for append in found["append"]]


def _as_derived(found: dict[str, list[Any]], changes: list[Change]) -> list[Any]:
    return [i * changes[-1][0] for i in found["id"]]
