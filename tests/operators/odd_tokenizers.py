"""Draws BPE tokenizers that nobody would train: vocabularies with holes, merges of anything,
unknown tokens, added tokens that overlap, patterns one after the other. Few are of the kinds that
fastokens supports, and some of these give other ids: none may be used that does."""

from __future__ import annotations

from random import Random
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
_SIGNS = [
    *"abcdeABC 123.,'!-_\n\t\ré日本ßİſ\u0301\u0323\u200d👩\x00\x7f\u00a0\u3000\u2581Ġ#<>|[]/",
    "각", "ﬁ", "½", "\u180e", "\ufeff", "\U0010ffff", "\u0085", "\u2028",
]  # fmt: skip
_WORDS = (
    "<s>", "<s", "ab", " a", "\n\n", "<|", "[MASK]", "É", "e\u0301", "  ", "a", "\x00", "<unk>"
)  # fmt: skip
_PATTERNS = (
    r"'s|'t|'re| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", r"\p{N}{1,2}", r"\s+",
    r"[a-c]+", r"(?i:ab)", r"a|ab|abc", r"\p{P}", r"[^\s]+", r"(?!a)b", r"[\r\n]",
    r"\p{L}+(?=\p{N})",
)  # fmt: skip


def draw_tokenizer(chance: Random) -> Tokenizer:
    """A tokenizer of odd parts."""
    by_bytes = chance.random() < 0.6
    tokenizer = Tokenizer(_model(chance, by_bytes))
    if chance.random() < 0.4:
        tokenizer.normalizer = normalizers.Sequence(
            chance.sample(
                [
                    normalizers.NFC(),
                    normalizers.Prepend("▁"),
                    normalizers.Replace(" ", "▁"),
                    normalizers.Replace("ab", "c"),
                    normalizers.Lowercase(),
                ],
                chance.choice((1, 2)),
            )
        )
    splits: list[Any] = [
        pre_tokenizers.Split(
            Regex(chance.choice(_PATTERNS)),
            chance.choice(("isolated", "isolated", "removed", "merged_with_next")),
        )
        for _ in range(chance.choice((0, 1, 2)))
    ]
    if by_bytes:
        splits.append(
            pre_tokenizers.ByteLevel(
                add_prefix_space=chance.random() < 0.3, use_regex=chance.random() < 0.5
            )
        )
    if splits:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    for word in chance.sample(_WORDS, chance.choice((0, 1, 2, 4))):
        flags = {n: chance.random() < 0.2 for n in ("lstrip", "rstrip", "normalized", "special")}
        tokenizer.add_tokens([AddedToken(word, **flags)])
    if chance.random() < 0.3:
        words = {w: n for w, n in tokenizer.get_vocab().items() if w.isalnum()}
        word, number = chance.choice(sorted(words.items()))
        tokenizer.post_processor = processors.TemplateProcessing(
            single=["$A", word], special_tokens=[(word, number)]
        )
    tokenizer.encode_special_tokens = chance.random() < 0.2
    return tokenizer


def _model(chance: Random, by_bytes: bool) -> models.BPE:
    tokens = list(_BYTES if by_bytes else dict.fromkeys(_SIGNS))
    some = [token for token in tokens if token in "abcdeABC 123Ġ.'é▁Ċĉ<>"]
    merges = []
    for _ in range(chance.choice((0, 3, 30))):
        pair = chance.choice(some), chance.choice(some)
        if pair not in merges and len("".join(pair)) < 20:
            merges.append(pair)
            some.append("".join(pair))
    tokens += some
    given: dict[str, Any] = {"ignore_merges": chance.random() < 0.2}
    if chance.random() < 0.5:
        given |= {"unk_token": "<unk>", "fuse_unk": chance.random() < 0.5}
        tokens.append("<unk>")
    if not by_bytes and chance.random() < 0.4:
        given["byte_fallback"] = True
        tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    return models.BPE(vocab=vocabulary, merges=merges, **given)


def draw_texts(chance: Random, count: int) -> list[str]:
    """Texts of the signs that the tokenizers are made of."""
    lengths = (chance.choice((0, 1, 2, 3, 5, 8, 40)) for _ in range(count))
    return ["".join(chance.choices([*_SIGNS, *_WORDS], k=length)) for length in lengths]
