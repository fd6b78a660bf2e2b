"""Tokenizers of `tokenizers` run by the library fastokens, where it gives the same ids.

fastokens reads the same JSON and takes a fraction of the time; it remembers the tokens of words.
It refuses what it does not support. Whether it gives the same ids is checked twice: on
`hard_texts` before a plan uses it, and in each process on the first rows that come. Where one
differs, or a later row fails, the process goes back to `tokenizers` for good.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np

from silva.operators.text.environment import variable_set
from silva.operators.text.patterns import means_the_same
from silva.operators.text.tokenizer import JsonTokenizer, version_of
from silva.plan.class_tags import tagged

LIBRARY = "fastokens"
COMPARED_ROWS = 64
"""Rows that each process tokenizes with both libraries: some milliseconds of work."""
_SHOWN = 40
"""Characters of a text that a message shows."""
_THREADS = "FASTOKENS_BPE_THREADS"
_WHITE_SPACE_TO_ONE = "\u180e"
"""A character that is white space to PCRE2 alone. Whether that changes ids depends on the text
beside it and on the merges, so texts that have it are left to `tokenizers`."""


Flat = tuple[np.ndarray, np.ndarray]
"""All ids end to end (int32), and how many each text has."""


class Encoder(Protocol):
    """The part of `fastokens.Tokenizer` that is used."""

    def encode_batch_flat(
        self, inputs: list[str], add_special_tokens: bool, split_special_tokens: bool
    ) -> tuple[bytes, bytes]:
        """All ids end to end (uint32), and the offsets at which texts begin (uint64)."""
        ...


def build(tokenizer_json: str) -> Encoder:
    """The tokenizer as fastokens has it; ImportError without the library, ValueError where it does
    not support the tokenizer.

    The library starts threads of its own at its first call, as many as this variable says. silva's
    workers are the threads.
    """
    from fastokens._native import Tokenizer  # without its patches of transformers

    encoder: Encoder = Tokenizer.from_json_str(tokenizer_json)
    with variable_set(_THREADS, "1"):
        encoder.encode_batch_flat(["a b"], False, False)
    return encoder


@tagged("FastTokenizer", "exact library")
@dataclass(frozen=True, repr=False)
class FastTokenizer:
    """A tokenizer of `tokenizers` that fastokens runs."""

    exact: JsonTokenizer
    """The tokenizer whose ids it gives."""
    library: str
    """Name and version of the library with which it passed its check."""

    def __repr__(self) -> str:
        return f"{self.exact!r}, by {LIBRARY}"

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("exact", "library")}

    @functools.cached_property
    def _state(self) -> _State:
        return _State(self._build())

    def _build(self) -> Encoder | None:
        """None where this process has not the library with which the check was passed."""
        try:
            if _library() == self.library:
                return build(self.exact.json)
        except (ImportError, ValueError):
            pass
        return None

    def flat_ids(self, texts: list[str], special_tokens: bool) -> Flat:
        """All ids end to end (int32), and how many each text has."""
        encoder = self._state.encoder
        if encoder is None or any(_WHITE_SPACE_TO_ONE in text for text in texts):
            return _flat(self.exact.ids(texts, special_tokens))
        try:
            found = _encode(encoder, texts, special_tokens, self.exact.keeps_special)
        except BaseException as error:
            if not _is_failure(error):
                raise
            return self._give_up(f"{self.library} fails: {error}", texts, special_tokens)
        wrong = self._compare(texts, special_tokens, found)
        if wrong is None:
            return found
        why = f"{self.library} gives other ids for {_short(wrong)}"
        return self._give_up(why, texts, special_tokens)

    def _compare(self, texts: list[str], special_tokens: bool, found: Flat) -> str | None:
        """The first text with other ids, of the rows that are still to be compared."""
        state = self._state
        if state.to_compare <= 0:
            return None
        few = texts[: state.to_compare]
        state.to_compare -= len(few)
        return _first_difference(self.exact, few, special_tokens, found)

    def _give_up(self, why: str, texts: list[str], special_tokens: bool) -> Flat:
        """Goes back to `tokenizers` for good, in this process and its later plans; but not for a
        text on which `tokenizers` fails as well, such as a lone surrogate."""
        right = _flat(self.exact.ids(texts, special_tokens))
        self._state.encoder = None
        self.exact.__dict__["_fast"] = why
        warnings.warn(f"{why}; tokenizers is used instead", RuntimeWarning, stacklevel=2)
        return right

    def row_ids(self, text: str) -> list[int]:
        """The ids of one text, without special tokens."""
        if not isinstance(text, str):  # says nothing about the library
            raise TypeError(f"a text is needed, not {type(text).__name__}")
        found: list[int] = self.flat_ids([text], False)[0].tolist()
        return found


@dataclass
class _State:
    """What a process knows of a fast tokenizer."""

    encoder: Encoder | None
    """None once it is not used any more."""
    to_compare: int = COMPARED_ROWS


def find_fast(tokenizer: JsonTokenizer) -> FastTokenizer | str:
    """The fast form of a tokenizer, or why there is none; found out once."""
    found: FastTokenizer | str | None = tokenizer.__dict__.get("_fast")
    if found is None:
        found = tokenizer.__dict__["_fast"] = _checked(tokenizer)
    return found


def _checked(tokenizer: JsonTokenizer) -> FastTokenizer | str:
    if tokenizer.matches_words:
        return "fastokens does not support this tokenizer: an added token matches whole words only"
    for pattern in tokenizer.patterns():
        if not means_the_same(pattern):
            return f"{LIBRARY} reads the pattern {_short(pattern)} in another way than tokenizers"
    try:
        encoder, library = build(tokenizer.json), _library()
    except ImportError:
        return 'fastokens is not installed: pip install "silva[text]"'
    except ValueError as error:
        return f"fastokens does not support this tokenizer: {error}"
    if tokenizer.drops_unknown:
        return f"{LIBRARY} does not merge across the characters that this tokenizer drops"
    texts = hard_texts(tokenizer.added_tokens() + tokenizer.unknown_token())
    for special in (False, True):
        try:
            found = _encode(encoder, texts, special, tokenizer.keeps_special)
        except BaseException as error:
            if not _is_failure(error):
                raise
            return f"{library} fails on a hard text: {error}"
        try:
            wrong = _first_difference(tokenizer, texts, special, found)
        except BaseException as error:
            if not _is_failure(error):
                raise
            return f"tokenizers fails on a hard text: {error}"
        if wrong is not None:
            return f"{library} gives other ids for {_short(wrong)}"
    made = FastTokenizer(tokenizer, library)
    made.__dict__["_state"] = _State(encoder)
    return made


def _is_failure(error: BaseException) -> bool:
    """Whether the library failed; a panic of its Rust code is no `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _library() -> str:
    return f"{LIBRARY} {version_of(LIBRARY)}"


def _encode(encoder: Encoder, texts: list[str], special: bool, keeps_special: bool) -> Flat:
    ids, offsets = encoder.encode_batch_flat(texts, special, keeps_special)
    lengths = np.diff(np.frombuffer(offsets, np.uint64).astype(np.int64))
    # A copy, since bytes cannot be written to.
    return np.frombuffer(ids, np.uint32).astype(np.int32), lengths


def _flat(rows: Sequence[Any]) -> Flat:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths


def _first_difference(
    tokenizer: JsonTokenizer, texts: list[str], special: bool, found: Flat
) -> str | None:
    """The first text for which both libraries give different ids."""
    ids, lengths = found
    if len(lengths) < len(texts):
        return texts[0]
    end = 0
    for text, right, length in zip(
        texts, tokenizer.ids(texts, special), lengths.tolist(), strict=False
    ):
        start, end = end, end + length
        if ids[start:end].tolist() != right:
            return text
    return None


def _short(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


_SCRIPTS = (
    "The quick brown fox jumps over the lazy dog. It's 12,345.67 — isn't it? WE'LL SEE",
    "naïve café déjà vu Straße größer Ångström ﬁ ﬂ ½ ² ㍿ İıſẞß ΑΣ ΑΣΑ",
    "Съешь же ещё этих мягких французских булок",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "日本語のテキスト、漢字とかな。 中文文本 12 个 한국어 텍스트 각",
    "नमस्ते दुनिया क्षत्रिय ਪੰਜਾਬੀ தமிழ் తెలుగు",
    "สวัสดีชาวโลก ສະບາຍດີ မင်္ဂလာပါ ខ្មែរ",
    "مرحبا بالعالم ١٢٣ שלום עולם فارسی ۴۵۶",
    "ქართული հայերեն አማርኛ ᏣᎳᎩ ᠮᠣᠩᠭᠣᠯ",
    "👩‍🚀👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 👍🏽 ❤️ 1️⃣",
    "e\u0301\u0323 o\u0308 a\u0300\u0301\u0302\u0303 \u0301alone q\u0307\u0323 q\u0323\u0307 가",
    "\U0001d400\U0001d7d8 \U00010348 \U000e0001 \ud7ff\ue000\ufffd\uffff\U0010ffff",
)
_SPACES = (
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "a\r\nb\r\n\r\nc\r",
    "\t\t x  y   z ",
    "  leading",
    "trailing  ",
    " \n \n\n  \n",
    "    def f(x):\n        return x\n\n\n",
    "\u00a0\u2003\u3000x\u2028y\u2029\u1680z\u0085",
    "a  \u00a0 b",
)
_SIGNS = (
    "\u0000",
    "a\u0000b\u0001\u0007\u001b\u001f\u007f\u0080\u009f",
    # White space to PCRE2 alone.
    "\u180e a\u180eb 1\u180e2 -\u180e- \u180e\u180e \n\u180e\n.\u180e ᠮ\u180eᠣ",
    # Letters, digits and marks of Unicode 13 to 17.
    "\U00010ec4a1\u09fe \U00011f04-\U0001e4d0\U0001e4f0 \U00016ac2\U00010d40\U000105c0 \u1c89"
    "\ua7cba\ua7dc \U00010efc\u0897a \U00032400\U000323af \U0001ccf0 \U000116d0 \U00011de0x",
    "'\ufb06 '\ufb00 '\ufb03 '\ufb05 ß'ß 'ſ 'K \u212a'\u212a",
    "\u200b\u200c\u200d\u2060\ufeff\u00ad\u202e",
    "it's IT'S we'LL don't 'tis 's 'S 'ſ 'll'll ''s",
    "1234567890 1,234.56 0x1F 1e-9 Ⅷ ٣ ५ 3½ x²",
    "x_y-z/foo.bar@baz #tag $5 50% a+b=c \\n {}[]()<>|~`^",
    "!?!?....----====____~~~~",
    "https://example.org/a?b=c&d=%20#e",
    "▁meta▁ space Ġbyte Ċ <0x0A> ##piece",
    "<s> </s> <pad> <unk> <|endoftext|> [CLS] [SEP] [MASK] [UNK] <s></s>",
    "camelCase HTTPServer ALLCAPS mixedCASE iPhone",
)
_LONG = ("a" * 2000, "é" * 800, "日本語" * 300, "ab " * 500, "a\u0300" * 200, " " * 300, "1" * 500)
_ENOUGH = 24
"""Added tokens at each end of the list that stand in texts of their own."""


def hard_texts(added: list[str]) -> list[str]:
    """Texts on which tokenizers come to differ, the tokenizer's own added tokens among them."""
    if len(added) > 2 * _ENOUGH:
        added = added[:_ENOUGH] + added[-_ENOUGH:]
    around = [f"{t}|a{t}b| {t} |{t}{t}|\n{t}\n|{t.lower()}|{t.upper()}|{t[:-1]}" for t in added]
    parts = [part for text in around for part in text.split("|")]
    parts += [f"{a}{b}" for a in added for b in added]
    joined = ["".join(_SCRIPTS), " ".join(reversed(_SCRIPTS)).upper()]
    return [*_SCRIPTS, *_SPACES, *_SIGNS, *_LONG, *joined, *around, *parts]
