"""Small words in which laws of operators are written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from silva.plan.expr import Call, Term


def inner(call: Call, *names: str) -> Call | None:
    """What a call is applied to, if that is a call of one of these operators."""
    first = call.args[0] if call.args else None
    return first if isinstance(first, Call) and first.op in names else None


def on(call: Call, first: Term) -> Call:
    """The same call, with the same draws, applied to something else."""
    return replace(call, args=(first, *call.args[1:]))


def swapped(outer: Call, within: Call) -> Call:
    """`outer(within(x))` as `within(outer(x))`."""
    return on(within, on(outer, within.args[0]))


def param(call: Call, name: str) -> Any:
    return dict(call.params).get(name)


def with_params(call: Call, **values: Any) -> Call:
    """The call with other parameters; one that is None is left out if it was not there."""
    params = dict(call.params) | values
    return replace(call, params=tuple(params.items()))
