"""What a stage may know about the run: the keys of its randomness, and what to do with bad rows."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Context:
    seed: int
    epoch: int
    on_error: Literal["raise", "skip", "substitute"] = "raise"
    substitute: Any = None


@dataclass(frozen=True)
class Failure:
    """A row on which a step failed, in a form that travels between processes."""

    row: int
    """The input row of the stage, counted from the start of its block."""
    part: int
    """Which part of that row, where a step exploded it."""
    key: str
    """`source:row` or `source:row:place`."""
    step: str
    """The step as the plan shows it, with the function's file and line."""
    error: str
    """The exception's type and message."""
    traceback: str
    """The user's frames."""
    cause: BaseException | None = None
    """The exception itself, where it happened in this process or could be pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "cause": _pickled(self.cause)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.cause, bytes):
            self.__dict__["cause"] = _unpickled(self.cause)


def _pickled(error: BaseException | None) -> bytes | None:
    try:
        import cloudpickle

        data: bytes = cloudpickle.dumps(error)
    except Exception:  # noqa: BLE001  a user's exception need not be picklable: the text remains
        return None
    return data


def _unpickled(data: bytes) -> BaseException | None:
    """The exception that our own worker sent over our own pipe."""
    try:
        loaded = pickle.loads(data)  # noqa: S301
    except Exception:  # noqa: BLE001  it pickled but cannot be rebuilt: the text remains
        return None
    return loaded if isinstance(loaded, BaseException) else None


TAG_SHIFT = 56
"""A row's identity holds its source in the top 8 bits."""
IN_SOURCE = (1 << TAG_SHIFT) - 1
"""The part of an identity that is the row in its source."""
UNIT_SHIFT = 32
"""A row of a chunked source is known as (unit << 32 | row in it)."""


def row_key(row_id: int, place: int | None = None) -> str:
    """A row's identity as people write it: `source:row`, for chunked sources `source:unit/row`, and
    a place after it within an exploded row.

    >>> row_key((2 << 56) | 17), row_key((3 << 32) | 5)
    ('2:17', '0:3/5')
    """
    tag, number = row_id >> TAG_SHIFT, row_id & IN_SOURCE
    unit, row = number >> UNIT_SHIFT, number & ((1 << UNIT_SHIFT) - 1)
    key = f"{tag}:{unit}/{row}" if unit else f"{tag}:{row}"
    return key if place is None else f"{key}:{place}"
