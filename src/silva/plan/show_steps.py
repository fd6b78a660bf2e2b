"""Expressions and functions as text; apart from `show`, so that workers load no plan nodes."""

from __future__ import annotations

from typing import Any

from silva.plan import expr
from silva.plan.function import Function

_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "power": "**", "equal": "==", "not_equal": "!=", "less": "<",
    "less_equal": "<=", "greater": ">", "greater_equal": ">=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_PREFIX = {"negative": "-", "not": "~"}


def show_step(step: expr.Term | Function) -> str:
    if isinstance(step, Function):
        names = [*step.reads, *(["rng"] if step.takes_rng else [])]
        return f"{step.name}({', '.join(names)})  [{step.where}]"
    return show_term(step)


def show_term(term: expr.Term) -> str:
    match term:
        case expr.Col():
            return term.name
        case expr.Literal():
            return _short(term.value)
        case expr.RowId():
            return "row id"
        case expr.Call():
            return _show_call(term)


def _show_call(call: expr.Call) -> str:
    args = [
        f"({show_term(a)})" if isinstance(a, expr.Call) and a.op in _INFIX else show_term(a)
        for a in call.args
    ]
    if call.op in _INFIX:
        return f"{args[0]} {_INFIX[call.op]} {args[1]}"
    if call.op in _PREFIX:
        return f"{_PREFIX[call.op]}{args[0]}"
    name = call.op.rpartition(".")[2]
    if call.op == "join.take":  # of which table is told by what found the row
        names = (dict(call.params)["column"], *dict(call.params)["carries"])
        return f"{args[0]}.{name}({', '.join(names)})"
    shown = [*args[1:], *(_show_param(k, v) for k, v in call.params if v is not None)]
    return f"{args[0]}.{name}({', '.join(shown)})"


def _show_param(name: str, value: Any) -> str:
    text = _short(value)
    return text if text.startswith(f"{name} of ") else f"{name}={text}"  # "table of 9 × 4 float32"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"
