"""What a stage knows about the run: the keys of its randomness, and the policy for failed rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from silva.columns.owned import private
from silva.errors import is_wrong_answer
from silva.physical.stage.raised import cure_of, in_words, pickled, unpickled, user_traceback


@dataclass(frozen=True)
class Context:
    """The keys of randomness and the policy for rows that fail."""

    seed: int
    epoch: int
    on_error: Literal["raise", "skip", "substitute"] = "raise"
    substitute: Any = None

    def substituted(self) -> Any:
        """The substitute for one row, which may change it: a copy, where it can be copied."""
        try:
            return private(self.substitute)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  an object of the user's that cannot be copied
            return self.substitute

    def computing_every_row(self) -> Context:
        """The same where a row that fails does not keep the rows after it from being computed."""
        return replace(self, on_error="skip") if self.on_error == "raise" else self


@dataclass(frozen=True)
class Failure:
    """A row on which a step failed, in a form that travels between processes."""

    row: int
    """The input row of the stage, counted from the start of its block."""
    parts: tuple[int, ...]
    """The part of that row, one number for each step that exploded it."""
    key: str
    """`source:row` or `source:row:place`."""
    step: str
    """The step as the plan shows it, with the function's file and line."""
    error: str
    """The exception's type and message."""
    traceback: str
    """The user's frames."""
    cause: BaseException | None = None
    """The exception itself, if it was raised in this process or could be pickled."""
    file: str | None = None
    """The file that the row is, of a source whose rows are files."""
    wrong_source: bool = False
    """Whether the source returned what it must not: this ends the stream whatever the policy is."""

    @staticmethod
    def of(
        error: BaseException, *, key: str, step: str, row: int = 0, parts: tuple[int, ...] = ()
    ) -> Failure:
        """The failure for an exception of user code."""
        shown = user_traceback(error) + cure_of(error)
        wrong = is_wrong_answer(error)
        return Failure(row, parts, key, step, in_words(error), shown, error, wrong_source=wrong)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "cause": pickled(self.cause)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.cause, bytes):
            self.__dict__["cause"] = unpickled(self.cause)


TAG_SHIFT = 56
"""A row's identity holds its source in the top 8 bits."""
IN_SOURCE = (1 << TAG_SHIFT) - 1
"""The part of an identity that is the row in its source."""
UNIT_SHIFT = 32
"""A row of a chunked source is known as (unit << 32 | row in it)."""


def key_at(ids: np.ndarray, places: np.ndarray | None, row: int) -> str:
    """The key of one of many rows."""
    return row_key(int(ids[row]), None if places is None else int(places[row]))


def row_key(row_id: int, place: int | None = None) -> str:
    """A row's identity as people write it: `source:row`, for chunked sources `source:unit/row`, and
    a place after it within an exploded row. Places count from 1: a row that was never exploded has
    0 in a block with rows that were.

    >>> row_key((2 << 56) | 17), row_key((3 << 32) | 5)
    ('2:17', '0:3/5')
    """
    tag, number = row_id >> TAG_SHIFT, row_id & IN_SOURCE
    unit, row = number >> UNIT_SHIFT, number & ((1 << UNIT_SHIFT) - 1)
    key = f"{tag}:{unit}/{row}" if unit else f"{tag}:{row}"
    return f"{key}:{place}" if place else key
