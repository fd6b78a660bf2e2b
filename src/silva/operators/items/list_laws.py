"""Laws of operators on lists.

An operator on items can fail on an item that is cut off afterwards. So laws that leave items out
hold only where the items are known to be such that it cannot: words that `split` made, or ids that
`hash` and others make.
"""

from __future__ import annotations

from silva.operators.laws import inner, param, swapped, with_params
from silva.plan.expr import Call, Term
from silva.plan.law import law
from silva.plan.operator import has_fact


def _maps_ids(call: Call) -> bool:
    """Whether the call maps each id of a list to an id, whatever it is."""
    return call.op.startswith("list.") and has_fact(call.op, "ids_to_ids")


def _inner_on_items(call: Call) -> Call | None:
    """The argument of a call, if it is itself a call that maps items and keeps their number."""
    first = call.args[0] if call.args else None
    maps = isinstance(first, Call) and (first.op == "text.to_ids" or _maps_ids(first))
    return first if isinstance(first, Call) and maps else None


def _items(term: Term) -> str | None:
    """What the items of lists are known to be: `words` or `ids`; None where it is not known."""
    if not isinstance(term, Call):
        return None
    if term.op == "text.split" or (term.op == "text.tokenize" and param(term, "strings")):
        return "words"
    if term.op in ("text.tokenize", "text.to_ids") or _maps_ids(term):
        return "ids"
    if term.op in ("list.truncate", "list.unique"):
        return _items(term.args[0])
    return None


def _cannot_fail(call: Call) -> bool:
    """Whether an operator on items succeeds on every item that it can get here."""
    items = _items(call.args[0])
    if call.op == "text.to_ids":
        return items == "words" and param(call, "unknown") is not None
    return _maps_ids(call) and (items == "ids" or (items == "words" and call.op == "list.hash"))


@law(
    "truncate_twice",
    "truncate(n)(truncate(m)(x)) = truncate(min(n, m))(x), on the same side",
    "exact",
    fails=(
        "two sides: of [1, 2, 3], the last 2 of the first 2 are [1, 2], the other way round [2, 3]"
    ),
)
def truncate_twice(call: Call) -> Term | None:
    first = inner(call, "list.truncate")
    if call.op != "list.truncate" or first is None or param(first, "side") != param(call, "side"):
        return None
    return with_params(first, n=min(param(first, "n"), param(call, "n")))


@law(
    "truncate_before_items",
    "truncate(n)(f(x)) = f(truncate(n)(x)), for f that maps each item to an id",
    "exact",
    fails="an f that fails on what is cut off: to_ids without unknown= on a word it does not know",
)
def truncate_before_items(call: Call) -> Term | None:
    first = _inner_on_items(call)
    if call.op != "list.truncate" or first is None or not _cannot_fail(first):
        return None
    return swapped(call, first)


@law(
    "unique_twice",
    "unique(unique(x)) = unique(x)",
    "exact",
    fails="no counter-example is known",
)
def unique_twice(call: Call) -> Term | None:
    return inner(call, "list.unique") if call.op == "list.unique" else None


@law(
    "length_of_items",
    "length(f(x)) = length(x), for f that maps each item to an id",
    "exact",
    fails="an f that fails on an item: modulo of a fraction",
)
def length_of_items(call: Call) -> Term | None:
    first = _inner_on_items(call)
    if call.op != "list.length" or first is None or not _cannot_fail(first):
        return None
    return Call("list.length", first.args)


@law(
    "length_of_truncated",
    "length(truncate(n)(x)) = clip(high=n)(length(x))",
    "exact",
    fails="no counter-example is known",
)
def length_of_truncated(call: Call) -> Term | None:
    first = inner(call, "list.truncate")
    if call.op != "list.length" or first is None:
        return None
    bounds = (("low", None), ("high", param(first, "n")))
    return Call("num.clip", (Call("list.length", first.args),), bounds)


@law(
    "truncate_before_unique",
    "truncate(n)(unique(x)) = unique(truncate(n)(x))",
    "never",
    fails="of [1, 1, 2] and n = 2, the left side is [1, 2] and the right side [1]",
)
def truncate_before_unique(call: Call) -> Term | None:
    first = inner(call, "list.unique")
    return swapped(call, first) if call.op == "list.truncate" and first is not None else None
