"""Rows with known answers, and the requests in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from silva.errors import PlanError
from silva.plan.node import Explode, Node, walk
from silva.serve.requests import ID

Row = Mapping[str, Any]


def request_of(names: Sequence[str], row: Row, number: int) -> dict[str, Any]:
    """The request in a row with known answers; its number is its id where the request has one and
    the row does not."""
    if not isinstance(row, Mapping):
        raise PlanError(f"a row with known answers is a dict, not {row!r:.80}: row {number}")
    if ID in names and ID not in row:
        row = {**row, ID: number}
    missing = [name for name in names if name not in row]
    if missing:
        raise PlanError(f"row {number} has no {missing[0]!r}, which a request has")
    return {name: row[name] for name in names}


def check_answers_once(plan: Node) -> None:
    """Refuses a pipeline that makes several rows of a request."""
    exploded = [node.column for node in walk(plan) if isinstance(node, Explode)]
    if exploded:
        raise PlanError(
            f"explode({exploded[0]!r}) makes several rows of a request, and a metric judges one "
            "answer: leave it out, and judge the list"
        )
