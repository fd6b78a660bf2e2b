"""Laws of operators: equations by which an expression may be written in another way.

A law is declared beside the operators that it is about and is registered when they are first used,
with the same `register_law` that users call. Tempting equations that do not hold are registered
too, each with its counter-example, so that `explain` can name the reason why a plan stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from silva.errors import PlanError
from silva.plan import expr
from silva.plan.operator import import_built_in

Kind = Literal["exact", "close", "never"]
Rewrite = Callable[[expr.Call], expr.Term | None]
"""Returns the right side for a call that is a left side, and None for any other call."""


@dataclass(frozen=True)
class Law:
    """An equation between expressions, with what makes it one that can be relied on.

    >>> from silva.plan.expr import Call
    >>> def rewrite(call):
    ...     inner = call.args[0]
    ...     twice = call.op == "negative" and isinstance(inner, Call) and inner.op == "negative"
    ...     return inner.args[0] if twice else None
    >>> law = Law("negative_twice", "-(-x) = x", rewrite, "exact", "no number is known to fail")
    >>> law.rewrite((-(-expr.col("x"))).term)
    Col(name='x')
    """

    name: str
    equation: str
    rewrite: Rewrite
    """The right side for a call that is a left side, None for any other. The right side costs less,
    fails on the same rows, and keeps the `draw` of every random call."""
    kind: Kind
    """`exact`: every bit stays. `close`: within `bound`, used under `fidelity="close"` only.
    `never`: does not hold, and is never used."""
    fails: str
    """Where the equation does not hold, by example."""
    bound: str | None = None
    """How far apart the two sides of a close law are, and on what that was measured."""
    last: bool = False
    """Used when all else is done: its right side computes something for one reader alone, so what
    several read is shared before."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise PlanError(f"a law's name is a word such as 'flip_twice', not {self.name!r}")
        if self.kind not in get_args(Kind):
            raise PlanError(f"a law is 'exact', 'close' or 'never', not {self.kind!r}")
        if (self.kind == "close") != (self.bound is not None):
            raise PlanError(f"law {self.name}: bound= belongs to a close law, and to no other")


LAWS: dict[str, Law] = {}
"""The laws of operators that were used so far, and those of other people, by name."""


def register_law(law: Law) -> Law:
    """Registers a law; from then on plans use it. A name can be registered only once."""
    found = LAWS.get(law.name)
    if found is not None and found.rewrite is not law.rewrite:
        raise PlanError(
            f"register_law: a law called {law.name!r} is already registered; choose another name"
        )
    LAWS[law.name] = law
    return law


def law(
    name: str,
    equation: str,
    kind: Kind,
    *,
    fails: str,
    bound: str | None = None,
    last: bool = False,
) -> Callable[[Rewrite], Rewrite]:
    """Registers the decorated rewrite as a law; the arguments are the fields of `Law`."""

    def register(rewrite: Rewrite) -> Rewrite:
        register_law(Law(name, equation, rewrite, kind, fails, bound, last))
        return rewrite

    return register


def laws() -> tuple[Law, ...]:
    """All laws, by name; loads the built-in operators of every kind.

    >>> [law.name for law in laws() if law.kind == "close"]
    ['gray_decode', 'shrink_decode']
    """
    import_built_in()
    return tuple(LAWS[name] for name in sorted(LAWS))
