"""Laws of operators on any column."""

from __future__ import annotations

from silva.operators.law_parts import inner
from silva.plan.expr import Call, Term
from silva.plan.law import Law, register_law


def cast_twice(call: Call) -> Term | None:
    first = inner(call, "cast")
    same = call.op == "cast" and first is not None and first.params == call.params
    return first if same else None


register_law(
    Law(
        "cast_twice",
        "cast(t)(cast(t)(x)) = cast(t)(x)",
        cast_twice,
        "exact",
        "another first type: 300 as uint8 is 44, and stays 44 as int64",
    )
)
