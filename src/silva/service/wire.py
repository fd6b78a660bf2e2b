"""The protocol between readers and a service: requests in JSON, batches as raw bytes.

A response is a head in JSON, which lists what follows, and then the batches end to end. A request
holds the state that the reader continues from, so a service need not remember its readers: each
request can be repeated, also to a service that was restarted.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from silva import errors
from silva.errors import RowError, SilvaError

VERSION = "1"
"""The version of the protocol; part of every path."""

PROGRESS = ("epoch", "step", "shards", "cursors", "failures", "close")
"""The keys of a state that change from batch to batch."""


class StreamKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Identifies one stream of a service."""

    pipeline: str
    """The name of the pipeline, or its fingerprint."""
    rank: int = 0
    world: int = 1
    parts: int = 0
    """The number of ranks among which each batch is split; 0 if each rank reads its own shards."""
    seed: int | None = None
    eval: bool = False
    steps: int | None = None
    """The number of batches in an epoch, if the reader sets it."""


class OpenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Asks where a stream begins, or whether it can continue from a state."""

    stream: StreamKey
    epoch: int = 0
    state: dict[str, Any] | None = None


class OpenResponse(msgspec.Struct, omit_defaults=True):
    state: dict[str, Any]
    length: int | None
    local: str | None = None
    """The name of the Unix socket for readers on the same machine."""


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Asks for the batches after a state."""

    stream: StreamKey
    reader: str
    """A random name, so that the service does not wait for readers that are gone."""
    part: int
    state: dict[str, Any]
    exact: bool = True
    """False accepts any position in a run that other readers have started."""
    limit: int = 0
    """Bytes after which no further batch is added to the response."""


class ByteRange(msgspec.Struct, array_like=True):
    """Some bytes of a batch: bytes of a file that came with the response, or of the response."""

    bytes: Annotated[int, msgspec.Meta(ge=0)]
    file: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The number of the file; None for bytes of the response."""
    offset: Annotated[int, msgspec.Meta(ge=0, le=1 << 48)] = 0


class BatchHead(msgspec.Struct, omit_defaults=True):
    bytes: Annotated[int, msgspec.Meta(ge=0)] | None
    """The size of the batch; None at the end of an epoch."""
    moved: dict[str, Any]
    """What has changed in the state after it."""
    ranges: list[ByteRange] | None = msgspec.field(default=None, name="pieces")
    """Where a reader on the same machine finds the bytes of the batch; None if all of them are
    in the response."""


class ResponseHead(msgspec.Struct):
    items: list[BatchHead]
    """Empty if no batch was ready in time: the reader asks again."""


class ErrorResponse(msgspec.Struct):
    error: str
    message: str
    key: str = ""
    step: str = ""


def error_response(error: BaseException) -> ErrorResponse:
    """An error as a response, which `error_from` turns back into the error."""
    known = isinstance(error, SilvaError)
    message = str(error) if known else f"{type(error).__name__}: {error}"
    if isinstance(error, RowError):
        return ErrorResponse(type(error).__name__, message, error.key, error.step)
    return ErrorResponse(type(error).__name__ if known else "ServiceError", message)


def error_from(found: ErrorResponse) -> SilvaError:
    """The error of a service, as a loader in this process would have raised it."""
    kind = getattr(errors, found.error, errors.ServiceError)
    if kind is RowError:
        return RowError(found.message, key=found.key, step=found.step)
    error: SilvaError = kind(found.message)
    return error
