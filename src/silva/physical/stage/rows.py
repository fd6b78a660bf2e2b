"""The rows of a stage while its steps run, with the origin of each row.

Each step replaces the columns; filters, explodes and failures also change which rows there are.
`origin` and `subs` then say which input row each row came of, and as which of its parts: together
they are the cursor from which a stream resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from silva.columns import Block, Column, Values, concat
from silva.columns.owned import is_fixed, private, without_shared_containers
from silva.errors import is_wrong_answer
from silva.order.draws import Draw, stream_key
from silva.physical.stage.checks import Trial
from silva.physical.stage.context import Context, Failure, key_at
from silva.plan.function import Function, Marks

_FOLD = np.uint64(0x100000001B3)


@dataclass(eq=False)
class Rows:
    """The rows of one block between two steps."""

    context: Context
    columns: dict[str, Column]
    ids: np.ndarray
    places: np.ndarray | None
    size_in: int
    """The number of rows that came into the stage."""
    origin: np.ndarray | None = None
    """The input row of each row; None while rows are one to one."""
    subs: list[np.ndarray] = field(default_factory=list)
    """For each explode so far, the part number of each row."""
    failures: list[Failure] = field(default_factory=list)
    index: np.ndarray | None = None
    """The place of each row in its source, if some columns are still to be read."""
    at_last: bool = False
    """Whether the present step is the last one that computes."""

    def __len__(self) -> int:
        return len(self.ids)

    def keep(self, mask: np.ndarray) -> None:
        """Drops the rows where `mask` is False."""
        if not mask.all():
            lists = any(isinstance(column, Values) for column in self.columns.values())
            self._pick(np.flatnonzero(mask), mask.tolist() if lists else [])

    def keep_true(self, results: list[Any]) -> None:
        """Drops the rows whose result is false in Python's sense. Each result is asked once, since
        an object may answer differently the next time."""
        try:
            flags = bytes(results)  # small integers, as bools are
        except (TypeError, ValueError):
            flags = np.fromiter(results, bool, len(results)).tobytes()
        picked = np.flatnonzero(np.frombuffer(flags, np.uint8))
        if len(picked) < len(flags):
            self._pick(picked, flags)

    def _pick(self, picked: np.ndarray, flags: Sequence[int]) -> None:
        """Keeps the rows at `picked`, which are those where `flags` are true (for lists)."""
        if self.at_last and 2 * len(picked) > len(flags):  # an array drops a few rows faster
            self.columns = {name: _numbers(column) for name, column in self.columns.items()}
        self.columns = {
            name: column.keep(flags) if isinstance(column, Values) else column.take(picked)
            for name, column in self.columns.items()
        }
        self._follow(picked)

    def repeat(self, counts: np.ndarray) -> None:
        """Repeats every row `counts` times; the copies are numbered as parts of the row."""
        picked = np.repeat(np.arange(len(self)), counts)
        starts = np.cumsum(counts) - counts
        part = np.arange(len(picked)) - np.repeat(starts, counts)
        self.columns = {
            name: without_shared_containers(c.take(picked)) for name, c in self.columns.items()
        }
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

    def draw(self, step_id: str) -> Draw:
        """The random numbers of the rows in a step."""
        key = stream_key(self.context.seed, self.context.epoch, step_id)
        return Draw(key, self.ids, self.places)

    def key(self, row: int) -> str:
        return key_at(self.ids, self.places, row)

    def fail(self, row: int, step: str, error: BaseException) -> None:
        """Notes that `step` failed on a row; the row itself is dropped by the caller."""
        origin, parts = self.comes_from(row)
        self.failures.append(
            Failure.of(error, key=self.key(row), step=step, row=origin, parts=parts)
        )

    def comes_from(self, row: int) -> tuple[int, tuple[int, ...]]:
        """The input row of the stage that a row comes from, and its part of that row."""
        origin = row if self.origin is None else int(self.origin[row])
        return origin, tuple(int(part[row]) for part in self.subs)

    def each(
        self,
        label: str,
        run: Callable[[int], dict[str, Column]],
        names: tuple[str, ...],
        of_step: tuple[type[BaseException], ...] = (KeyboardInterrupt,),
    ) -> tuple[list[dict[str, Column]], np.ndarray]:
        """The columns that `run` gives for each row alone, and a mask of the rows in them. A row on
        which it fails is noted, and has the substitute where there is one; errors `of_step` are
        raised."""
        good = np.ones(len(self), dtype=bool)
        parts: list[dict[str, Column]] = []
        for i in range(len(self)):
            try:
                parts.append(run(i))
            except of_step:
                raise
            except BaseException as error:  # noqa: BLE001  whatever it is, it is that row's
                self.fail(i, label, error)
                if self.context.on_error == "substitute" and not is_wrong_answer(error):
                    parts.append({n: Values([self.context.substituted()]) for n in names})
                    continue
                good[i] = False
                if self.context.on_error == "raise":  # no row after this one is asked for
                    good[i:] = False
                    break
        return parts, good

    def block(self) -> Block:
        return Block(self.columns, self.ids, self.places)


def _numbers(column: Column) -> Column:
    """Python numbers of one type as an array; other columns unchanged."""
    return column.settled() if isinstance(column, Values) and column.are_numbers else column


def concat_each(parts: list[dict[str, Column]], names: tuple[str, ...]) -> dict[str, Column]:
    """The columns of these names, joined."""
    return {n: concat([p[n] for p in parts]) if parts else Values([]) for n in names}


def call_arguments(
    function: Function, columns: dict[str, Column], trial: Trial | None
) -> list[list[Any]]:
    """The rows of each column that a function reads, with private copies of those it owns."""
    out: list[list[Any]] = []
    for name in function.reads:
        rows = columns[name].rows()
        if name in function.marks.owns:
            rows = list(map(private, rows))
        elif trial is not None and not all(map(is_fixed, set(map(type, rows)))):
            rows = [trial.give(name, row) for row in rows]
        out.append(rows)
    return out


def row_dicts(
    function: Function, columns: dict[str, Column], count: int, trial: Trial | None
) -> list[dict[str, Any]]:
    """Rows as dicts, which are the function's own to change; their values are so where it owns the
    column, or all of the `row`."""
    if not columns:
        return [{} for _ in range(count)]
    owns = columns if "row" in function.marks.owns else function.marks.owns
    whole = replace(function, reads=tuple(columns), marks=Marks(owns=frozenset(owns)))
    by_row = zip(*call_arguments(whole, columns, trial), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in by_row]
