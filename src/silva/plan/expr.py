"""Column expressions: plain data, and the fluent form in which people write them.

`Col`, `Literal`, `RowId` and `Call` are the data that plans hold and compare by value. `Expr` is
what `sv.col("x")` returns: it overloads Python's operators and builds that data. A kind of column
(`sv.image`, `sv.text`, …) is a subclass of `Expr` whose methods append a `Call`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, Union

from silva.errors import PlanError

Term = Union["Col", "Literal", "RowId", "Call"]
E = TypeVar("E", bound="Expr")


@dataclass(frozen=True)
class Col:
    name: str


@dataclass(frozen=True)
class Literal:
    value: Any


@dataclass(frozen=True)
class RowId:
    """The row's identity: its source and its place in it."""


@dataclass(frozen=True)
class Call:
    op: str
    """The operator's registered name, e.g. `image.resize`."""
    args: tuple[Term, ...]
    params: tuple[tuple[str, Any], ...] = ()
    draw: tuple[str, int] | None = field(default=None, repr=False)
    """Of a random call that may be moved: the step it was written in and its place there, by which
    it draws. None while it stands where it was written."""


def walk(term: Term) -> Iterator[Term]:
    """Every term below and including `term`, arguments first, in the order written."""
    if isinstance(term, Call):
        for arg in term.args:
            yield from walk(arg)
    yield term


def columns_read(term: Term) -> tuple[str, ...]:
    """Names of the columns that `term` reads, in the order of first use."""
    return tuple(dict.fromkeys(t.name for t in walk(term) if isinstance(t, Col)))


def rebuild(term: Term, change: Callable[[Term], Term]) -> Term:
    """The term with `change` applied to every part, arguments first. A part that stands in several
    places is changed once, and stays one part; what does not change stays the same object."""
    made: dict[int, Term] = {}

    def visit(part: Term) -> Term:
        if id(part) not in made:
            new = part
            if isinstance(part, Call):
                args = tuple(visit(arg) for arg in part.args)
                if any(a is not b for a, b in zip(args, part.args, strict=True)):
                    new = replace(part, args=args)
            made[id(part)] = change(new)
        return made[id(part)]

    return visit(term)


def pinned(term: Term, step: str, is_random: Callable[[Call], bool]) -> Term:
    """The term with every random call bound to the draws that it has where it stands, in `step`, so
    that they stay the same wherever it is moved to."""
    made: dict[int, Term] = {}
    for place, part in enumerate(walk(term)):
        if id(part) in made:
            continue
        made[id(part)] = part
        if isinstance(part, Call):
            args = tuple(made[id(arg)] for arg in part.args)
            moved = any(a is not b for a, b in zip(args, part.args, strict=True))
            draw = (step, place) if part.draw is None and is_random(part) else part.draw
            if moved or draw is not part.draw:
                made[id(part)] = replace(part, args=args, draw=draw)
    return made[id(term)]


def width(term: Term) -> int:
    """How many columns a term makes: one, and one for each that its rows carry along."""
    for part in walk(term):
        if isinstance(part, Call) and (carried := dict(part.params).get("carries")):
            return 1 + len(carried)
    return 1


class Expr:
    """An expression over columns, written with Python's operators.

    >>> (col("label") >= 0) & (col("size") < 10)
    (label >= 0) & (size < 10)
    """

    __slots__ = ("term",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, term: Term | str) -> None:
        self.term: Term = Col(term) if isinstance(term, str) else term

    def _call(self: E, op: str, *args: Any, **params: Any) -> E:
        """This expression with `op` applied to it: what an operator's method returns."""
        terms = (self.term, *(_term(a) for a in args))
        return type(self)(Call(op, terms, tuple(params.items())))

    def _any(self, op: str, *args: Any) -> Expr:
        return Expr(Call(op, (self.term, *(_term(a) for a in args))))

    def _reversed(self, op: str, left: Any) -> Expr:
        return Expr(Call(op, (_term(left), self.term)))

    def __repr__(self) -> str:
        from silva.plan.show_steps import show_term

        return show_term(self.term)

    def __bool__(self) -> bool:
        raise PlanError(
            f"the expression {self!r} has no truth value: combine conditions with &, | and ~ "
            "(not and, or, not), and put comparisons in parentheses"
        )

    def __iter__(self) -> Iterator[Any]:
        raise PlanError(f"the expression {self!r} is one column and cannot be iterated")

    def __add__(self, other: Any) -> Expr:
        return self._any("add", other)

    def __radd__(self, other: Any) -> Expr:
        return self._reversed("add", other)

    def __sub__(self, other: Any) -> Expr:
        return self._any("subtract", other)

    def __rsub__(self, other: Any) -> Expr:
        return self._reversed("subtract", other)

    def __mul__(self, other: Any) -> Expr:
        return self._any("multiply", other)

    def __rmul__(self, other: Any) -> Expr:
        return self._reversed("multiply", other)

    def __truediv__(self, other: Any) -> Expr:
        return self._any("divide", other)

    def __rtruediv__(self, other: Any) -> Expr:
        return self._reversed("divide", other)

    def __floordiv__(self, other: Any) -> Expr:
        return self._any("floor_divide", other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return self._reversed("floor_divide", other)

    def __mod__(self, other: Any) -> Expr:
        return self._any("remainder", other)

    def __rmod__(self, other: Any) -> Expr:
        return self._reversed("remainder", other)

    def __pow__(self, other: Any) -> Expr:
        return self._any("power", other)

    def __rpow__(self, other: Any) -> Expr:
        return self._reversed("power", other)

    def __neg__(self) -> Expr:
        return self._any("negative")

    def __abs__(self) -> Expr:
        return self._any("absolute")

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self._any("equal", other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self._any("not_equal", other)

    def __lt__(self, other: Any) -> Expr:
        return self._any("less", other)

    def __le__(self, other: Any) -> Expr:
        return self._any("less_equal", other)

    def __gt__(self, other: Any) -> Expr:
        return self._any("greater", other)

    def __ge__(self, other: Any) -> Expr:
        return self._any("greater_equal", other)

    def __and__(self, other: Any) -> Expr:
        return self._any("and", other)

    def __rand__(self, other: Any) -> Expr:
        return self._reversed("and", other)

    def __or__(self, other: Any) -> Expr:
        return self._any("or", other)

    def __ror__(self, other: Any) -> Expr:
        return self._reversed("or", other)

    def __xor__(self, other: Any) -> Expr:
        return self._any("xor", other)

    def __rxor__(self, other: Any) -> Expr:
        return self._reversed("xor", other)

    def __invert__(self) -> Expr:
        return self._any("not")

    def is_null(self) -> Expr:
        """True where the row has no value."""
        return self._any("is_null")

    def is_in(self, values: Any) -> Expr:
        """True where the value is one of `values`."""
        return Expr(Call("is_in", (self.term,), (("values", tuple(values)),)))

    def cast(self, dtype: Any) -> Expr:
        """The same numbers as another numpy dtype."""
        import numpy as np

        return Expr(Call("cast", (self.term,), (("dtype", np.dtype(dtype).str),)))


def _term(value: Any) -> Term:
    if isinstance(value, Expr):
        return value.term
    return Literal(value)


def col(name: str) -> Expr:
    """Any column, by name.

    >>> col("x") * 2 + 1
    (x * 2) + 1
    """
    if not isinstance(name, str):
        raise PlanError(f"a column's name is a string, not {name!r}")
    return Expr(Col(name))
