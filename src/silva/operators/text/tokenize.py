"""Text to lists: of tokens, and of chunks, as retrieval (RAG) and long-context models need them.

All tokens of a block are in one array, built once. Laws of `chunk`, exact: by characters and
without overlap, the chunks of a text joined are the text; by words, the words of all chunks,
without those that overlap, are the words of the text.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any, Literal

import numpy as np

from silva.columns import Array, Column, Lists, Strings
from silva.errors import PlanError
from silva.operators.arguments import flag, integer, one_of
from silva.operators.declare import column_operator
from silva.operators.items.items import valid_text
from silva.operators.items.ragged import offsets_of
from silva.operators.list import ListExpr
from silva.operators.native import pa
from silva.operators.text.fast_tokenizer import FastTokenizer
from silva.operators.text.read import read_text
from silva.operators.text.tokenizer import (
    FunctionTokenizer,
    JsonTokenizer,
    Rows,
    TiktokenTokenizer,
    read_tokenizer,
)
from silva.operators.text.tokens import TokensExpr
from silva.plan.expr import Call, Expr

Params = dict[str, Any]


class TokenizeMethods(Expr):
    """Methods that turn text into tokens."""

    __slots__ = ()

    def tokenize(
        self, tokenizer: Any, special_tokens: bool = False, strings: bool = False
    ) -> TokensExpr:
        """Tokenizes to lists of token ids (int32).

        `tokenizer` is the path of a `tokenizer.json`, a tokenizer of the libraries tokenizers,
        transformers (a fast one) or tiktoken, or a function from a text to its ids. Later
        changes to it have no effect. Its own padding and truncation are not used: call `truncate`
        and `pad`.

        `special_tokens=True` adds those that the tokenizer itself puts around a text; `add_tokens`
        adds others. `strings=True` gives the tokens as text, or says that a function does.

        >>> import silva as sv
        >>> sv.text("line").tokenize(str.split, strings=True).truncate(127)
        line.tokenize(tokenizer=str.split, strings=True).truncate(n=127, side='right')
        """
        flag("special_tokens", special_tokens)
        flag("strings", strings)
        found = read_tokenizer(tokenizer)
        if special_tokens and not isinstance(found, JsonTokenizer):
            raise PlanError(f"{found!r} adds no special tokens itself: use add_tokens(before=[…])")
        if strings and isinstance(found, TiktokenTokenizer):
            raise PlanError("the tokens of tiktoken are bytes and not always text: take the ids")
        params = (
            ("tokenizer", found),
            ("special_tokens", special_tokens or None),
            ("strings", strings or None),
        )
        python = isinstance(found, FunctionTokenizer)
        name = "text.python.tokenize" if python else "text.tokenize"
        return TokensExpr(Call(name, (self.term,), params))


_WORD = re.compile(r"\S+")


class ChunkMethods(Expr):
    """Methods that cut text into chunks."""

    __slots__ = ()

    def chunk(
        self, size: int, overlap: int = 0, by: Literal["words", "characters"] = "words"
    ) -> ListExpr:
        """Cuts into a list of chunks of `size` words or characters; each begins with the last
        `overlap` of the one before.

        The last chunk may be shorter, and ends where the text ends. Words are what `split()` finds.
        A chunk of words is the text from its first word to its last, with the white space between
        them as it was. Text without words (without characters) has no chunks.

        >>> import silva as sv
        >>> sv.text("page").chunk(200, overlap=20)
        page.chunk(size=200, overlap=20, by='words')
        """
        size, overlap = integer("size", size, 1), integer("overlap", overlap, 0)
        if overlap >= size:
            raise PlanError(f"overlap must be less than size ({size}), not {overlap}")
        one_of("by", by, ("words", "characters"))
        params = (("size", size), ("overlap", overlap), ("by", by))
        return ListExpr(Call("text.chunk", (self.term,), params))


@column_operator("text.chunk", releases_gil=False)
def chunk(columns: list[Column], params: dict[str, Any], draw: object) -> Column:
    text = read_text(columns[0])
    size, overlap = params["size"], params["overlap"]
    cut = _cut_words if params["by"] == "words" else _cut_characters
    rows = [[] if row is None else cut(row, size, overlap) for row in text.to_pylist()]
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    chunks = pa.array([chunk for row in rows for chunk in row], text.type)
    return Lists(Strings(chunks), offsets_of(lengths), valid_text(text))


def _cut_characters(text: str, size: int, overlap: int) -> list[str]:
    return [text[first : first + size] for first in _firsts(len(text), size, overlap)]


def _cut_words(text: str, size: int, overlap: int) -> list[str]:
    words = [word.span() for word in _WORD.finditer(text)]
    firsts = _firsts(len(words), size, overlap)
    return [text[words[i][0] : words[min(i + size, len(words)) - 1][1]] for i in firsts]


def _firsts(count: int, size: int, overlap: int) -> range:
    """The first unit of each chunk: none begins within the overlap at the end, which the chunk
    before it holds already."""
    return range(0, max(count - overlap, min(count, 1)), size - overlap)


@column_operator("text.tokenize")
@column_operator("text.python.tokenize", releases_gil=False)
def tokenize(columns: list[Column], params: Params, draw: object) -> Column:
    text = read_text(columns[0])
    texts = text.drop_null().to_pylist() if text.null_count else text.to_pylist()
    tokenizer, special = params["tokenizer"], bool(params["special_tokens"])
    if params["strings"]:
        rows = tokenizer.strings(texts, special)
        flat: Column = Strings(pa.array([*chain.from_iterable(rows)], pa.large_string()))
        lengths = _lengths(rows)
    elif isinstance(tokenizer, FastTokenizer):
        ids, lengths = tokenizer.flat_ids(texts, special)
        flat = Array(ids)
    else:
        rows = tokenizer.ids(texts, special)
        flat, lengths = Array(_flat_ids(rows)), _lengths(rows)
    valid = None
    if text.null_count:
        valid = valid_text(text)
        present, lengths = lengths, np.zeros(len(text), np.int64)
        lengths[valid] = present
    return Lists(flat, offsets_of(lengths), valid)


def _lengths(rows: Rows) -> np.ndarray:
    return np.fromiter(map(len, rows), np.int64, len(rows))


def _flat_ids(rows: Rows) -> np.ndarray:
    if not rows:
        return np.empty(0, np.int32)
    if isinstance(rows[0], np.ndarray):
        return np.concatenate(rows).astype(np.int32, copy=False)
    return np.fromiter(chain.from_iterable(rows), np.int32, sum(map(len, rows)))
