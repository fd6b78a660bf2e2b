"""Tokenizers of many kinds, trained on the lines that a test gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

_GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<pad>", "<s>", "</s>"]
Lines = Sequence[str]


def byte_level(
    lines: Lines, size: int, pre: Any = None, normalizer: Any = None, **model: Any
) -> Tokenizer:
    """A byte-level BPE, as of GPT-2, with exactly `size` tokens."""
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    _fill(tokenizer, size)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


def _fill(tokenizer: Tokenizer, size: int) -> None:
    """Few lines do not have as many pairs as a vocabulary needs."""
    missing = size - tokenizer.get_vocab_size()
    tokenizer.add_tokens([f"<extra {i}>" for i in range(missing)])


def with_added(lines: Lines, size: int) -> Tokenizer:
    tokenizer = byte_level(lines, size)
    two = [AddedToken("New York", normalized=False), AddedToken("<x>", lstrip=True)]
    tokenizer.add_tokens(two)
    tokenizer.add_tokens([AddedToken("ing", normalized=True)])
    tokenizer.add_tokens([AddedToken("<y>", rstrip=True, special=True)])
    return tokenizer


def whole_words(lines: Lines, size: int) -> Tokenizer:
    tokenizer = byte_level(lines, size)
    tokenizer.add_tokens([AddedToken("ing", single_word=True)])
    return tokenizer


def _split(pattern: str) -> Any:
    parts = [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    return pre_tokenizers.Sequence(parts)


def sentencepiece(lines: Lines, size: int) -> Tokenizer:
    """A BPE that falls back to bytes, as of Llama 2."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, show_progress=False, max_token_length=16
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def bert(lines: Lines, size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def unigram(lines: Lines, size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


FAST: dict[str, Callable[[Lines, int], Tokenizer]] = {
    "GPT-2": byte_level,
    "prefix space": lambda x, n: byte_level(x, n, pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "added tokens": with_added,
    "NFC": lambda x, n: byte_level(x, n, normalizer=normalizers.NFC()),
    "Llama 3": lambda x, n: byte_level(x, n, _split(_GPT4), ignore_merges=True),
    "Qwen": lambda x, n: byte_level(x, n, _split(_GPT4.replace("{1,3}", "")), normalizers.NFC()),
    "Llama 2": sentencepiece,
}
"""Those that fastokens supports."""
SLOW: dict[str, Callable[[Lines, int], Tokenizer]] = {
    "BERT": bert,
    "Unigram": unigram,
    "whole words": whole_words,
}
"""Those that it does not."""
