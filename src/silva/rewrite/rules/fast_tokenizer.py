"""Tokenizes with another library where it gives the same ids.

Motive: pipelines of text spend most of their time in the tokenizer. fastokens reads the JSON of
`tokenizers` and takes a fraction of the time.

    derive ids = text.tokenize(tokenizer of 400)
    source
        →
    derive ids = text.tokenize(tokenizer of 400, by fastokens)
    source

Must not fire: where fastokens is not installed, does not support the tokenizer or gives other ids
for one of the built-in hard texts; for tokens as strings; for a function `derive(ids=tokenizer)`
whose tokenizer pads or truncates itself.

Law: `fastokens(tokenizer)(text) = tokenizer(text)`, tested on many tokenizers, languages and random
texts (`tests/operators/test_fast_tokenizer.py`), and compared in each process on its first rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from silva.operators.from_text import FastIds, Ids
from silva.plan import expr
from silva.plan.function import Function, Step
from silva.plan.node import Derive, Filter, Node, transform
from silva.rewrite.rule import Rewrite, Rule


def apply(plan: Node) -> Rewrite:
    """The plan with fast tokenizers in place of those that have an equal one."""
    notes: dict[str, None] = {}
    refused: dict[str, None] = {}

    def change(node: Node) -> Node:
        if not isinstance(node, Derive | Filter):
            return node
        step = _fast_step(node.step, notes, refused)
        return node if step is node.step else replace(node, step=step)

    made = transform(plan, change)
    if not notes:
        return Rewrite(plan, why_not="; ".join(refused) or None)
    return Rewrite(made, (*notes, *(f"not used elsewhere: {why}" for why in refused)))


def _fast_step(step: Step, notes: dict[str, None], refused: dict[str, None]) -> Step:
    if not isinstance(step, Function):
        return expr.rebuild(step, partial(_fast_call, notes, refused))
    if not isinstance(step.fn, Ids):
        return step
    tokenizer = step.fn.tokenizer
    if tokenizer.padding or tokenizer.truncation:
        refused["the tokenizer pads or truncates itself"] = None
        return step
    try:
        read = _read(tokenizer.to_str(), tokenizer.encode_special_tokens)
    except Exception as error:  # noqa: BLE001  e.g. parts written in Python, which have no JSON
        refused[f"the tokenizer cannot be copied: {error}"] = None
        return step
    found = _found(read, notes, refused)
    return step if found is None else replace(step, fn=FastIds(found))


@lru_cache(maxsize=4)
def _read(tokenizer_json: str, keeps_special: bool) -> Any:
    """The tokenizer as data: rules run several times on one plan, and reading it takes a while."""
    from silva.operators.text.tokenizer import read_json

    return read_json(tokenizer_json, keeps_special)


def _fast_call(notes: dict[str, None], refused: dict[str, None], term: expr.Term) -> expr.Term:
    if not isinstance(term, expr.Call) or term.op != "text.tokenize":
        return term
    params = dict(term.params)
    if params.get("strings"):
        return term
    found = _found(params["tokenizer"], notes, refused)
    if found is None:
        return term
    return replace(term, params=tuple((params | {"tokenizer": found}).items()))


def _found(tokenizer: Any, notes: dict[str, None], refused: dict[str, None]) -> Any:
    from silva.operators.text.fast_tokenizer import COMPARED_ROWS, FastTokenizer, find_fast
    from silva.operators.text.tokenizer import JsonTokenizer

    if not isinstance(tokenizer, JsonTokenizer):
        return None
    found = find_fast(tokenizer)
    if not isinstance(found, FastTokenizer):
        refused[found] = None
        return None
    notes[
        f"{tokenizer!r}: {found.library} in place of tokenizers {tokenizer.version}: it gives the "
        f"same ids for all hard texts. Each process compares its first {COMPARED_ROWS} rows as "
        "well, and goes back to tokenizers where one differs"
    ] = None
    return found


RULE = Rule(
    "fast_tokenizer",
    apply,
    "another library gives the same ids in less time",
    renames=True,
    acts_on=expr.Call | Function,
)
