"""Strings on which tokenizers come to differ, drawn from a seed.

A string is made of up to twelve pieces: characters of one Unicode category or script, white space,
one character many times, special tokens whole and cut, contractions, numbers, joined emoji,
combining marks, the signs by which vocabularies write spaces and bytes, and parts of real lines.
"""

from __future__ import annotations

import random
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache

_MOST_PIECES = 12
_LONG = 3_000
"""Characters of the longest piece."""
_SPACES = " \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"
# fmt: off
_WORDS = [
    "'s", "'S", "'t", "'re", "'VE", "'m", "'ll", "'d", "’s", "ſ",
    "'ſ", "it's", "DON'T", "1,234.56", "0x1F", "1e-9", "007", "½",
    "Ⅷ", "٣٤", "५", "²", "_x_", "__init__", "camelCase", "ABCdef",
    "http://a.b/?c=d&e#f", "a@b.c", "▁", "▁the", "Ġ", "Ġthe", "Ċ",
    "ĉ", "Â", "<0x0A>", "<0xE3>", "##ing", "</w>", "@@", "<unk>",
    "<|endoftext|>", "[CLS]", "[MASK]", "<s></s>", "ﬁ", "ﬃ", "㍿", "Å",
    "Å", "ẞ", "ß", "İ", "ı", "ΑΣ", "Σ", "ǅ", "҈", "ี", "ा", "्", "ி",
    "ຳ", "ា", "각", "가", "각",
]
# fmt: on
_JOINED = ("\u200d", "\ufe0f", "\U0001f3fd", "\U0001f680", "\u2764", "\U0001f1e9", "\U0001f1ea")


def fuzzed(
    count: int, seed: int, tokens: Sequence[str] = (), lines: Sequence[str] = ("a line",)
) -> list[str]:
    """So many strings. `tokens` are a tokenizer's own special and added ones."""
    rng = random.Random(seed)
    return [_string(rng, tokens or _WORDS, lines) for _ in range(count)]


def _string(rng: random.Random, tokens: Sequence[str], lines: Sequence[str]) -> str:
    glue = rng.choice(("", "", " ", "\n"))
    return glue.join(_piece(rng, tokens, lines) for _ in range(rng.randint(0, _MOST_PIECES)))


def _piece(rng: random.Random, tokens: Sequence[str], lines: Sequence[str]) -> str:
    length = rng.choice((1, 2, 3, 8, 20))
    match rng.randrange(12):
        case 0 | 1:
            return "".join(rng.choices(_of_category(rng.choice(_categories())), k=length))
        case 2:
            start = rng.randrange(0, sys.maxunicode, 128)  # neighbours are mostly of one script
            return "".join(_valid(start + rng.randrange(128)) for _ in range(length))
        case 3 | 4:
            return "".join(rng.choices(_SPACES, k=length))
        case 5:
            return "".join(_valid(rng.randrange(sys.maxunicode + 1)) for _ in range(length))
        case 6:
            one = rng.choice([*_WORDS, *_SPACES, "a", "é", "日", "1", "-", "\u0301", "\x00"])
            many = _LONG if rng.random() < 0.02 else 40
            return one * rng.randint(1, max(1, many // len(one)))
        case 7:
            token = rng.choice(tokens)
            cut = (token, token[1:], token[:-1], token.upper(), token + token, f"a{token}b")
            return rng.choice(cut)
        case 8:
            return rng.choice(_WORDS)
        case 9:
            return "".join(rng.choices(_JOINED, k=length))
        case 10:
            marks = rng.choices(_of_category("Mn"), k=length)
            return rng.choice("aeiouqαийकกअ ") + "".join(marks)
    line = rng.choice(lines)
    start = rng.randint(0, len(line))
    part = line[start : start + rng.randint(0, 60)]
    form = rng.choice(("", "NFC", "NFD", "NFKC", "NFKD"))
    changed = unicodedata.normalize(form, part) if form else part
    return rng.choice((changed, changed.upper(), changed.title(), changed.replace(" ", "")))


def _valid(code: int) -> str:
    """A character; a surrogate, which no UTF-8 can hold, becomes U+FFFD."""
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(min(code, sys.maxunicode))


@cache
def _by_category() -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for code in range(sys.maxunicode + 1):
        found.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    del found["Cs"]
    return {name: "".join(characters) for name, characters in found.items()}


def _of_category(name: str) -> str:
    return _by_category()[name]


def _categories() -> tuple[str, ...]:
    return tuple(_by_category())
