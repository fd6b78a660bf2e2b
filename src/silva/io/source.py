"""The two kinds of source, and what the engine asks of them.

Readers run in worker processes and threads, several at once: `read` and `open` must be safe to call
from many threads and must not change the source. Lists of files, footers and the like are found on
first use and may be kept (`functools.cached_property`); they are not pickled with the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from silva.columns import Column
from silva.plan.conditions import Condition


@runtime_checkable
class Source(Protocol):
    @property
    def access(self) -> Literal["indexed", "chunked"]: ...

    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""

    def types(self) -> dict[str, str]:
        """Short type names (`int64`, `str`, `bytes`, `list<int64>`) of the columns where known."""

    def describe(self) -> str:
        """One short line for plans, e.g. `files photos/**/*.jpg`; no secrets."""

    def fingerprint(self) -> str:
        """Identifies the rows: equal listings (relative paths and sizes) or data, equal text.

        Where that takes long, `sketch()` is an identity for what a mistake does not hurt.
        """

    def length(self) -> int | None:
        """Number of rows, where that can be known without reading everything."""


@runtime_checkable
class Indexed(Source, Protocol):
    """Any row can be read at the same cost; `length` is always known."""

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        """The rows at these int64 positions, in this order, with just these columns.

        May raise for the whole call if any one row is bad: the engine then asks row by row. Where
        some columns cost much more than others, `costly` names them: they are read after filters.
        Where the bytes of a row are known beforehand, `row_bytes()` tells them, by column; where
        the rows of one call are waited for together, as from a store far away, `reads_at_once`.

        A source with statistics or indices may have `may_hold_rows(rows, conditions)`, which tells
        for each row whether it can meet all conditions, and `passed_over(conditions)`, which says
        in words for `explain` what is not read, or is None where the source cannot tell by these.
        One whose rows come in groups has `groups()` and `group`, by which `shuffle(by=…)` goes.
        """


@runtime_checkable
class Chunked(Source, Protocol):
    """Rows come in units, each read from its start."""

    @property
    def replays(self) -> bool:
        """True where starting at a later row means reading and dropping those before it."""

    def units(self) -> int:
        """Number of units; fewer than 2**24."""

    def unit_rows(self) -> np.ndarray | None:
        """Rows in each unit, where known for all without reading the data."""

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        """The rows of a unit from row `start` on, in runs of at most a few MiB each.

        Every run holds at least one row and exactly these columns (with no columns asked for, the
        length of the run is told by a column called `""`).
        """


def runs_user_code(source: Source) -> bool:
    """Whether reading calls functions of the user's (a dataset's `__getitem__`, say), which may
    hold Python's lock or draw from global generators. Sources of one's own are taken to."""
    own = type(source).__module__.partition(".")[0] == "silva"
    return bool(getattr(source, "runs_user_code", not own))


def can_be_anywhere(source: Chunked) -> bool:
    """Whether any worker may read any run of rows of a chunked source: they are counted, and
    reading them neither begins at the start of a stream nor calls functions of the user's."""
    return not source.replays and not runs_user_code(source) and source.unit_rows() is not None


def may_hold(source: Source, unit: int, conditions: tuple[Condition, ...]) -> bool:
    """Whether a unit can hold a row that meets all conditions; True where the source has no
    statistics (a method `may_hold`) to tell by."""
    told = getattr(source, "may_hold", None)
    return told is None or not conditions or bool(told(unit, conditions))
