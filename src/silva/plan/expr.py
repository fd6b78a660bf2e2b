"""Column expressions: plain data, the fluent form in which people write them, and their text.

`Col`, `Literal`, `RowId`, `Call` and `Later` are the data that plans hold and compare by value.
`Expr` is what `sv.col("x")` returns: it overloads Python's operators and builds that data. A kind
of column (`sv.image`, `sv.text`, …) is a subclass of `Expr` whose methods append a `Call`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, Union

from silva.errors import PlanError
from silva.plan.arguments import explains_verbs, missing
from silva.plan.class_tags import tagged
from silva.plan.hints import EXPRESSIONS
from silva.plan.open import Open, chooses, methods_choose

Term = Union["Col", "Literal", "RowId", "Call", "Later"]
E = TypeVar("E", bound="Expr")


@tagged("Col", "name")
@dataclass(frozen=True)
class Col:
    """The value of a column."""

    name: str


@tagged("Literal", "value")
@dataclass(frozen=True)
class Literal:
    """A constant."""

    value: Any


@tagged("RowId", "")
@dataclass(frozen=True)
class RowId:
    """The identity of a row: its source and its place there."""


@tagged("Call", "op args params draw?")
@dataclass(frozen=True)
class Call:
    """An operator applied to other terms."""

    op: str
    """The operator's registered name, e.g. `image.resize`."""
    args: tuple[Term, ...]
    params: tuple[tuple[str, Any], ...] = ()
    draw: tuple[str, int] | None = field(default=None, repr=False)
    """The step in which a random call was written, and its place there: its random numbers are
    keyed by both. None until the call is pinned, which is before any rewrite."""


@tagged("Later", "name term")
@dataclass(frozen=True)
class Later:
    """An argument that its operator evaluates itself, on those rows that need it. The kernel, which
    works row by row, finds it among its parameters: a function from the numbers of rows to a
    column."""

    name: str
    """The parameter."""
    term: Term


def walk(term: Term) -> Iterator[Term]:
    """Yields `term` and every term within it, arguments first, in the order written."""
    for part in parts_of(term):
        yield from walk(part)
    yield term


def walk_always(term: Term) -> Iterator[Term]:
    """The same without what is evaluated on some of the rows only."""
    for part in parts_of(term):
        if not isinstance(part, Later):
            yield from walk_always(part)
    yield term


def parts_of(term: Term) -> tuple[Term, ...]:
    """The terms that a term is made of."""
    match term:
        case Call():
            return term.args
        case Later():
            return (term.term,)
    return ()


def columns_read(term: Term) -> tuple[str, ...]:
    """Names of the columns that `term` reads, in the order of first use."""
    return tuple(dict.fromkeys(t.name for t in walk(term) if isinstance(t, Col)))


def rebuild(term: Term, change: Callable[[Term], Term]) -> Term:
    """The term with `change` applied to every part, arguments first. A part that occurs in several
    places is changed once and stays one object; a part that does not change stays the same object.
    """
    made: dict[int, Term] = {}

    def visit(part: Term) -> Term:
        if id(part) not in made:
            new = part
            before = parts_of(part)
            after = tuple(map(visit, before))
            if any(a is not b for a, b in zip(after, before, strict=True)):
                new = with_parts(part, after)
            made[id(part)] = change(new)
        return made[id(part)]

    return visit(term)


def with_parts(term: Term, parts: tuple[Term, ...]) -> Term:
    """The term, made of other ones."""
    match term:
        case Call():
            return replace(term, args=parts)
        case Later():
            return replace(term, term=parts[0])
    return term


def width(term: Term) -> int:
    """The number of columns that a term computes: one, and one for each that is carried along."""
    for part in walk(term):
        if isinstance(part, Call) and (carried := dict(part.params).get("carries")):
            return 1 + len(carried)
    return 1


def _infix(op: str) -> Callable[[Expr, Any], Expr]:
    return lambda self, other: self._any(op, other)


def _reflected(op: str) -> Callable[[Expr, Any], Expr]:
    return lambda self, left: self._reversed(op, left)


def _prefix(op: str) -> Callable[[Expr], Expr]:
    return lambda self: self._any(op)


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
        for name, value in params.items():
            if _is_array(value):
                raise PlanError(
                    f"{op}: {name} is no array: pass a plain value, such as .item() or .tolist() "
                    f"of {value!r:.60}"
                )
        terms = (self.term, *(_term(a) for a in args))
        return type(self)(Call(op, terms, tuple(params.items())))

    def _any(self, op: str, *args: Any) -> Expr:
        self._refuse_none(*args)
        return Expr(Call(op, (self.term, *(_term(a) for a in args))))

    def _reversed(self, op: str, left: Any) -> Expr:
        self._refuse_none(left)
        return Expr(Call(op, (_term(left), self.term)))

    def _refuse_none(self, *others: Any) -> None:
        if any(other is None for other in others):
            raise PlanError(
                f"{self!r} is compared or combined with None, which is null in every row, so a "
                "filter would drop them all: write sv.col('x').is_null() for the rows without a "
                "value, and ~sv.col('x').is_null() for the others"
            )

    def __init_subclass__(cls) -> None:
        """Errors about the arguments of a method name those that there are; any argument may be a
        choice."""
        methods_choose(explains_verbs(cls))

    def __repr__(self) -> str:
        return show_term(self.term)

    def __bool__(self) -> bool:
        raise PlanError(
            f"the expression {self!r} has no truth value: combine conditions with &, | and ~ "
            "(not and, or, not), and put comparisons in parentheses"
        )

    if not TYPE_CHECKING:  # a type checker goes on to find names that do not exist

        def __getattr__(self, name):
            raise missing(self, "an expression", name, EXPRESSIONS)

    def __iter__(self) -> Iterator[Any]:
        raise PlanError(f"the expression {self!r} is one column and cannot be iterated")

    __add__ = _infix("add")
    __radd__ = _reflected("add")
    __sub__ = _infix("subtract")
    __rsub__ = _reflected("subtract")
    __mul__ = _infix("multiply")
    __rmul__ = _reflected("multiply")
    __truediv__ = _infix("divide")
    __rtruediv__ = _reflected("divide")
    __floordiv__ = _infix("floor_divide")
    __rfloordiv__ = _reflected("floor_divide")
    __mod__ = _infix("remainder")
    __rmod__ = _reflected("remainder")
    __pow__ = _infix("power")
    __rpow__ = _reflected("power")
    __neg__ = _prefix("negative")
    __abs__ = _prefix("absolute")

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self._any("equal", _comparable(self, other))

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self._any("not_equal", _comparable(self, other))

    __lt__ = _infix("less")
    __le__ = _infix("less_equal")
    __gt__ = _infix("greater")
    __ge__ = _infix("greater_equal")
    __and__ = _infix("and")
    __rand__ = _reflected("and")
    __or__ = _infix("or")
    __ror__ = _reflected("or")
    __xor__ = _infix("xor")
    __rxor__ = _reflected("xor")
    __invert__ = _prefix("not")

    def is_null(self) -> Expr:
        """True where the row has no value."""
        return self._any("is_null")

    @chooses
    def is_in(self, values: Any) -> Expr:
        """True where the value is one of `values`, a list: `col("x").is_in(["a", "b"])`. Null where
        the row has no value, unless None is one of them."""
        if isinstance(values, str | bytes):
            raise PlanError(
                f"is_in takes a list of values, and {values!r} would count as a list of letters: "
                f"write is_in([{values!r}])"
            )
        if not isinstance(values, Iterable):
            raise PlanError(f"is_in takes a list of values, not {values!r}")
        if _is_array(values) and values.ndim != 1:  # type: ignore[attr-defined]
            raise PlanError(f"is_in takes a list of values, not {values!r:.60}: ravel() it")
        return Expr(Call("is_in", (self.term,), (("values", tuple(values)),)))

    @chooses
    def cast(self, dtype: Any) -> Expr:
        """The same numbers as another numpy dtype."""
        import numpy as np

        try:
            found = np.dtype(dtype)
        except (TypeError, ValueError):  # also text that is no Unicode
            raise PlanError(f"cast(…) takes a numpy dtype, e.g. 'float32', not {dtype!r}") from None
        return Expr(Call("cast", (self.term,), (("dtype", found.str),)))


def _is_array(value: object) -> bool:
    """Whether a value is an array or a tensor, as opposed to a number of numpy's."""
    import numpy as np

    return hasattr(value, "__array__") and not isinstance(value, np.generic)


def _term(value: Any) -> Term:
    if isinstance(value, Expr):
        return value.term
    if isinstance(value, Open):
        return value.as_term()
    return Literal(value)


def _comparable(expr: Expr, other: Any) -> Any:
    """The other side of a comparison. A list is refused: no value equals it, so no row would
    pass."""
    if isinstance(other, list | tuple | set | frozenset):
        raise PlanError(
            f"{expr!r} is compared with several values, {other!r}, and no value is equal to them "
            "all: write is_in([…])"
        )
    return other


@chooses
def col(name: str) -> Expr:
    """Any column, by name.

    >>> col("x") * 2 + 1
    (x * 2) + 1
    """
    if not isinstance(name, str):
        raise PlanError(f"a column's name is a string, not {name!r}")
    return Expr(Col(name))


_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "power": "**", "equal": "==", "not_equal": "!=", "less": "<",
    "less_equal": "<=", "greater": ">", "greater_equal": ">=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_PREFIX = {"negative": "-", "not": "~"}


def show_term(term: Term) -> str:
    """An expression as text, in the form in which it is written."""
    match term:
        case Col():
            return term.name
        case Literal():
            return _short(term.value)
        case RowId():
            return "row id"
        case Later():
            return f"{term.name}={show_term(term.term)}"
        case Call():
            return _show_call(term)


def _show_call(call: Call) -> str:
    args = [f"({show_term(a)})" if _is_wide(a) else show_term(a) for a in call.args]
    if call.op in _INFIX:
        return f"{args[0]} {_INFIX[call.op]} {args[1]}"
    if call.op in _PREFIX:
        return f"{_PREFIX[call.op]}{args[0]}"
    name = call.op.rpartition(".")[2]
    if call.op == "choice":
        return _show_choice(call)
    if call.op == "cascade.choose":
        small, sure, large = map(show_term, call.args)
        return f"cascade({small}, {large}, accept={sure}, {call.params[0][1]!r})"
    if call.op.startswith("loop."):
        return repr(call.params[0][1])
    if call.op == "join.take":  # the match that found the row names the table
        names = (dict(call.params)["column"], *dict(call.params)["carries"])
        return f"{args[0]}.{name}({', '.join(names)})"
    shown = [*args[1:], *(_show_param(k, v) for k, v in call.params if v is not None)]
    of = f"{args[0]}." if args else ""  # a prompt without fields reads no column
    return f"{of}{name}({', '.join(shown)})"


def _is_wide(term: Term) -> bool:
    """Whether a term is shown in parentheses within another one."""
    if not isinstance(term, Call):
        return False
    return term.op in _INFIX or (term.op == "choice" and not _shows_values(term))


def _shows_values(choice: Call) -> bool:
    """Whether a choice is shown by its values: one of steps or operands."""
    of_expressions = any(one.choice.texts for one in dict(choice.params)["choices"])
    return of_expressions or not isinstance(choice.args[0], Call)


def _show_choice(call: Call) -> str:
    """A choice of steps or operands by its values; one of parameters by the step that is taken."""
    open_choices = dict(call.params)["choices"]
    if _shows_values(call):
        return ", ".join(repr(one.choice) for one in open_choices)
    named = ", ".join(f"{one.name}={one.choice!r}" for one in open_choices)
    return f"{show_term(call.args[0])} with {named}"


def _show_param(name: str, value: Any) -> str:
    if isinstance(value, tuple):  # -0.0 is shown as 0.0
        value = tuple(item + 0.0 if isinstance(item, float) else item for item in value)
    text = _short(value)
    return text if text.startswith(f"{name} of ") else f"{name}={text}"  # "table of 9 × 4 float32"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"
