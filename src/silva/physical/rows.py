"""The rows of a stage while its steps run, with what is needed to find the way back.

Each step replaces the columns; filters, explodes and failures also change which rows there are.
`origin` and `subs` then say which input row each row came of, and as which of its parts: together
they are the cursor from which a stream resumes.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silva.columns import Block, Column, Values
from silva.physical.context import Context, Failure, row_key
from silva.plan.function import Function

_FOLD = np.uint64(0x100000001B3)


@dataclass(eq=False)
class Rows:
    context: Context
    columns: dict[str, Column]
    ids: np.ndarray
    places: np.ndarray | None
    size_in: int
    """Rows that came into the stage."""
    origin: np.ndarray | None = None
    """The input row of each row; None while it is the row's own number."""
    subs: list[np.ndarray] = field(default_factory=list)
    """For each explode so far, which part of its row each row is."""
    failures: list[Failure] = field(default_factory=list)
    index: np.ndarray | None = None
    """Each row's place in its source, where some of its columns are still to be read."""

    def __len__(self) -> int:
        return len(self.ids)

    def keep(self, mask: np.ndarray) -> None:
        """Drops the rows where `mask` is False."""
        if not mask.all():
            lists = any(isinstance(column, Values) for column in self.columns.values())
            self._pick(np.flatnonzero(mask), mask.tolist() if lists else [])

    def keep_true(self, results: list[Any]) -> None:
        """Drops the rows whose result is false, as Python sees it."""
        try:
            mask = np.frombuffer(bytes(results), np.uint8)  # small integers, as bools are
        except (TypeError, ValueError):
            mask = np.fromiter(results, bool, len(results))  # numpy asks each object for its truth
        picked = np.flatnonzero(mask)
        if len(picked) < len(mask):
            self._pick(picked, results)

    def _pick(self, picked: np.ndarray, flags: list[Any]) -> None:
        """Keeps the rows at `picked`, which are those where `flags` are true (for lists)."""
        self.columns = {
            name: column.keep(flags) if isinstance(column, Values) else column.take(picked)
            for name, column in self.columns.items()
        }
        self._follow(picked)

    def repeat(self, counts: np.ndarray) -> None:
        """Every row as often as `counts` says; the copies are numbered as parts of the row."""
        picked = np.repeat(np.arange(len(self)), counts)
        starts = np.cumsum(counts) - counts
        part = np.arange(len(picked)) - np.repeat(starts, counts)
        self.columns = {name: c.take(picked) for name, c in self.columns.items()}
        places = np.zeros(len(self), np.uint64) if self.places is None else self.places
        self._follow(picked)
        self.places = places[picked] * _FOLD + part.astype(np.uint64) + np.uint64(1)
        self.subs.append(part.astype(np.int64))

    def _follow(self, picked: np.ndarray) -> None:
        self.origin = picked if self.origin is None else self.origin[picked]
        self.subs = [s[picked] for s in self.subs]
        self.ids = self.ids[picked]
        self.index = None if self.index is None else self.index[picked]
        self.places = None if self.places is None else self.places[picked]

    def key(self, row: int) -> str:
        place = None if self.places is None else int(self.places[row])
        return row_key(int(self.ids[row]), place)

    def fail(self, row: int, step: str, error: BaseException) -> None:
        """Notes that `step` failed on a row; the row itself is dropped by the caller."""
        origin = row if self.origin is None else int(self.origin[row])
        self.failures.append(
            Failure(
                row=origin,
                part=int(self.subs[0][row]) if self.subs else 0,
                key=self.key(row),
                step=step,
                error=f"{type(error).__name__}: {error}",
                traceback=user_traceback(error),
                cause=error,
            )
        )

    def block(self) -> Block:
        return Block(self.columns, self.ids, self.places)


def user_traceback(error: BaseException) -> str:
    """The traceback without silva's own frames, as the user would have seen it."""
    frames = traceback.extract_tb(error.__traceback__)
    marker = f"{__name__.split('.')[0]}/"
    own = [f for f in frames if f"/{marker}" not in f.filename.replace("\\", "/")]
    lines = ["Traceback (most recent call last):\n"] if own else []
    lines += traceback.format_list(own)
    lines += traceback.format_exception_only(error)
    return "".join(lines)


def call_arguments(function: Function, columns: dict[str, Column]) -> list[list[Any]]:
    """The rows of each column that a function reads, with private copies of those it owns."""
    out: list[list[Any]] = []
    for name in function.reads:
        rows = columns[name].rows()
        if name in function.marks.owns:
            rows = [x.copy() if isinstance(x, np.ndarray) else x for x in rows]
        out.append(rows)
    return out
