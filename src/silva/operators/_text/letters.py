"""Text to text, to words and to numbers: Arrow's kernels wherever they mean what Python means.

They do for ASCII, for white space, for literal patterns and for lengths. They do not for the case
and the normal forms of other letters: Arrow maps one character to one ('ß' stays, where Python's
upper gives 'SS'; a final 'Σ' becomes 'σ', not 'ς') and knows another version of Unicode. Rows with
such letters go to Python; Arrow would save them little, as each row had to be checked first.

Laws, exact, and tested:
    f(f(x)) = f(x)               for f = lower, upper, strip, normalize(form)
    strip(f(x)) = f(strip(x))    for f = lower, upper
Not laws:
    upper(lower(x)) = upper(x)             'İ' becomes 'i' and a dot, and these stay two
    length(lower(x)) = length(x)           the same 'İ'
    strip(normalize(x)) = normalize(strip(x))   '¨' becomes a space and dots in NFKC
    lower(normalize(x)) = normalize(lower(x))   'ϒ' becomes 'Υ' in NFKC, of which lower makes 'υ'
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from silva.columns import Column, Lists, Strings, from_arrow
from silva.operators._features.items import valid_text
from silva.operators._text.read import read_bytes, read_text

Params = dict[str, Any]

WHITE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What `str.isspace` holds for: also what `str.strip` takes away and `str.split` splits at."""


def lower(columns: list[Column], params: Params, draw: object) -> Column:
    text = read_text(columns[0])
    return _with_other_letters(text, pc.ascii_lower(text), str.lower)


def upper(columns: list[Column], params: Params, draw: object) -> Column:
    text = read_text(columns[0])
    return _with_other_letters(text, pc.ascii_upper(text), str.upper)


def normalize(columns: list[Column], params: Params, draw: object) -> Column:
    form = params["form"]
    text = read_text(columns[0])
    return _with_other_letters(text, text, lambda row: unicodedata.normalize(form, row))


def _with_other_letters(
    text: pa.Array, result: pa.Array, function: Callable[[str], str]
) -> Strings:
    """`result`, but `function` of the rows that are not plain ASCII."""
    other = pc.invert(pc.string_is_ascii(text))
    rows = text.filter(other).to_pylist()
    if rows:
        made = pa.array([function(row) for row in rows], text.type)
        result = pc.replace_with_mask(result, other, made)
    return Strings(result)


def strip(columns: list[Column], params: Params, draw: object) -> Column:
    return Strings(pc.utf8_trim(read_text(columns[0]), characters=WHITE))


def replace(columns: list[Column], params: Params, draw: object) -> Column:
    function = pc.replace_substring_regex if params["regex"] else pc.replace_substring
    return Strings(function(read_text(columns[0]), params["old"], params["new"]))


def length(columns: list[Column], params: Params, draw: object) -> Column:
    return from_arrow(pc.utf8_length(read_text(columns[0])).cast(pa.int64()))


def split(columns: list[Column], params: Params, draw: object) -> Column:
    text = read_text(columns[0])
    if params["separator"] is not None:
        return from_arrow(pc.split_pattern(text, params["separator"]))
    return _words(pc.utf8_split_whitespace(pc.utf8_trim(text, characters=WHITE)))


def _words(lists: pa.Array) -> Column:
    """The lists without empty words: Arrow makes one of a row in which there is nothing."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    empty = pc.binary_length(lists.values).to_numpy() == 0
    before = np.zeros(len(empty) + 1, np.int64)
    np.cumsum(empty, out=before[1:])
    words = lists.values.filter(pa.array(~empty)) if before[-1] else lists.values
    return Lists(Strings(words), offsets - before[offsets], valid_text(lists))


def decode(columns: list[Column], params: Params, draw: object) -> Column:
    data = read_bytes(columns[0])
    kind = pa.string() if pa.types.is_binary(data.type) else pa.large_string()
    try:
        return Strings(data.cast(kind))
    except pa.ArrowInvalid:
        rows = [row if row is None else _decoded(row, params["errors"]) for row in data.to_pylist()]
        return Strings(pa.array(rows, kind))


def _decoded(row: bytes, errors: str) -> str:
    try:
        return row.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the bytes are not UTF-8: {error.reason} at byte {error.start}; "
            "decode(errors='replace') puts U+FFFD in place of what is wrong"
        ) from None
