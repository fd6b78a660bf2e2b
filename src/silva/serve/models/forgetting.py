"""Forgetting a request: every answer that it had is deleted."""

from __future__ import annotations

from typing import Any

from silva.errors import PlanError

_IDENTITY = (1 << 56) - 1
"""The bits of a row's identity that are not its source."""


def request_name(identity: int) -> str:
    """The name under which the answers of a request are noted."""
    return f"{identity & _IDENTITY:x}"


def forget(**request: Any) -> int:
    """Deletes all answers that a request has had from models; returns their number.

    The request is known by its `id`, `sv.models.forget(id="42")`, or else by all of its columns in
    the order of `sv.requests`. An answer that other requests have had as well is computed again for
    them. A remote endpoint keeps what it keeps.

    >>> import silva as sv
    >>> sv.models.forget(id="nobody")
    0
    """
    if not request:
        raise PlanError("forget takes the columns of a request: sv.models.forget(id='42')")
    from silva.serve.models.opened import models
    from silva.serve.requests import identity_of

    return models().answers.forget(request_name(identity_of(tuple(request), request)))
