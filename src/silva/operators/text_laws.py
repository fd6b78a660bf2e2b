"""Laws of operators on text: what is done twice, and what another step does anyway."""

from __future__ import annotations

from silva.operators.law_parts import inner, on, param, with_params
from silva.plan.expr import Call, Term
from silva.plan.law import Law, register_law


def letters_twice(call: Call) -> Term | None:
    if call.op not in ("text.lower", "text.upper", "text.strip"):
        return None
    return inner(call, call.op)


def normalize_twice(call: Call) -> Term | None:
    first = inner(call, "text.normalize")
    if call.op != "text.normalize" or first is None:
        return None
    before, after = param(first, "form"), param(call, "form")
    return on(call, first.args[0]) if "K" in after or "K" not in before else None


def strip_before_split(call: Call) -> Term | None:
    first = inner(call, "text.strip")
    if call.op != "text.split" or first is None or param(call, "separator") is not None:
        return None
    return on(call, first.args[0])


def add_tokens_twice(call: Call) -> Term | None:
    first = inner(call, "text.add_tokens")
    if call.op != "text.add_tokens" or first is None:
        return None
    before = param(call, "before") + param(first, "before")
    after = param(first, "after") + param(call, "after")
    if len({type(token) for token in before + after}) > 1:
        return None
    return with_params(first, before=before, after=after)


def upper_of_lower(call: Call) -> Term | None:
    first = inner(call, "text.lower")
    return on(call, first.args[0]) if call.op == "text.upper" and first is not None else None


def length_of_letters(call: Call) -> Term | None:
    first = inner(call, "text.lower", "text.upper")
    return on(call, first.args[0]) if call.op == "text.length" and first is not None else None


register_law(
    Law(
        "letters_twice",
        "f(f(x)) = f(x), for f = lower, upper, strip",
        letters_twice,
        "exact",
        "two different ones: lower(upper('ß')) is 'ss', lower('ß') is 'ß'",
    )
)
register_law(
    Law(
        "normalize_text_twice",
        "normalize(f)(normalize(g)(x)) = normalize(f)(x), unless only g is a K form",
        normalize_twice,
        "exact",
        "f = NFC, g = NFKC: 'ﬁ' becomes 'fi' on the left side only",
    )
)
register_law(
    Law(
        "strip_before_split",
        "split()(strip(x)) = split()(x)",
        strip_before_split,
        "exact",
        "split(' ') keeps an empty word for a space at either end",
    )
)
register_law(
    Law(
        "add_tokens_twice",
        "add_tokens(b, a)(add_tokens(c, d)(x)) = add_tokens(b + c, d + a)(x)",
        add_tokens_twice,
        "exact",
        "words around ids: both sides fail, each with another message",
    )
)
register_law(
    Law(
        "upper_of_lower",
        "upper(lower(x)) = upper(x)",
        upper_of_lower,
        "never",
        "'İ': lower makes 'i' and a dot of it, of which upper makes 'I' and a dot, two characters",
    )
)
register_law(
    Law(
        "length_of_letters",
        "length(f(x)) = length(x), for f = lower, upper",
        length_of_letters,
        "never",
        "'İ' has one character, and lower('İ') two",
    )
)
