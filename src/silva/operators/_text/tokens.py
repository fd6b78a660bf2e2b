"""Lists of tokens to lists of tokens.

Laws, exact, and tested:
    add_tokens(b, a)(add_tokens(c, d)(x)) = add_tokens(b + c, d + a)(x)
    truncate(n)(add_tokens(b)(x)) = add_tokens(b)(truncate(n - len(b))(x))    where n ≥ len(b)
    to_ids(v)(truncate(n)(x)) = truncate(n)(to_ids(v)(x))                     where to_ids succeeds
Not a law:
    truncate(n)(add_tokens(after=a)(x)) = add_tokens(after=a)(truncate(n - len(a))(x))
        of 3 tokens, n = 3: the left side keeps the third, the right side has `a` in its place
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from silva.columns import Array, Column, Lists, Strings, Values, concat
from silva.operators._features.ragged import dense, offsets_of, read_lists
from silva.operators._text.read import read_text

Params = dict[str, Any]
Tokens = tuple[int, ...] | tuple[str, ...]


def add_tokens(columns: list[Column], params: Params, draw: object) -> Column:
    before, after = params["before"], params["after"]
    arrays = dense(columns[0])
    if arrays is not None:
        return _beside(arrays, before, after)
    lists = read_lists(columns[0])
    count, lengths = len(lists.values), np.diff(lists.offsets)
    present = np.ones(len(lists), bool) if lists.valid is None else lists.valid
    offsets = offsets_of(lengths + (len(before) + len(after)) * present)
    order = np.empty(int(offsets[-1]), np.int64)
    moved = offsets[:-1] - lists.offsets[:-1] + len(before)
    order[np.arange(count) + np.repeat(moved, lengths)] = np.arange(count)
    first, last = np.arange(len(before)), np.arange(len(after))
    order[offsets[:-1][present, None] + first] = count + first
    order[offsets[1:][present, None] - len(after) + last] = count + len(before) + last
    joined = concat([lists.values, _like(lists.values, before + after)])
    return Lists(joined.take(order), offsets, lists.valid)


def _beside(column: Array, before: Tokens, after: Tokens) -> Array:
    """Rows of one length stay rows of one length."""
    if column.data.ndim > 2:
        raise ValueError("add_tokens() takes ids or words, not vectors: embed() comes after it")
    sides = [
        np.broadcast_to(_ids(column.data.dtype, tokens), (len(column), len(tokens)))
        for tokens in (before, after)
    ]
    return Array(np.concatenate([sides[0], column.data, sides[1]], axis=1), column.valid)


def _like(values: Column, tokens: Tokens) -> Column:
    """The tokens as a column of the same type."""
    if not tokens:
        return values.slice(0, 0)
    words = isinstance(tokens[0], str)
    if isinstance(values, Strings) and words:
        return Strings(pa.array(tokens, values.data.type))
    if isinstance(values, Array) and values.data.ndim == 1:
        return Array(_ids(values.data.dtype, tokens))
    if isinstance(values, Values):
        return Values([*tokens])
    raise ValueError(f"{[*tokens]} cannot be added: the tokens of this row are of another type")


def _ids(dtype: np.dtype, tokens: Tokens) -> np.ndarray:
    if dtype.kind not in "iu" or any(isinstance(token, str) for token in tokens):
        raise ValueError(f"{[*tokens]} cannot be added to tokens that are {dtype}")
    try:
        return np.array(tokens, dtype)
    except OverflowError:
        raise ValueError(f"one of {[*tokens]} does not fit into {dtype}") from None


def to_ids(columns: list[Column], params: Params, draw: object) -> Column:
    lists = read_lists(columns[0])
    if isinstance(lists.values, Array) and len(lists.values):
        raise ValueError("to_ids() takes words; these tokens are ids already")
    words = read_text(lists.values)
    ids = _look_up(words, params["vocabulary"].ids, params["unknown"])
    return Lists(ids, lists.offsets, lists.valid)


def _look_up(words: pa.Array, vocabulary: dict[str, int], unknown: int | None) -> Array:
    """Each distinct word of the block is looked up once."""
    distinct = words.dictionary_encode()
    ids = np.zeros(len(distinct.dictionary) + 1, np.int32)  # the last one stands for nulls
    for place, word in enumerate(distinct.dictionary.to_pylist()):
        found = vocabulary.get(word, unknown)
        if found is None:
            raise ValueError(f"{word!r} is not in the vocabulary: to_ids(…, unknown=…)")
        ids[place] = found
    null = len(ids) - 1
    places = distinct.indices.fill_null(null).to_numpy()
    return Array(ids[places], places != null if words.null_count else None)
