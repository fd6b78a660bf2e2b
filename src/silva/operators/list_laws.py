"""Laws of operators on lists.

An operator on items can fail on an item that is cut off afterwards. So laws that leave items out
hold only where the items are known to be such that it cannot: words that `split` made, or ids that
`hash` and others make.
"""

from __future__ import annotations

from silva.operators.law_parts import inner, param, swapped, with_params
from silva.plan.expr import Call, Term
from silva.plan.law import Law, register_law

_ON_IDS = ("list.hash", "list.modulo", "list.bucketize")
"""Whole numbers of 64 bits to such numbers, whatever they are."""


def _items(term: Term) -> str | None:
    """What the items of lists are known to be: `words`, `ids`, or None where nobody knows."""
    if not isinstance(term, Call):
        return None
    if term.op == "text.split" or (term.op == "text.tokenize" and param(term, "strings")):
        return "words"
    if term.op in ("text.tokenize", "text.to_ids", *_ON_IDS):
        return "ids"
    if term.op in ("list.truncate", "list.unique"):
        return _items(term.args[0])
    return None


def _cannot_fail(call: Call) -> bool:
    """Whether an operator on items has an answer for all that it can be given here."""
    items = _items(call.args[0])
    if call.op == "text.to_ids":
        return items == "words" and param(call, "unknown") is not None
    return call.op in _ON_IDS and (items == "ids" or (items == "words" and call.op == "list.hash"))


def truncate_twice(call: Call) -> Term | None:
    first = inner(call, "list.truncate")
    if call.op != "list.truncate" or first is None or param(first, "side") != param(call, "side"):
        return None
    return with_params(first, n=min(param(first, "n"), param(call, "n")))


def truncate_before_items(call: Call) -> Term | None:
    first = inner(call, "text.to_ids", *_ON_IDS)
    if call.op != "list.truncate" or first is None or not _cannot_fail(first):
        return None
    return swapped(call, first)


def unique_twice(call: Call) -> Term | None:
    return inner(call, "list.unique") if call.op == "list.unique" else None


def length_of_items(call: Call) -> Term | None:
    first = inner(call, "text.to_ids", *_ON_IDS)
    if call.op != "list.length" or first is None or not _cannot_fail(first):
        return None
    return Call("list.length", first.args)


def length_of_truncated(call: Call) -> Term | None:
    first = inner(call, "list.truncate")
    if call.op != "list.length" or first is None:
        return None
    bounds = (("low", None), ("high", param(first, "n")))
    return Call("num.clip", (Call("list.length", first.args),), bounds)


def truncate_before_unique(call: Call) -> Term | None:
    first = inner(call, "list.unique")
    return swapped(call, first) if call.op == "list.truncate" and first is not None else None


register_law(
    Law(
        "truncate_twice",
        "truncate(n)(truncate(m)(x)) = truncate(min(n, m))(x), on the same side",
        truncate_twice,
        "exact",
        "two sides: of [1, 2, 3], the last 2 of the first 2 are [1, 2], the other way round [2, 3]",
    )
)
register_law(
    Law(
        "truncate_before_items",
        "truncate(n)(f(x)) = f(truncate(n)(x)), for f = hash, modulo, bucketize, to_ids",
        truncate_before_items,
        "exact",
        "an f that fails on what is cut off: to_ids without unknown= on a word it does not know",
    )
)
register_law(
    Law(
        "unique_twice",
        "unique(unique(x)) = unique(x)",
        unique_twice,
        "exact",
        "no list is known to fail",
    )
)
register_law(
    Law(
        "length_of_items",
        "length(f(x)) = length(x), for f = hash, modulo, bucketize, to_ids",
        length_of_items,
        "exact",
        "an f that fails on an item: modulo of a fraction",
    )
)
register_law(
    Law(
        "length_of_truncated",
        "length(truncate(n)(x)) = clip(high=n)(length(x))",
        length_of_truncated,
        "exact",
        "no list is known to fail",
    )
)
register_law(
    Law(
        "truncate_before_unique",
        "truncate(n)(unique(x)) = unique(truncate(n)(x))",
        truncate_before_unique,
        "never",
        "of [1, 1, 2] and n = 2, the left side is [1, 2] and the right side [1]",
    )
)
