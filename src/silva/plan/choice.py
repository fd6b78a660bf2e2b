"""Choices that a plan leaves open: which of several values a parameter has.

A choice stands where a parameter or an operand of a step stands (`open.py`). The step is built once
for each value, and a plan holds all of them as the arguments of one `choice` call, until `resolve`
picks one. A plan that
nobody has resolved runs with the first value of each choice.

Values are told apart as fingerprints do: 0, 0.0 and False are three values, and two functions with
the same code are one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from silva.errors import PlanError
from silva.plan.arguments import explains
from silva.plan.class_tags import tagged
from silva.plan.decision import Decision
from silva.plan.expr import Call, Expr, Literal, Term, rebuild
from silva.plan.fingerprint import digest
from silva.plan.function import describe
from silva.plan.node import Derive, Filter, Node, transform
from silva.plan.node import walk as nodes
from silva.plan.open import Open, open_values
from silva.plan.turn import Turn, every_part, turn_of

E = TypeVar("E", bound=Expr)
OP = "choice"
Configuration = Mapping[str, Any]
"""The value of each choice, by its name."""


@tagged("Choice", "values name? -")
@dataclass(frozen=True, eq=False)
class Choice(Open):
    """Several values for one parameter. The same object in two places is one choice."""

    values: tuple[Any, ...]
    name: str | None = None
    texts: tuple[str, ...] = ()
    """What the values stand for, where they are the numbers of expressions."""

    def as_term(self) -> Term:
        """The choice as an operand: `sv.col("x") + sv.choice(1, 3)`."""
        if any(value is None for value in self.values):
            raise PlanError(f"{self!r} is an operand, and None is null in every row: leave it out")
        chosen = Chosen(self, self.name or "operand")
        return Call(OP, tuple(map(Literal, self.values)), (("choices", (chosen,)),))

    def as_step(self, made: Callable[[Any], Any]) -> Term:
        """The choice as a whole step: `derive(y=sv.choice(f, g))`. Functions stand where terms do,
        until `resolve` takes one of them."""
        chosen = Chosen(self, self.name or "step")
        return Call(OP, tuple(map(made, self.values)), (("choices", (chosen,)),))

    def spread(self, build: Callable[..., E], arguments: Mapping[str, Any]) -> E:
        places: dict[Choice, str] = {}
        for name, given in arguments.items():
            for one in open_values(given):
                assert isinstance(one, Choice)
                places.setdefault(one, name)
        made = []
        for values in itertools.product(*(one.values for one in places)):
            chosen = dict(zip(places, values, strict=True))
            made.append(build({name: _filled(one, chosen) for name, one in arguments.items()}))
        named = tuple(Chosen(one, one.name or word) for one, word in places.items())
        terms = tuple(one.term for one in made)
        return _kind_of(made)(Call(OP, terms, (("choices", named),)))

    def place(self, value: Any) -> int:
        """Which of the values this is."""
        keys = [digest(one) for one in self.values]
        if digest(value) not in keys:
            raise PlanError(f"a choice is one of {self.values}, not {value!r}")
        return keys.index(digest(value))

    def text(self, value: Any) -> str:
        """One of the values, as it was written."""
        return self.texts[self.place(value)] if self.texts else show_value(value)

    def __repr__(self) -> str:
        return f"choice({', '.join(self.texts or map(show_value, self.values))})"


@tagged("Chosen", "choice name")
@dataclass(frozen=True)
class Chosen:
    """A choice, and the parameter where it stands."""

    choice: Choice
    name: str


@explains
def choice(*values: Any, name: str | None = None) -> Any:
    """Leaves something open in a step of `derive` or `filter`: an argument of whatever builds an
    expression, `k=sv.choice(1, 3, 5)`, an operand, or the whole step.

    `run` and `serve` take the first value; `tune` finds the best ones. `name` is what the choice is
    called there, by default the parameter's name. One object in two places is one choice. A choice
    of values may also be an operand, `sv.col("x") * sv.choice(1, 3)`, and one of functions a step,
    `derive(y=sv.choice(f, g))`; a choice of expressions is an expression.

    >>> choice(1, 3, 5)
    choice(1, 3, 5)
    """
    if len(values) < 2:
        raise PlanError("choice takes at least two values: choice(1, 3, 5)")
    if name is not None and (not isinstance(name, str) or not name):
        raise PlanError(f"choice(name=…) is a text, not {name!r}")
    if len({digest(value) for value in values}) < len(values):
        raise PlanError(f"choice takes different values, and two of {values} are the same")
    if not any(isinstance(value, Expr) for value in values):
        return Choice(values, name)
    if not all(isinstance(value, Expr) for value in values):
        raise PlanError("choice takes expressions, or functions and values, not both")
    made = Choice(tuple(range(len(values))), name, tuple(map(repr, values)))
    chosen = Chosen(made, name or "step")
    return _kind_of(values)(
        Call(OP, tuple(value.term for value in values), (("choices", (chosen,)),))
    )


def _kind_of(made: Sequence[E]) -> type[E]:
    """The kind of column that all of these expressions are, by which they have methods."""
    kinds = {type(one) for one in made}
    return kinds.pop() if len(kinds) == 1 else Expr  # type: ignore[return-value]


def _filled(given: Any, chosen: Mapping[Any, Any]) -> Any:
    """An argument with values in place of its choices."""
    if isinstance(given, Choice):
        return chosen[given]
    if type(given) is dict:
        return {name: _filled(value, chosen) for name, value in given.items()}
    if type(given) in (list, tuple) and next(open_values(given), None) is not None:
        return type(given)(_filled(item, chosen) for item in given)
    return given


def choices_in(term: Term) -> tuple[Chosen, ...]:
    """The choices of an expression, in the order written."""
    calls = [part for part in every_part(term) if isinstance(part, Call) and part.op == OP]
    found: dict[Choice, Chosen] = {}
    for call in calls:
        for chosen in dict(call.params)["choices"]:
            found.setdefault(chosen.choice, chosen)
    return tuple(found.values())


def spread_expression(build: Callable[[Expr], Expr], given: Expr) -> Expr:
    """What `build` gives for an expression, for each value of the choices in it: for an expression
    that becomes a parameter."""
    found = choices_in(given.term)
    if not found:
        return build(given)
    terms = []
    for values in itertools.product(*(range(len(one.choice.values)) for one in found)):
        places = {one.choice: place for one, place in zip(found, values, strict=True)}
        term = rebuild(given.term, functools.partial(_pick, places=places))
        terms.append(build(Expr(term)).term)
    return Expr(Call(OP, tuple(terms), (("choices", found),)))


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


def open_choices(plan: Node) -> tuple[Decision, ...]:
    """What is taken for each choice of a plan that nobody has resolved."""
    return tuple(
        Decision(
            f"choice {name}",
            f"the first of {len(one.values)} values is taken, "
            f"`{one.text(one.values[0])}`; tune() finds the best",
        )
        for name, one in choices_of(plan).items()
    )


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
    places = {one: one.place(given[name]) if name in given else 0 for name, one in found.items()}

    def pick(term: Term) -> Term:
        if turn_of(term) is not None:
            assert isinstance(term, Call)
            return replace(term, params=tuple((name, settle_turn(v)) for name, v in term.params))
        return _pick(term, places)

    def settle_turn(value: Any) -> Any:
        if not isinstance(value, Turn):
            return value
        return replace(value, plan=transform(value.plan, settle))

    def settle(node: Node) -> Node:
        if isinstance(node, Derive | Filter) and isinstance(node.step, Call):
            return replace(node, step=rebuild(node.step, pick))
        return node

    return transform(plan, settle)


def show_value(value: Any) -> str:
    """A value of a choice as text."""
    return describe(value) if callable(value) else repr(value)


def _pick(term: Term, places: Mapping[Choice, int]) -> Term:
    """What a part of a step is with these values."""
    if not isinstance(term, Call) or term.op != OP:
        return term
    at = 0
    for chosen in dict(term.params)["choices"]:
        at = at * len(chosen.choice.values) + places[chosen.choice]
    return term.args[at]


def _chosen_in(node: Node) -> tuple[Chosen, ...]:
    if not isinstance(node, Derive | Filter) or not isinstance(node.step, Call):
        return ()
    return choices_in(node.step)
