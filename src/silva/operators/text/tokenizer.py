"""Tokenizers as parameters of an operator: compared, hashed and fingerprinted by what they do.

A tokenizer of `tokenizers` is kept as its JSON, from which each process builds its own: it goes to
workers as plain data, and later changes to the object that was passed in do not change a plan. Its
own padding and truncation are not used: padding depends on the whole batch, so rows would change
each other, and both may be left over from an earlier call. `pad` and `truncate` replace them.

Only the hash of a tokenizer's content is a field: plans compare and fingerprint that alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.operators.text.environment import variable_set
from silva.plan.class_tags import tagged
from silva.plan.function import describe

Rows = Sequence[Any]
"""For each text, its tokens."""


@tagged("JsonTokenizer", "content version keeps_special")
@dataclass(frozen=True, repr=False)
class JsonTokenizer:
    """A tokenizer of the library `tokenizers`."""

    content: str
    """A hash of its JSON."""
    version: str
    """Of the library."""
    keeps_special: bool
    """Special tokens that stand in a text are split like other text (`encode_special_tokens`)."""

    def __repr__(self) -> str:
        return str(self.__dict__["label"])

    @functools.cached_property
    def _built(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(self.json)
        tokenizer.encode_special_tokens = self.keeps_special
        return tokenizer

    def __getstate__(self) -> dict[str, Any]:
        kept_here = ("_built", "_fast")  # `_fast`: see `fast_tokenizer.find_fast`
        return {name: value for name, value in self.__dict__.items() if name not in kept_here}

    @property
    def json(self) -> str:
        """All that it is, without its padding and truncation."""
        return str(self.__dict__["json_"])

    def added_tokens(self) -> list[str]:
        """The tokens that it looks for before it splits a text, special ones among them."""
        found = self._built.get_added_tokens_decoder()
        return [found[number].content for number in sorted(found)]

    def unknown_token(self) -> list[str]:
        """The token of unknown characters, where the model has one."""
        found = getattr(self._built.model, "unk_token", None)
        return [found] if isinstance(found, str) else []

    @property
    def drops_unknown(self) -> bool:
        """Whether it leaves out characters without a token, and merges what is around them."""
        if self.unknown_token() or "ByteLevel" in self._types():
            return False
        return any(self._built.token_to_id(f"<0x{byte:02X}>") is None for byte in range(256))

    @property
    def matches_words(self) -> bool:
        """Whether it looks for a token only where it is a whole word."""
        return any(token.single_word for token in self._built.get_added_tokens_decoder().values())

    def patterns(self) -> list[str]:
        """The regular expressions of its normalizer and its pre-tokenizer."""
        return [x for part in self._parts() for x in _values(part, "Regex")]

    def _types(self) -> list[str]:
        """The types of its normalizers and pre-tokenizers."""
        return [x for part in self._parts() for x in _values(part, "type")]

    def _parts(self) -> list[Any]:
        """Its normalizer and its pre-tokenizer as data."""
        parts = (self._built.normalizer, self._built.pre_tokenizer)
        return [_as_data(part) for part in parts if part is not None]

    def ids(self, texts: list[str], special_tokens: bool) -> Rows:
        with one_thread():
            found = self._built.encode_batch_fast(texts, add_special_tokens=special_tokens)
        return [encoding.ids for encoding in found]

    def strings(self, texts: list[str], special_tokens: bool) -> Rows:
        with one_thread():  # not encode_batch_fast, whose tokens are empty strings
            found = self._built.encode_batch(texts, add_special_tokens=special_tokens)
        return [encoding.tokens for encoding in found]


def _as_data(part: Any) -> Any:
    """A part of a tokenizer as its JSON has it."""
    return json.loads(part.__getstate__())


def _values(data: Any, name: str) -> list[str]:
    """All texts of a name, however deep."""
    if isinstance(data, list):
        return [x for item in data for x in _values(item, name)]
    if not isinstance(data, dict):
        return []
    own = [data[name]] if isinstance(data.get(name), str) else []
    return own + [x for item in data.values() for x in _values(item, name)]


@tagged("TiktokenTokenizer", "content version")
@dataclass(frozen=True, repr=False)
class TiktokenTokenizer:
    """An encoding of the library `tiktoken`."""

    content: str
    """A hash of its pattern and its tokens."""
    version: str

    def __repr__(self) -> str:
        return f"tiktoken {self.__dict__['encoding'].name}"

    def ids(self, texts: list[str], special_tokens: bool) -> Rows:
        encode = self.__dict__[
            "encoding"
        ].encode_to_numpy  # leaves the ids where they are; lists cost a third
        return [encode(text, disallowed_special=()) for text in texts]


@tagged("FunctionTokenizer", "function")
@dataclass(frozen=True, repr=False)
class FunctionTokenizer:
    """A Python function from a text to its tokens."""

    function: Any

    def __repr__(self) -> str:
        return describe(self.function)

    def ids(self, texts: list[str], special_tokens: bool) -> Rows:
        return [_checked_ids(self.function(text)) for text in texts]

    def strings(self, texts: list[str], special_tokens: bool) -> Rows:
        return [_checked_strings(self.function(text)) for text in texts]


AnyTokenizer = JsonTokenizer | TiktokenTokenizer | FunctionTokenizer

_MOST = (1 << 31) - 1


def _checked_ids(tokens: Any) -> np.ndarray:
    ids = np.asarray(tokens)
    if ids.size == 0 and ids.ndim == 1:
        return np.empty(0, np.int32)
    if ids.ndim == 1 and ids.dtype.kind == "U":
        raise ValueError("the tokenizer gave strings: say tokenize(…, strings=True)")
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ValueError(f"a tokenizer gives a list of ids, not {tokens!r:.60}")
    if ids.max() > _MOST or ids.min() < -_MOST:
        raise ValueError(f"one of these ids does not fit into int32: {tokens!r:.60}")
    return ids.astype(np.int32)


def _checked_strings(tokens: Any) -> list[str]:
    found = list(tokens)
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in found):
        raise ValueError(
            f"with strings=True a tokenizer gives a list of strings, not {tokens!r:.60}"
        )
    return found


def read_tokenizer(value: Any) -> AnyTokenizer:
    """Turns a tokenizer of any supported kind into a parameter that plans can compare."""
    if isinstance(value, str | os.PathLike):
        return _from_file(Path(value))
    value = getattr(value, "backend_tokenizer", value)  # a fast tokenizer of transformers
    if type(value).__module__.startswith("tokenizers.implementations"):
        value = value._tokenizer
    if hasattr(value, "to_str") and hasattr(value, "encode_batch_fast"):
        return _from_object(value)
    if hasattr(value, "encode_to_numpy") and hasattr(value, "_mergeable_ranks"):
        return _from_tiktoken(value)
    if callable(value):
        return FunctionTokenizer(value)
    raise PlanError(
        "a tokenizer is the path of a tokenizer.json, an object of tokenizers, transformers (fast) "
        f"or tiktoken, or a function from a text to its tokens; not {value!r:.60}"
    )


def _from_file(path: Path) -> JsonTokenizer:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"the tokenizer {str(path)!r} cannot be read: {error}") from None
    return read_json(text, False, path)


def _from_object(tokenizer: Any) -> JsonTokenizer:
    try:
        text = tokenizer.to_str()
    except Exception as error:  # noqa: BLE001  the library raises no narrower one
        raise PlanError(
            f"the tokenizer has no JSON: {error}; give a function that calls it"
        ) from None
    return read_json(text, tokenizer.encode_special_tokens, None)


def read_json(text: str, keeps_special: bool, path: Path | None = None) -> JsonTokenizer:
    """A tokenizer from its JSON."""
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        raise PlanError(f"{str(path)!r} needs the library tokenizers: install it") from None
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # noqa: BLE001
        raise PlanError(f"{str(path)!r} holds no tokenizer: {error}") from None
    if getattr(tokenizer.model, "dropout", None):
        raise PlanError(
            "the tokenizer leaves out merges at random (dropout), which cannot be repeated: "
            "set tokenizer.model.dropout = None"
        )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    data = tokenizer.to_str()
    tokenizer.encode_special_tokens = keeps_special
    label = repr(path.name) if path else f"tokenizer of {tokenizer.get_vocab_size()}"
    made = JsonTokenizer(_hash(data), version_of("tokenizers"), keeps_special)
    made.__dict__.update(json_=data, label=label, _built=tokenizer)
    return made


def _from_tiktoken(encoding: Any) -> TiktokenTokenizer:
    ranks = sorted((rank, token) for token, rank in encoding._mergeable_ranks.items())
    special = sorted(encoding._special_tokens.items())
    content = _hash(repr((encoding._pat_str, ranks, special)))
    made = TiktokenTokenizer(content, version_of("tiktoken"))
    made.__dict__["encoding"] = encoding
    return made


def version_of(package: str) -> str:
    """The version of an installed package."""
    import importlib.metadata  # slow to import, and needed here only

    return importlib.metadata.version(package)


def _hash(data: str) -> str:
    return hashlib.blake2b(data.encode(), digest_size=16).hexdigest()


def one_thread() -> AbstractContextManager[None]:
    """Keeps `tokenizers` on the calling thread while any thread is inside: silva's workers are the
    threads. The library decides by this variable, at each call, and by nothing else that Python
    can reach."""
    return variable_set("TOKENIZERS_PARALLELISM", "false")
