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


def split(pattern: str) -> Any:
    """A pre-tokenizer that splits a text by a pattern."""
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


def one_byte_missing(lines: Lines, size: int) -> Tokenizer:
    """Bytes that the lines do not have are not in its vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, show_progress=False))
    return tokenizer


def padding_and_truncating(lines: Lines, size: int) -> Tokenizer:
    """Both are its own, and are not used."""
    tokenizer = byte_level(lines, size)
    tokenizer.enable_padding(pad_id=0, pad_token="<pad>", length=16)
    tokenizer.enable_truncation(8)
    return tokenizer


def with_processor(lines: Lines, size: int, processor: Any) -> Tokenizer:
    tokenizer = byte_level(lines, size)
    tokenizer.post_processor = processor
    return tokenizer


def deepseek(lines: Lines, size: int) -> Tokenizer:
    """Digits, then Chinese and Japanese, then words: several splits in a row."""
    parts = [
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.Split(Regex("[一-龥\u3040-ゟ゠-ヿ]+"), "isolated"),
        pre_tokenizers.Split(Regex(_GPT4), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    return byte_level(lines, size, pre_tokenizers.Sequence(parts))


def digits_apart(lines: Lines, size: int) -> Tokenizer:
    parts = [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
    return byte_level(lines, size, pre_tokenizers.Sequence(parts))


def normal(*parts: Any) -> Callable[[Lines, int], Tokenizer]:
    """A byte-level BPE with this normalizer."""
    normalizer = parts[0] if len(parts) == 1 else normalizers.Sequence(list(parts))
    return lambda lines, size: byte_level(lines, size, normalizer=normalizer)


def metaspace(lines: Lines, size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<unk>"], show_progress=False, max_token_length=16
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def word_ends(lines: Lines, size: int) -> Tokenizer:
    """As of CLIP: in lower case, and the last piece of a word is another token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                Regex(r"'s|'t|'re|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"), "removed", True
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<unk>"],
        end_of_word_suffix="</w>",
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def odd_added(lines: Lines, size: int) -> Tokenizer:
    """Tokens within tokens, with spaces around, of white space, and changed by the normalizer."""
    tokenizer = byte_level(lines, size, normalizer=normalizers.NFC())
    tokenizer.add_tokens(["  ", "\n\n", "é", "e\u0301x", "<s", "s>", "日本", "日", "'s", " the"])
    sides = [AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True)]
    tokenizer.add_tokens([*sides, AddedToken("<b>", lstrip=True, rstrip=True, normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<|im start|>"), AddedToken("<|im|>", rstrip=True)])
    return tokenizer


FAST: dict[str, Callable[[Lines, int], Tokenizer]] = {
    "GPT-2": byte_level,
    "prefix space": lambda x, n: byte_level(x, n, pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "added tokens": with_added,
    "NFC": lambda x, n: byte_level(x, n, normalizer=normalizers.NFC()),
    "Llama 3": lambda x, n: byte_level(x, n, split(_GPT4), ignore_merges=True),
    "Qwen": lambda x, n: byte_level(x, n, split(_GPT4.replace("{1,3}", "")), normalizers.NFC()),
    "Llama 2": sentencepiece,
}
"""Those that fastokens supports."""
SLOW: dict[str, Callable[[Lines, int], Tokenizer]] = {
    "BERT": bert,
    "Unigram": unigram,
    "whole words": whole_words,
}
"""Those that it does not."""
_PAIR = (("</s>", 2), ("<s>", 1))
MORE: dict[str, Callable[[Lines, int], Tokenizer]] = {
    "NFD": normal(normalizers.NFD()),
    "NFKC": normal(normalizers.NFKC()),
    "lower case": normal(normalizers.Lowercase()),
    "NFC, lower case": normal(normalizers.NFC(), normalizers.Lowercase()),
    "no accents": normal(normalizers.NFD(), normalizers.StripAccents()),
    "strip": normal(normalizers.Strip()),
    "replace": normal(normalizers.Replace(Regex(r"\s+"), " ")),
    "replace text": normal(normalizers.Replace("''", '"')),
    "prepend": normal(normalizers.Prepend("x")),
    "one byte missing": one_byte_missing,
    "its own padding": padding_and_truncating,
    "BERT's frame": lambda x, n: with_processor(x, n, processors.BertProcessing(*_PAIR)),
    "RoBERTa's frame": lambda x, n: with_processor(x, n, processors.RobertaProcessing(*_PAIR)),
    "byte-level frame": lambda x, n: with_processor(x, n, processors.ByteLevel(trim_offsets=True)),
    "no frame": lambda x, n: with_processor(x, n, processors.Sequence([])),
    "DeepSeek": deepseek,
    "digits apart": digits_apart,
    "metaspace": metaspace,
    "word ends": word_ends,
    "odd added tokens": odd_added,
    "no words": lambda x, n: byte_level(
        x, n, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), max_token_length=16
    ),
}
"""More of them, of which fastokens supports some."""
