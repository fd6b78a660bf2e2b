"""How people write text steps: `sv.text("line").lower().tokenize("bpe.json").truncate(127)`.

Every method checks its arguments at once and appends a `Call`. The kernels are in
`silva.operators.text`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from silva.errors import PlanError
from silva.operators._features.arguments import flag
from silva.operators._text.tokenizer import (
    FunctionTokenizer,
    JsonTokenizer,
    TiktokenTokenizer,
    read_tokenizer,
)
from silva.operators._text.vocabulary import read_id, read_vocabulary
from silva.operators.arguments import one_of
from silva.operators.list_expr import ListExpr
from silva.operators.num_expr import NumExpr
from silva.plan.expr import Call, Col, Expr

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


class TextExpr(Expr):
    """A column of text. Nulls stay nulls. Letters, white space and characters are what Python's
    `str` says they are.

    >>> text("line").strip().lower()
    line.strip().lower()
    """

    __slots__ = ()

    def decode(self, errors: Literal["strict", "replace"] = "strict") -> TextExpr:
        """The text of UTF-8 bytes. Bytes that are not UTF-8 are an error; with `"replace"` they
        become U+FFFD. All other methods take text only.

        >>> text("body").decode(errors="replace")
        body.decode(errors='replace')
        """
        one_of("errors", errors, ("strict", "replace"))
        return self._call("text.decode", errors=errors)

    def lower(self) -> TextExpr:
        """As `str.lower`.

        >>> text("line").lower()
        line.lower()
        """
        return self._call("text.lower")

    def upper(self) -> TextExpr:
        """As `str.upper`: 'ß' becomes 'SS'.

        >>> text("line").upper()
        line.upper()
        """
        return self._call("text.upper")

    def strip(self) -> TextExpr:
        """Without white space at both ends, as `str.strip`.

        >>> text("line").strip()
        line.strip()
        """
        return self._call("text.strip")

    def normalize(self, form: Form = "NFC") -> TextExpr:
        """One of Unicode's normal forms, as `unicodedata.normalize`.

        >>> text("line").normalize("NFKC")
        line.normalize(form='NFKC')
        """
        one_of("form", form, ("NFC", "NFD", "NFKC", "NFKD"))
        return self._call("text.normalize", form=form)

    def replace(self, old: str, new: str, regex: bool = False) -> TextExpr:
        """`new` wherever `old` stands, as `str.replace`.

        With `regex=True`, `old` is a pattern and `\\\\1` in `new` is its first group. Patterns are
        RE2's: they take time in proportion to the text, whatever it is, but know no look-around and
        no back-references; `\\\\d`, `\\\\w` and `\\\\s` mean ASCII (`\\\\pN`, `\\\\pL` do not), and
        nothing is found directly after a match: `x*` in 'ax' is found once, where `re.sub` finds it
        twice.

        >>> text("line").replace("<unk>", "?").replace(r"\\s+", " ", regex=True)
        line.replace(old='<unk>', new='?', regex=False).replace(old='\\\\s+', new=' ', regex=True)
        """
        flag("regex", regex)
        old, new = _plain_text("old", old), _plain_text("new", new)
        if not old:
            raise PlanError("old is empty: say what is to be replaced")
        if regex:
            _check_pattern(old, new)
        return self._call("text.replace", old=old, new=new, regex=regex)

    def split(self, separator: str | None = None) -> TokensExpr:
        """The words between white space, or the parts between `separator`s, as `str.split`.

        >>> text("line").split().length()
        line.split().length()
        """
        if separator is not None and not _plain_text("separator", separator):
            raise PlanError("separator is empty: say where to split, or nothing for white space")
        return TokensExpr(Call("text.split", (self.term,), (("separator", separator),)))

    def length(self) -> NumExpr:
        """The number of characters (int64).

        >>> text("line").length() < 1000
        line.length() < 1000
        """
        return NumExpr(Call("text.length", (self.term,)))

    def tokenize(
        self, tokenizer: Any, special_tokens: bool = False, strings: bool = False
    ) -> TokensExpr:
        """Lists of token ids (int32).

        `tokenizer` is the path of a `tokenizer.json`, a tokenizer of the libraries tokenizers,
        transformers (a fast one) or tiktoken, or a function from a text to its ids. It is taken as
        it is now; its own padding and truncation are not used: `truncate` and `pad` are.

        `special_tokens=True` adds those that the tokenizer itself puts around a text; `add_tokens`
        adds others. `strings=True` gives the tokens as text, or says that a function does.

        >>> text("line").tokenize(str.split, strings=True).truncate(127)
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


class TokensExpr(ListExpr):
    """A column of lists of tokens: ids, or words.

    >>> text("line").split().to_ids(["forest", "green"], unknown=2).truncate(8)
    line.split().to_ids(vocabulary of 2, unknown=2).truncate(n=8, side='right')
    """

    __slots__ = ()

    def add_tokens(
        self, before: Sequence[int] | Sequence[str] = (), after: Sequence[int] | Sequence[str] = ()
    ) -> Self:
        """These tokens before and after those of each row: ids to ids, words to words. So that the
        last ones are not cut off again, `truncate` comes first.

        >>> text("line").split().truncate(6).add_tokens(before=["[CLS]"], after=["[SEP]"])
        line.split().truncate(n=6, side='right').add_tokens(before=('[CLS]',), after=('[SEP]',))
        """
        first, last = _tokens("before", before), _tokens("after", after)
        if len({type(token) for token in first + last}) > 1:
            raise PlanError(f"tokens are all ids or all words, not {[*first, *last]!r:.60}")
        return self._call("text.add_tokens", before=first, after=last)

    def to_ids(
        self, vocabulary: Mapping[str, int] | Sequence[str], unknown: int | str | None = None
    ) -> Self:
        """The id (int32) of each word: its value in a dict, or its place in a list. `unknown` is
        the id of all others, or a word of the vocabulary that stands for them; without it, a word
        that the vocabulary does not have is an error.

        >>> text("line").split().to_ids({"[UNK]": 0, "forest": 1}, unknown="[UNK]")
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


def text(name: str) -> TextExpr:
    """A column of text, by name.

    >>> text("line").strip().length()
    line.strip().length()
    """
    if not isinstance(name, str):
        raise PlanError(f"a column's name is a string, not {name!r}")
    return TextExpr(Col(name))


def _plain_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise PlanError(f"{name} is a text, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PlanError(f"{name} holds half a surrogate pair: {value!r}") from None
    return value


def _check_pattern(pattern: str, new: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.replace_substring_regex(pa.array([""]), pattern, new)
    except pa.ArrowInvalid as error:
        raise PlanError(f"replace({pattern!r}, {new!r}, regex=True): {error}") from None


def _tokens(name: str, value: Any) -> tuple[int, ...] | tuple[str, ...]:
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise PlanError(f"{name} is a list of tokens, not {value!r}")
    found = tuple(value)
    if found and all(isinstance(token, str) for token in found):
        return tuple(_plain_text("a token", token) for token in found)
    return tuple(read_id("a token", token) for token in found)
