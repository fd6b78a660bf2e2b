"""Tokenizers of other libraries given to `derive`: what they do to a text, and `sv.text`'s form of
it. An object is known by the module of its class; nothing is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from silva.plan.expr import Term


@dataclass(frozen=True)
class Ids:
    """A Hugging Face tokenizer as a function of a row: its ids, with no special tokens."""

    tokenizer: Any

    def __call__(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found


@dataclass(frozen=True)
class FastIds:
    """`Ids`, computed by another library."""

    tokenizer: Any
    """A `FastTokenizer`."""

    def __call__(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer.row_ids(text)
        return found


def as_function(step: Any) -> Any:
    """Returns `step`; a tokenizer, which cannot be called, becomes a function of a row."""
    is_tokenizer = type(step).__module__.partition(".")[0] == "tokenizers"
    return Ids(step) if is_tokenizer and hasattr(step, "encode_batch") else step


def as_term(fn: Any, column: str) -> Term | None:
    """`sv.text(column).tokenize(…)`, where `fn` does that to each row; else None."""
    owner = getattr(fn, "__self__", None)
    if isinstance(fn, Ids):
        owner = fn.tokenizer
    elif type(owner).__module__.partition(".")[0] != "tiktoken" or fn.__name__ != "encode_ordinary":
        return None
    from silva.operators.text import text  # few pipelines need it

    return text(column).tokenize(owner).term
