"""Calls of every operator, taken from the doctests of the methods.

So a new operator takes part in every test of all operators with some fact.
"""

from __future__ import annotations

import doctest
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

import silva as sv
from silva.operators.audio import AudioExpr
from silva.operators.image import ImageExpr
from silva.operators.list import ListExpr
from silva.operators.num import NumExpr
from silva.operators.text import TextExpr, TokensExpr
from silva.plan import expr
from silva.plan.operator import built_in_operators

E = TypeVar("E", bound=sv.Expr)
CLASSES: dict[str, tuple[type[sv.Expr], ...]] = {
    "image": (ImageExpr,),
    "text": (TextExpr, TokensExpr),
    "audio": (AudioExpr,),
    "num": (NumExpr,),
    "list": (ListExpr,),
}


def methods(kind: str) -> dict[str, Any]:
    """The public methods that the expressions of a kind have of their own."""
    found: dict[str, Any] = {}
    for cls in CLASSES[kind]:
        for owner in cls.__mro__[: cls.__mro__.index(sv.Expr)]:
            mine = owner.__module__.startswith(f"silva.operators.{kind}")
            found |= {k: v for k, v in vars(owner).items() if mine and not k.startswith("_")}
    return found


@cache
def examples() -> dict[str, tuple[expr.Call, ...]]:
    """By the name of an operator: its calls in the doctests of all methods."""
    calls: dict[str, list[expr.Call]] = {}
    names = {"sv": sv, "list": sv.list, "num": sv.num, "np": np}
    for kind in CLASSES:
        for method in methods(kind).values():
            for example in doctest.DocTestParser().get_examples(method.__doc__):
                if example.source.startswith("import "):
                    continue
                written = eval(example.source, names)  # noqa: S307  silva's own docstrings
                for part in expr.walk(written.term):
                    if isinstance(part, expr.Call) and part not in calls.setdefault(part.op, []):
                        calls[part.op].append(part)
    return {op: tuple(found) for op, found in calls.items()}


def examples_that(fact: str, kind: str) -> list[expr.Call]:
    """Calls of the operators of a kind that declare a fact."""
    declared = [o.name for o in built_in_operators() if fact in o.facts]
    return [call for op in declared if op.startswith(f"{kind}.") for call in examples().get(op, ())]


def apply(call: expr.Call, to: E) -> E:
    """The same call on another expression."""
    return type(to)(replace(call, args=(to.term, *call.args[1:])))
