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
from typing import Any, Literal, Self

import numpy as np

from silva.columns import Column, Lists, Strings, from_arrow
from silva.errors import PlanError
from silva.operators.arguments import flag, one_of, plain_text
from silva.operators.declare import column_operator
from silva.operators.items.items import valid_text
from silva.operators.native import pa, pc
from silva.operators.num import NumExpr
from silva.operators.text.read import read_bytes, read_text
from silva.operators.text.tokens import TokensExpr
from silva.plan.expr import Call, Expr

Params = dict[str, Any]

WHITE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What `str.isspace` holds for: also what `str.strip` takes away and `str.split` splits at."""


Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


class LetterMethods(Expr):
    """Methods on characters and words."""

    __slots__ = ()

    def decode(self, errors: Literal["strict", "replace"] = "strict") -> Self:
        """Decodes UTF-8 bytes to text. Bytes that are not UTF-8 are an error; with `"replace"` they
        become U+FFFD. All other methods take text only.

        >>> import silva as sv
        >>> sv.text("body").decode(errors="replace")
        body.decode(errors='replace')
        """
        one_of("errors", errors, ("strict", "replace"))
        return self._call("text.decode", errors=errors)

    def lower(self) -> Self:
        """Converts to lower case, as `str.lower`.

        >>> import silva as sv
        >>> sv.text("line").lower()
        line.lower()
        """
        return self._call("text.lower")

    def upper(self) -> Self:
        """Converts to upper case, as `str.upper`: 'ß' becomes 'SS'.

        >>> import silva as sv
        >>> sv.text("line").upper()
        line.upper()
        """
        return self._call("text.upper")

    def strip(self) -> Self:
        """Removes white space at both ends, as `str.strip`.

        >>> import silva as sv
        >>> sv.text("line").strip()
        line.strip()
        """
        return self._call("text.strip")

    def normalize(self, form: Form = "NFC") -> Self:
        """Converts to one of Unicode's normal forms, as `unicodedata.normalize`.

        >>> import silva as sv
        >>> sv.text("line").normalize("NFKC")
        line.normalize(form='NFKC')
        """
        one_of("form", form, ("NFC", "NFD", "NFKC", "NFKD"))
        return self._call("text.normalize", form=form)

    def replace(self, old: str, new: str, regex: bool = False) -> Self:
        """Replaces each `old` by `new`, as `str.replace`.

        With `regex=True`, `old` is a pattern and `\\\\1` in `new` is its first group. Patterns are
        RE2's: they take time in proportion to the text, whatever it is, but know no look-around and
        no back-references; `\\\\d`, `\\\\w` and `\\\\s` mean ASCII (`\\\\pN`, `\\\\pL` do not), and
        nothing is found directly after a match: `x*` in 'ax' is found once, where `re.sub` finds it
        twice.

        >>> import silva as sv
        >>> sv.text("line").replace("<unk>", "?").replace(r"\\s+", " ", regex=True)
        line.replace(old='<unk>', new='?', regex=False).replace(old='\\\\s+', new=' ', regex=True)
        """
        flag("regex", regex)
        old, new = plain_text("old", old), plain_text("new", new)
        if not old:
            raise PlanError("old is empty: say what is to be replaced")
        if regex:
            _check_pattern(old, new)
        return self._call("text.replace", old=old, new=new, regex=regex)

    def split(self, separator: str | None = None) -> TokensExpr:
        """Splits into words at white space, or into parts at each `separator`, as `str.split`.

        >>> import silva as sv
        >>> sv.text("line").split().length()
        line.split().length()
        """
        if separator is not None and not plain_text("separator", separator):
            raise PlanError("separator is empty: say where to split, or nothing for white space")
        return TokensExpr(Call("text.split", (self.term,), (("separator", separator),)))

    def length(self) -> NumExpr:
        """Counts the characters (int64).

        >>> import silva as sv
        >>> sv.text("line").length() < 1000
        line.length() < 1000
        """
        return NumExpr(Call("text.length", (self.term,)))


@column_operator("text.lower")
def lower(columns: list[Column], params: Params, draw: object) -> Column:
    text = read_text(columns[0])
    return _with_other_letters(text, pc.ascii_lower(text), str.lower)


@column_operator("text.upper")
def upper(columns: list[Column], params: Params, draw: object) -> Column:
    text = read_text(columns[0])
    return _with_other_letters(text, pc.ascii_upper(text), str.upper)


@column_operator("text.normalize")
def normalize(columns: list[Column], params: Params, draw: object) -> Column:
    form = params["form"]
    text = read_text(columns[0])
    return _with_other_letters(text, text, lambda row: unicodedata.normalize(form, row))


def _with_other_letters(
    text: pa.Array, result: pa.Array, function: Callable[[str], str]
) -> Strings:
    """`result`, with the rows that are not plain ASCII replaced by `function` of them."""
    other = pc.invert(pc.string_is_ascii(text))
    rows = text.filter(other).to_pylist()
    if rows:
        made = pa.array([function(row) for row in rows], text.type)
        result = pc.replace_with_mask(result, other, made)
    return Strings(result)


@column_operator("text.strip")
def strip(columns: list[Column], params: Params, draw: object) -> Column:
    return Strings(pc.utf8_trim(read_text(columns[0]), characters=WHITE))


@column_operator("text.replace")
def replace(columns: list[Column], params: Params, draw: object) -> Column:
    function = pc.replace_substring_regex if params["regex"] else pc.replace_substring
    return Strings(function(read_text(columns[0]), params["old"], params["new"]))


@column_operator("text.length")
def length(columns: list[Column], params: Params, draw: object) -> Column:
    return from_arrow(pc.utf8_length(read_text(columns[0])).cast(pa.int64()))


@column_operator("text.split")
def split(columns: list[Column], params: Params, draw: object) -> Column:
    text = read_text(columns[0])
    if params["separator"] is not None:
        return from_arrow(pc.split_pattern(text, params["separator"]))
    return _words(pc.utf8_split_whitespace(pc.utf8_trim(text, characters=WHITE)))


def _words(lists: pa.Array) -> Column:
    """Removes empty words: Arrow makes one of a row without words."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    empty = pc.binary_length(lists.values).to_numpy() == 0
    before = np.zeros(len(empty) + 1, np.int64)
    np.cumsum(empty, out=before[1:])
    words = lists.values.filter(pa.array(~empty)) if before[-1] else lists.values
    return Lists(Strings(words), offsets - before[offsets], valid_text(lists))


@column_operator("text.decode")
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


def _check_pattern(pattern: str, new: str) -> None:
    try:
        pc.replace_substring_regex(pa.array([""]), pattern, new)
    except pa.ArrowInvalid as error:
        raise PlanError(f"replace({pattern!r}, {new!r}, regex=True): {error}") from None
