"""What a client gets: the status and the JSON of each way in which a request can end."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import msgspec
import numpy as np

from silva.errors import PlanError, StepError
from silva.physical.stage.context import Failure
from silva.serve.engine import Late, Outcome
from silva.serve.models.errors import ModelError


class Reply(NamedTuple):
    """A status and a body."""

    status: int
    body: bytes


_encode = msgspec.json.Encoder(enc_hook=lambda value: _plain(value)).encode


def answered(outcome: Outcome, request: str) -> Reply:
    """The reply to a request that went through."""
    if outcome.failures and not outcome.substituted:
        return failed(outcome.failures[0], request)
    if outcome.dropped_by is not None:
        return Reply(200, _encode({"filtered": short(outcome.dropped_by)}))
    body: dict[str, Any] = {"rows": outcome.rows} if outcome.exploded else outcome.rows[0]
    if outcome.failures:
        body = {**body, "substituted": [short(failure.step) for failure in outcome.failures]}
    try:
        return Reply(200, _encode(body))
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        return refused(500, "answer", f"the answer cannot be written as JSON: {error}", request)


def failed(failure: Failure, request: str) -> Reply:
    """The reply to a request on which a step failed: 502 where the fault is upstream."""
    upstream = isinstance(failure.cause, ModelError | StepError)
    status, kind = (502, "upstream") if upstream else (422, "step")
    return refused(status, kind, failure.error, request, step=short(failure.step))


def error_reply(error: BaseException, request: str) -> Reply:
    """The reply to a request that was given up."""
    if isinstance(error, Late):
        return refused(504, "deadline", str(error), request)
    if isinstance(error, PlanError):
        return refused(422, "request", str(error), request)
    if isinstance(error, StepError):
        return refused(502, "upstream", str(error).partition("\n")[0], request)
    return refused(500, "internal", f"{type(error).__name__}", request)


def short(step: str) -> str:
    """The label of a step without the file of its function, which is the server's own affair.

    >>> short("y = lambda(x)  [/srv/app.py:3]")
    'y = lambda(x)'
    """
    return step.partition("  [")[0]


def refused(status: int, kind: str, message: str, request: str, **more: str) -> Reply:
    error = {"kind": kind, "message": message, **more}
    return Reply(status, _encode({"error": error, "request": request}))


def _plain(value: Any) -> Any:
    """JSON for values that have none: arrays as nested lists, bytes in base64."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    tolist = getattr(value, "tolist", None)
    if callable(tolist):
        return tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")
