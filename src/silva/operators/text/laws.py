"""Laws of operators on text: what is done twice, and what another step does anyway."""

from __future__ import annotations

from silva.operators.laws import inner, on, param, with_params
from silva.plan.expr import Call, Term
from silva.plan.law import law


@law(
    "letters_twice",
    "f(f(x)) = f(x), for f = lower, upper, strip",
    "exact",
    fails="two different ones: lower(upper('ß')) is 'ss', lower('ß') is 'ß'",
)
def letters_twice(call: Call) -> Term | None:
    if call.op not in ("text.lower", "text.upper", "text.strip"):
        return None
    return inner(call, call.op)


@law(
    "normalize_text_twice",
    "normalize(f)(normalize(g)(x)) = normalize(f)(x), unless only g is a K form",
    "exact",
    fails="f = NFC, g = NFKC: 'ﬁ' becomes 'fi' on the left side only",
)
def normalize_twice(call: Call) -> Term | None:
    first = inner(call, "text.normalize")
    if call.op != "text.normalize" or first is None:
        return None
    before, after = param(first, "form"), param(call, "form")
    return on(call, first.args[0]) if "K" in after or "K" not in before else None


@law(
    "strip_before_split",
    "split()(strip(x)) = split()(x)",
    "exact",
    fails="split(' ') keeps an empty word for a space at either end",
)
def strip_before_split(call: Call) -> Term | None:
    first = inner(call, "text.strip")
    if call.op != "text.split" or first is None or param(call, "separator") is not None:
        return None
    return on(call, first.args[0])


@law(
    "add_tokens_twice",
    "add_tokens(b, a)(add_tokens(c, d)(x)) = add_tokens(b + c, d + a)(x)",
    "exact",
    fails="words around ids: both sides fail, with different messages",
)
def add_tokens_twice(call: Call) -> Term | None:
    first = inner(call, "text.add_tokens")
    if call.op != "text.add_tokens" or first is None:
        return None
    before = param(call, "before") + param(first, "before")
    after = param(first, "after") + param(call, "after")
    if len({type(token) for token in before + after}) > 1:
        return None
    return with_params(first, before=before, after=after)


@law(
    "upper_of_lower",
    "upper(lower(x)) = upper(x)",
    "never",
    fails=("'İ': lower gives 'i' and a dot, and upper of that gives 'I' and a dot, two characters"),
)
def upper_of_lower(call: Call) -> Term | None:
    first = inner(call, "text.lower")
    return on(call, first.args[0]) if call.op == "text.upper" and first is not None else None


@law(
    "length_of_letters",
    "length(f(x)) = length(x), for f = lower, upper",
    "never",
    fails="'İ' has one character, and lower('İ') two",
)
def length_of_letters(call: Call) -> Term | None:
    first = inner(call, "text.lower", "text.upper")
    return on(call, first.args[0]) if call.op == "text.length" and first is not None else None
