"""Local embedding models, run so that a vector depends on its text alone.

A matrix product changes in its last bits with the shape of its batch. They stay the same where each
text is padded to its own length, rounded up to 8, and only texts of one such length share a batch.
Weights are read from safetensors files alone: other formats are pickled, which is code.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from silva.errors import SilvaError
from silva.serve.models.model import Answer, Model, Question

_ROUND = 8
"""Tokens to which a length is rounded up."""
_BATCH = 32
"""Texts in a batch: more take no less time each."""
_MOST_JSON = 64 << 20
_TRANSFORMER = ("config.json", "tokenizer.json", "model.safetensors")


class _Encoding(Protocol):
    ids: list[int]


@dataclass(frozen=True)
class Embedding(Model):
    """A folder in the layout of sentence-transformers: `Embedding("models/all-MiniLM-L6-v2")`.

    It holds a transformer with mean pooling. Vectors have length 1. A text is cut after
    `max_tokens`.
    """

    path: str
    max_tokens: int = 256

    @property
    def identity(self) -> str:
        names = [*_TRANSFORMER, *_optional(Path(self.path))]
        return f"embedding\0{_digest_of(self.path, tuple(names))}\0{self.max_tokens}"

    def open(self) -> OpenEmbedding:
        return OpenEmbedding(self)


@dataclass(frozen=True)
class StaticEmbedding(Model):
    """A table of token vectors, as wordllama's: a text is the mean of its tokens, at length 1."""

    weights: str
    """A safetensors file that holds one matrix, with a row for each token."""
    tokenizer: str
    """The tokenizer, as JSON of the library tokenizers."""

    @property
    def identity(self) -> str:
        files = (_digest_of("", (os.path.abspath(f),)) for f in (self.weights, self.tokenizer))
        return "static embedding\0" + "\0".join(files)

    def open(self) -> OpenStatic:
        return OpenStatic(self)


class _Opened:
    """An open model that embeds, and does nothing else."""

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        raise SilvaError("an embedding model does not generate")

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        raise SilvaError("an embedding model does not score")

    def close(self) -> None: ...


class OpenEmbedding(_Opened):
    def __init__(self, model: Embedding) -> None:
        folder = Path(model.path)
        _check_layout(folder)
        self._tokenizer = _tokenizer(folder / "tokenizer.json", model.max_tokens)
        self._transformer = _transformer(folder)

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        tokens = [found.ids for found in self._tokenizer.encode_batch(texts)]
        lengths = [-(-max(len(ids), 1) // _ROUND) * _ROUND for ids in tokens]
        made: list[np.ndarray | Exception] = [np.empty(0, np.float32)] * len(texts)
        for length in sorted(set(lengths)):
            rows = [i for i, each in enumerate(lengths) if each == length]
            for start in range(0, len(rows), _BATCH):
                some = rows[start : start + _BATCH]
                found = self._batch([tokens[i] for i in some], length)
                for i, vector in zip(some, found, strict=True):
                    made[i] = vector
        return made

    def _batch(self, tokens: list[list[int]], length: int) -> np.ndarray:
        import torch

        ids = np.zeros((len(tokens), length), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, each in enumerate(tokens):
            ids[row, : len(each)] = each
            mask[row, : len(each)] = 1
        with torch.inference_mode():
            found = self._transformer(
                input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)
            ).last_hidden_state.numpy()
        return np.stack(
            [_unit_mean(row[: len(each)]) for row, each in zip(found, tokens, strict=True)]
        )


class OpenStatic(_Opened):
    def __init__(self, model: StaticEmbedding) -> None:
        from safetensors.numpy import load_file

        arrays = list(load_file(model.weights).values())
        if len(arrays) != 1 or arrays[0].ndim != 2:
            raise SilvaError(f"{model.weights!r} does not hold one matrix")
        self._table = arrays[0].astype(np.float32)
        self._tokenizer = _tokenizer(Path(model.tokenizer), None)

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        found = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        width = self._table.shape[1]
        return [
            _unit_mean(self._table[each.ids]) if each.ids else np.zeros(width, np.float32)
            for each in found
        ]


def _unit_mean(rows: np.ndarray) -> np.ndarray:
    """The mean of some vectors, at length 1."""
    mean = rows.mean(axis=0, dtype=np.float32)
    length = np.sqrt(np.vecdot(mean, mean))
    made: np.ndarray = mean / length if length > 0 else mean
    return made


def _tokenizer(path: Path, most: int | None) -> Any:
    from tokenizers import Tokenizer

    try:
        found = Tokenizer.from_str(_read(path).decode())
    except Exception as error:
        raise SilvaError(f"{str(path)!r} is no tokenizer: {error}") from error
    found.no_padding()
    if most is None:
        found.no_truncation()
    else:
        found.enable_truncation(most)
    return found


def _transformer(folder: Path) -> Any:
    from transformers import AutoModel

    found = AutoModel.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, use_safetensors=True
    )
    return found.eval()


def _check_layout(folder: Path) -> None:
    """Refuses what this driver would compute in another way than its author meant."""
    for name in _TRANSFORMER:
        if not (folder / name).is_file():
            pickled = sorted(path.name for path in folder.glob("*.bin"))
            told = f"; {pickled[0]!r} is pickled, which silva does not read" if pickled else ""
            raise SilvaError(f"{str(folder)!r} has no {name}{told}")
    config = _json(folder / "config.json")
    if "auto_map" in config:
        raise SilvaError(f"{str(folder)!r} brings code of its own, which silva does not run")
    for pooling in sorted(folder.glob("*_Pooling/config.json")):
        modes = _json(pooling)
        on = [key for key, value in modes.items() if key.startswith("pooling_mode_") and value]
        if (on or modes.get("pooling_mode")) not in (["pooling_mode_mean_tokens"], "mean"):
            raise SilvaError(f"{str(pooling)!r} does not ask for mean pooling, which silva knows")


def _optional(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in sorted(folder.glob("*_Pooling/config.json"))]


def _json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(_read(path), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise SilvaError(f"{str(path)!r} is damaged: {error}") from error


def _read(path: Path) -> bytes:
    if path.stat().st_size > _MOST_JSON:
        raise SilvaError(f"{str(path)!r} has over {_MOST_JSON:,} bytes")
    return path.read_bytes()


def _digest_of(folder: str, names: Sequence[str]) -> str:
    """The digest of some files by their contents; computed again when one of them has changed."""
    states = []
    for name in names:
        path = os.path.join(folder, name)
        try:
            found = os.stat(path)
        except OSError as error:
            raise SilvaError(f"{path!r} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(found.st_mode):
            raise SilvaError(f"{path!r} is not a plain file")
        states.append((path, found.st_size, found.st_mtime_ns, found.st_ino))
    return _digest(tuple(states))


@functools.lru_cache(maxsize=64)
def _digest(states: tuple[tuple[str, int, int, int], ...]) -> str:
    made = hashlib.blake2b(digest_size=16)
    for path, *_ in states:
        with open(path, "rb") as file:
            made.update(hashlib.file_digest(file, _new_digest).digest())
    return made.hexdigest()


_new_digest: Callable[[], Any] = functools.partial(hashlib.blake2b, digest_size=32)
