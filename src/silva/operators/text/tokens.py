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

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from silva.columns import Array, Column, Lists, Strings, Values, concat
from silva.errors import PlanError
from silva.operators.arguments import plain_text
from silva.operators.declare import column_operator
from silva.operators.items.arguments import scalar
from silva.operators.items.ragged import as_given, dense, offsets_of, read_lists
from silva.operators.list import ListExpr
from silva.operators.native import pa
from silva.operators.text.read import read_text
from silva.plan.class_tags import tagged

Params = dict[str, Any]
Tokens = tuple[int, ...] | tuple[str, ...]


class TokensExpr(ListExpr):
    """A column of lists of tokens: ids, or words.

    >>> import silva as sv
    >>> sv.text("line").split().to_ids(["forest", "green"], unknown=2).truncate(8)
    line.split().to_ids(vocabulary of 2, unknown=2).truncate(n=8, side='right')
    """

    __slots__ = ()

    def add_tokens(
        self, before: Sequence[int] | Sequence[str] = (), after: Sequence[int] | Sequence[str] = ()
    ) -> Self:
        """Adds tokens before and after those of each row: ids to ids, words to words. Call
        `truncate` first, so that the last ones are not cut off.

        >>> import silva as sv
        >>> sv.text("line").split().truncate(6).add_tokens(before=["[CLS]"], after=["[SEP]"])
        line.split().truncate(n=6, side='right').add_tokens(before=('[CLS]',), after=('[SEP]',))
        """
        first, last = _tokens("before", before), _tokens("after", after)
        if len({type(token) for token in first + last}) > 1:
            raise PlanError(f"tokens are all ids or all words, not {[*first, *last]!r:.60}")
        return self._call("text.add_tokens", before=first, after=last)

    def to_ids(
        self, vocabulary: Mapping[str, int] | Sequence[str], unknown: int | str | None = None
    ) -> Self:
        """Looks up the id (int32) of each word: its value in a dict, or its place in a list.

        `unknown` is the id of all other words, or a word of the vocabulary that stands for them;
        without it, a word that the vocabulary does not have is an error.

        >>> import silva as sv
        >>> sv.text("line").split().to_ids({"[UNK]": 0, "forest": 1}, unknown="[UNK]")
        line.split().to_ids(vocabulary of 2, unknown=0)
        """
        found = read_vocabulary(vocabulary)
        if isinstance(unknown, str):
            if unknown not in found.ids:
                raise PlanError(f"unknown is {unknown!r}, which the vocabulary does not have")
            unknown = found.ids[unknown]
        elif unknown is not None:
            unknown = read_id("unknown", unknown)
        return self._call("text.to_ids", vocabulary=found, unknown=unknown)


@column_operator("text.add_tokens", ragged=True)
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
    return as_given(columns[0], Lists(joined.take(order), offsets, lists.valid))


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


@column_operator("text.to_ids", ragged=True)
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


def _tokens(name: str, value: Any) -> tuple[int, ...] | tuple[str, ...]:
    if isinstance(value, str) or not hasattr(value, "__iter__") or getattr(value, "ndim", 1) == 0:
        raise PlanError(f"{name} is a list of tokens, not {value!r}")
    found = tuple(value)
    if found and all(isinstance(token, str) for token in found):
        return tuple(plain_text("a token", token) for token in found)
    return tuple(read_id("a token", token) for token in found)


_MOST = (1 << 31) - 1


@tagged("Vocabulary", "content")
@dataclass(frozen=True, repr=False)
class Vocabulary:
    """A vocabulary as a parameter: compared and fingerprinted by its content."""

    content: str
    """A hash of the tokens and their ids. They are no field, which would be hashed each time."""

    @property
    def ids(self) -> dict[str, int]:
        found: dict[str, int] = self.__dict__["ids_"]
        return found

    def __repr__(self) -> str:
        return f"vocabulary of {len(self.ids)}"


def read_vocabulary(value: Any) -> Vocabulary:
    """A dict from tokens to ids, or a list of tokens whose places are the ids."""
    if isinstance(value, Mapping):
        ids = {token: read_id("an id", number) for token, number in value.items()}
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        ids = {token: place for place, token in enumerate(value)}
        if len(ids) < len(value):
            twice = next(t for place, t in enumerate(value) if ids[t] != place)
            raise PlanError(f"the vocabulary has {twice!r} twice")
    else:
        raise PlanError(f"a vocabulary is a dict or a list of tokens, not {value!r:.60}")
    wrong = next((token for token in ids if not isinstance(token, str)), None)
    if wrong is not None:
        raise PlanError(f"the tokens of a vocabulary are strings, not {wrong!r}")
    content = repr(sorted(ids.items())).encode("utf-8", "backslashreplace")
    made = Vocabulary(hashlib.blake2b(content, digest_size=16).hexdigest())
    made.__dict__["ids_"] = ids
    return made


def read_id(name: str, value: Any) -> int:
    """An id: a whole number that fits into int32."""
    number = scalar(value)
    if isinstance(number, bool) or not isinstance(number, int) or not -_MOST <= number <= _MOST:
        raise PlanError(f"{name} is a whole number that fits into int32, not {value!r}")
    return number
