"""What a client gets: the status and the JSON of each way in which a request can end.

No reply holds what is the server's own affair: files, addresses, constants of a plan, the texts
of exceptions. Those go to the log, under the id of the request. A function tells a client what is
wrong with its request by raising a `RequestError`.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from silva.errors import PlanError, RequestError, StepError
from silva.physical.stage.context import Failure
from silva.physical.stage.raised import in_words
from silva.plan.function import Function
from silva.serve.engine.engine import Late, Outcome
from silva.serve.engine.units import Unit
from silva.serve.loop.turns import TurnError
from silva.serve.models.errors import ModelError
from silva.serve.tenant import BudgetSpent

OWN_KEYS = ("filtered", "substituted", "rows", "error")
"""Keys of replies that are no columns."""
logger = logging.getLogger("silva.serve")


class Reply(NamedTuple):
    """A status and a body."""

    status: int
    body: bytes
    request: str
    """The id of the request that it was made for."""
    retry_after: float | None = None
    """Seconds after which the request may be admitted."""

    @property
    def is_final(self) -> bool:
        """Whether the same request would end in the same way if it came again."""
        return self.status < 500 and self.status != 429


class Replies:
    """The replies of one pipeline."""

    def __init__(self, units: Iterable[Unit], columns: Iterable[str]) -> None:
        taken = [name for name in columns if name in OWN_KEYS]
        if taken:
            raise PlanError(
                f"a reply has a key {taken[0]!r} of its own: rename the column {taken[0]!r} before "
                "the pipeline is served"
            )
        self._shown = {unit.label: shown(unit) for unit in units}

    def answered(self, outcome: Outcome, request: str) -> Reply:
        """The reply to a request that went through."""
        goes_on = outcome.substituted or outcome.dropped_by is not None
        if outcome.failures and not goes_on:
            return self._failed(outcome.failures[0], request)
        body: dict[str, Any] = {"rows": outcome.rows} if outcome.exploded else {}
        if outcome.dropped_by is not None:
            body = {"filtered": self.step(outcome.dropped_by)}
        elif not outcome.exploded:
            body = outcome.rows[0]
        if outcome.failures:
            steps = [self.step(failure.step) for failure in outcome.failures]
            body = {**body, "substituted": steps}
        try:
            return Reply(200, _encode(body), request)
        except Exception as error:  # noqa: BLE001  values of any class are asked for their JSON
            return self._unwritten(outcome, error, request)

    def error(self, error: BaseException, request: str) -> Reply:
        """The reply to a request that was given up."""
        if isinstance(error, Late):
            step = self.step(error.waits_for)
            return refused(504, "deadline", "the deadline has passed", request, step=step)
        logger.error("request %s ended in an error", request, exc_info=error)
        if isinstance(error, ModelError | StepError):
            return refused(502, "upstream", "a step of the pipeline cannot run", request)
        return refused(500, "internal", "the server failed", request)

    def step(self, label: str) -> str:
        """The name of a step as clients may see it."""
        return self._shown.get(label, "")

    def _failed(self, failure: Failure, request: str) -> Reply:
        """The reply to a request on which a step failed: 502 where the fault is upstream."""
        step, cause = self.step(failure.step), failure.cause
        while isinstance(cause, TurnError):
            cause = cause.__cause__
        if isinstance(cause, RequestError):
            said = in_words(cause).removeprefix(f"{type(cause).__name__}: ")
            return refused(422, "request", said, request, step=step)
        if isinstance(cause, BudgetSpent):
            return refused(429, "money", str(cause), request, step=step)
        more = f"\n{failure.traceback}" if failure.traceback else ""
        logger.warning("request %s: `%s` failed: %s%s", request, failure.step, failure.error, more)
        if isinstance(cause, ModelError | StepError):
            message = "a model that the step asks has failed"
            return refused(502, "upstream", message, request, step=step)
        kind = type(cause).__name__ if cause is not None else "error"
        return refused(422, "step", f"the step failed on this request: {kind}", request, step=step)

    def _unwritten(self, outcome: Outcome, error: Exception, request: str) -> Reply:
        logger.error("request %s: the answer has no JSON form", request, exc_info=error)
        bad = next((n for row in outcome.rows for n in row if not _has_json(row[n])), "")
        return refused(500, "answer", f"the column {bad!r} has no JSON form", request)


def shown(unit: Unit) -> str:
    """The name of a step without what is the server's own affair: a function and its columns; of
    an expression only the columns that it makes, or that it filters by.

    A function's label ends with its file.
    """
    if isinstance(unit.step.runs, Function):
        return unit.label.partition("  [")[0]
    if unit.step.writes:
        return ", ".join(unit.step.writes)
    if unit.label.startswith("filter"):
        return f"filter by {', '.join(sorted(unit.step.reads or ()))}"
    return "select"


def refused(
    status: int,
    kind: str,
    message: str,
    request: str,
    *,
    retry_after: float | None = None,
    **more: str,
) -> Reply:
    error = {"kind": kind, "message": message, **more}
    return Reply(status, _encode({"error": error, "request": request}), request, retry_after)


def _has_json(value: Any) -> bool:
    try:
        _encode(value)
    except Exception:  # noqa: BLE001  whatever it is
        return False
    return True


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


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
