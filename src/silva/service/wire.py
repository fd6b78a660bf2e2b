"""What readers and a service say to each other: questions in JSON, batches as raw bytes.

An answer is a head in JSON, which says what follows, and then the batches end to end. A reader
names the place in the stream from which it goes on, so a service remembers nothing about its
readers that it could not do without: each question can be asked again, also of a service that was
started anew.
"""

from __future__ import annotations

from typing import Any

import msgspec

from silva import errors
from silva.errors import RowError, SilvaError

VERSION = "1"
"""In the path of every question: another service does not understand it."""

MOVES = ("epoch", "step", "shards", "cursors", "close")
"""What changes in a state from batch to batch."""


class Stream(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which stream of a service is meant."""

    pipeline: str
    """By its name, or by its fingerprint."""
    rank: int = 0
    world: int = 1
    parts: int = 0
    """Batches of the whole job are dealt out to so many ranks; 0 where each rank has its shards."""
    seed: int | None = None
    eval: bool = False
    steps: int | None = None
    """Batches of an epoch, where the reader wants so many and no more."""


class Open(msgspec.Struct, forbid_unknown_fields=True):
    """Where does this stream begin; or, can it go on from this state?"""

    stream: Stream
    epoch: int = 0
    state: dict[str, Any] | None = None


class Opened(msgspec.Struct):
    state: dict[str, Any]
    length: int | None


class Next(msgspec.Struct, forbid_unknown_fields=True):
    """What comes after this state?"""

    stream: Stream
    reader: str
    """Tells readers apart, so that none is waited for that is gone."""
    part: int
    state: dict[str, Any]
    exact: bool = True
    """If not, any place of a run that others have begun will do."""
    limit: int = 0
    """Bytes after which no further batch is added."""


class Item(msgspec.Struct):
    bytes: int | None
    """Of the batch; None where the epoch ends."""
    moved: dict[str, Any]
    """Where the stream stands after it."""


class Head(msgspec.Struct):
    items: list[Item]
    """None of them where nothing was ready in time: ask again."""


class Refusal(msgspec.Struct):
    error: str
    message: str
    key: str = ""
    step: str = ""


def refusal(error: BaseException) -> Refusal:
    """An error, in words that `raised` understands."""
    known = isinstance(error, SilvaError)
    message = str(error) if known else f"{type(error).__name__}: {error}"
    if isinstance(error, RowError):
        return Refusal(type(error).__name__, message, error.key, error.step)
    return Refusal(type(error).__name__ if known else "ServiceError", message)


def raised(found: Refusal) -> SilvaError:
    """The error that a service met, as the reader would have met it."""
    kind = getattr(errors, found.error, errors.ServiceError)
    if kind is RowError:
        return RowError(found.message, key=found.key, step=found.step)
    error: SilvaError = kind(found.message)
    return error
