"""Choices that a plan leaves open: which of several values a parameter has.

A choice stands where a parameter stands. The step is built once for each value, and a plan holds
all of them as the arguments of one `choice` call, until `resolve` picks one. A plan that nobody has
resolved runs with the first value of each choice.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ParamSpec

from silva.errors import PlanError
from silva.plan.class_tags import tagged
from silva.plan.expr import Call, Expr, Term, rebuild, walk
from silva.plan.node import Derive, Filter, Node, transform
from silva.plan.node import walk as nodes

P = ParamSpec("P")
OP = "choice"
Configuration = Mapping[str, Any]
"""The value of each choice, by its name."""


@tagged("Choice", "values name?")
@dataclass(frozen=True, eq=False)
class Choice:
    """Several values for one parameter. The same object in two places is one choice."""

    values: tuple[Any, ...]
    name: str | None = None

    def __repr__(self) -> str:
        return f"choice({', '.join(map(repr, self.values))})"


@tagged("Chosen", "choice name")
@dataclass(frozen=True)
class Chosen:
    """A choice, and the parameter where it stands."""

    choice: Choice
    name: str


def choice(*values: Any, name: str | None = None) -> Any:
    """Leaves a parameter open: `k=sv.choice(1, 3, 5)`, or a whole step.

    `run` and `serve` take the first value; `tune` finds the best ones. `name` is what the choice is
    called there, by default the parameter's name. One object in two places is one choice.

    >>> choice(1, 3, 5)
    choice(1, 3, 5)
    """
    if len(values) < 2:
        raise PlanError("choice takes at least two values: choice(1, 3, 5)")
    if name is not None and (not isinstance(name, str) or not name):
        raise PlanError(f"choice(name=…) is a text, not {name!r}")
    if not any(isinstance(value, Expr) for value in values):
        return Choice(values, name)
    if not all(isinstance(value, Expr) for value in values):
        raise PlanError("choice takes expressions or values, not both")
    made = Choice(tuple(range(len(values))), name)
    chosen = Chosen(made, name or "step")
    return Expr(Call(OP, tuple(value.term for value in values), (("choices", (chosen,)),)))


def chooses(method: Callable[P, Expr]) -> Callable[P, Expr]:
    """Lets a method that builds an expression take choices as its arguments."""

    @functools.wraps(method)
    def build(*args: P.args, **kwargs: P.kwargs) -> Expr:
        open_args = {i: arg for i, arg in enumerate(args) if isinstance(arg, Choice)}
        open_kwargs = {n: arg for n, arg in kwargs.items() if isinstance(arg, Choice)}
        if not open_args and not open_kwargs:
            return method(*args, **kwargs)
        places: list[Any] = [*open_args, *open_kwargs]
        found = [*open_args.values(), *open_kwargs.values()]
        terms = []
        for values in itertools.product(*(one.values for one in found)):
            given = dict(zip(places, values, strict=True))
            these = [given.get(i, arg) for i, arg in enumerate(args)]
            named = {n: given.get(n, arg) for n, arg in kwargs.items()}
            terms.append(method(*these, **named).term)
        words = [
            one.name or (p if isinstance(p, str) else method.__name__)
            for p, one in zip(places, found, strict=True)
        ]
        chosen = tuple(Chosen(one, word) for one, word in zip(found, words, strict=True))
        return Expr(Call(OP, tuple(terms), (("choices", chosen),)))

    return build


def choices_of(plan: Node) -> dict[str, Choice]:
    """The open choices of a plan, by name, in the order written. A name that stands for different
    choices gets a number."""
    found: dict[str, Choice] = {}
    for node in nodes(plan):
        for chosen in _chosen_in(node):
            if chosen.choice in found.values():
                continue
            name, number = chosen.name, 2
            while name in found:
                name, number = f"{chosen.name}#{number}", number + 1
            found[name] = chosen.choice
    return found


def configurations(plan: Node) -> list[dict[str, Any]]:
    """Every combination of values, the first values first."""
    found = choices_of(plan)
    every = itertools.product(*(one.values for one in found.values()))
    return [dict(zip(found, values, strict=True)) for values in every]


def resolve(plan: Node, configuration: Configuration | None = None) -> Node:
    """The plan with a value for each choice: that of the configuration, or else the first."""
    found = choices_of(plan)
    if not found:
        return plan
    given = configuration or {}
    for name in given:
        if name not in found:
            raise PlanError(f"there is no choice {name!r}; there are {', '.join(found)}")
    values = {one: given.get(name, one.values[0]) for name, one in found.items()}

    def pick(term: Term) -> Term:
        if not isinstance(term, Call) or term.op != OP:
            return term
        at = 0
        for chosen in dict(term.params)["choices"]:
            options = chosen.choice.values
            value = values[chosen.choice]
            if value not in options:
                raise PlanError(f"{chosen.name} is one of {options}, not {value!r}")
            at = at * len(options) + options.index(value)
        return term.args[at]

    def settle(node: Node) -> Node:
        if isinstance(node, Derive | Filter) and isinstance(node.step, Call):
            return replace(node, step=rebuild(node.step, pick))
        return node

    return transform(plan, settle)


def _chosen_in(node: Node) -> list[Chosen]:
    if not isinstance(node, Derive | Filter) or not isinstance(node.step, Call):
        return []
    calls = [part for part in walk(node.step) if isinstance(part, Call) and part.op == OP]
    return [chosen for call in calls for chosen in dict(call.params)["choices"]]
