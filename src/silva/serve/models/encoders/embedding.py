"""Local embedding models, run so that a vector depends on its text alone.

A matrix product changes in its last bits with the shape of its batch. They stay the same where each
text is padded to its own length, rounded up to 8, and only texts of one such length share a batch.
Weights are read from safetensors files alone: other formats are pickled, which is code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from silva.errors import SilvaError
from silva.plan.arguments import explains_verbs, natural, path_of, text
from silva.serve.models.encoders.layout import Layout, digest_of, read_layout, read_tokenizer
from silva.serve.models.errors import QuestionError
from silva.serve.models.model import Answer, Model, Question
from silva.serve.models.unit import unit

_ROUND = 8
"""Tokens to which a length is rounded up."""
_BATCH = 32
"""Texts in a batch: more take no less time each."""
_ROWS = 512
"""Texts in a block: enough to fill a batch of each of the usual lengths."""
_ONNX = ".onnx"

Transformer = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From the tokens and masks of some texts to the vectors of each token."""


@explains_verbs
@dataclass(frozen=True)
class Embedding(Model):
    """A folder in the layout of sentence-transformers: `Embedding("models/all-MiniLM-L6-v2")`.

    It holds a transformer whose vectors are pooled by their mean, or by that of the first token.
    With `weights="onnx/model.onnx"` it is run by onnxruntime.
    """

    path: str
    max_tokens: int | None = None
    """Tokens after which a text is cut; None for as many as the folder says."""
    prompt: str | None = None
    """The name of the prompt, of those in the folder, that is put before each text."""
    weights: str = "model.safetensors"
    """The file of weights, within the folder."""

    def __post_init__(self) -> None:
        path_of("Embedding(path)", self.path)
        if not Path(self.path).is_dir():
            raise SilvaError(
                f"{self.path!r} is no folder: an embedding model is a folder on this machine; "
                "huggingface_hub.snapshot_download(name) downloads one, and returns its path"
            )
        if self.max_tokens is not None:
            natural("Embedding(max_tokens=…)", self.max_tokens, least=1)
        if self.prompt is not None:
            text("Embedding(prompt=…)", self.prompt)
        text("Embedding(weights=…)", self.weights)

    @property
    def identity(self) -> str:
        layout = self.layout()
        most = self.max_tokens or layout.max_tokens
        made = ("embedding", digest_of(self.path, layout.files), str(most), layout.prefix)
        return "\0".join(made)

    def layout(self) -> Layout:
        """What the folder says about how a text becomes a vector."""
        return read_layout(Path(self.path), self.weights, self.prompt)

    def rows_at_once(self, kind: str) -> int:
        return _ROWS

    def cheap_rows(self, kind: str) -> int:
        return _BATCH

    def open(self) -> OpenEmbedding:
        return OpenEmbedding(self)


@explains_verbs
@dataclass(frozen=True)
class StaticEmbedding(Model):
    """A table of token vectors, as wordllama's: a text is the mean of its tokens, at length 1."""

    weights: str
    """A safetensors file that holds one matrix, with a row for each token."""
    tokenizer: str
    """The tokenizer, as JSON of the library tokenizers."""

    def __post_init__(self) -> None:
        path_of("StaticEmbedding(weights)", self.weights)
        path_of("StaticEmbedding(tokenizer)", self.tokenizer)

    @property
    def identity(self) -> str:
        files = (digest_of("", (os.path.abspath(f),)) for f in (self.weights, self.tokenizer))
        return "static embedding\0" + "\0".join(files)

    def open(self) -> OpenStatic:
        return OpenStatic(self)


class _Opened:
    """An open model that embeds, and does nothing else."""

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        return [QuestionError("an embedding model does not generate") for _ in questions]

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        return [QuestionError("an embedding model does not score") for _ in pairs]

    def close(self) -> None: ...


class OpenEmbedding(_Opened):
    def __init__(self, model: Embedding) -> None:
        folder = Path(model.path)
        self._layout = model.layout()
        most = model.max_tokens or self._layout.max_tokens
        self._tokenizer = read_tokenizer(folder / "tokenizer.json", most)
        self.most = _BATCH
        """Texts in a batch."""
        if model.weights.endswith(_ONNX):
            from silva.serve.models.encoders.onnx import batches_change_bits, transformer

            self._transformer: Transformer = transformer(folder / model.weights)
            self.most = 1 if batches_change_bits(folder / model.weights) else _BATCH
        else:
            self._transformer = _torch_transformer(folder)

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        before, lowers = self._layout.prefix, self._layout.lowers
        given = [before + (text.lower() if lowers else text) for text in texts]
        tokens = [found.ids for found in self._tokenizer.encode_batch(given)]
        made: list[np.ndarray | Exception] = [np.empty(0, np.float32)] * len(texts)
        for rows, length in _buckets([len(ids) for ids in tokens], self.most):
            found = self._batch([tokens[i] for i in rows], length)
            for i, vector in zip(rows, found, strict=True):
                made[i] = vector
        return made

    def _batch(self, tokens: list[list[int]], length: int) -> list[np.ndarray]:
        ids, mask = _padded(tokens, length)
        found = self._transformer(ids, mask)
        return [self._pooled(row[: len(each)]) for row, each in zip(found, tokens, strict=True)]

    def _pooled(self, rows: np.ndarray) -> np.ndarray:
        """The vector of a text, from those of its tokens."""
        if self._layout.pooling == "cls":
            made = rows[0].astype(np.float32)
        else:
            made = rows.mean(axis=0, dtype=np.float32)
        return unit(made) if self._layout.normalizes else made


def _buckets(lengths: list[int], most: int) -> list[tuple[list[int], int]]:
    """Rows that share a batch, with the length that all of them are padded to: their own, rounded
    up to 8.

    >>> _buckets([3, 12, 8, 16, 5], most=2)
    [([0, 2], 8), ([4], 8), ([1, 3], 16)]
    """
    rounded = [-(-max(length, 1) // _ROUND) * _ROUND for length in lengths]
    made = []
    for length in sorted(set(rounded)):
        rows = [i for i, each in enumerate(rounded) if each == length]
        made += [(rows[start : start + most], length) for start in range(0, len(rows), most)]
    return made


def _padded(tokens: list[list[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens, and a mask of those that are no padding."""
    ids = np.zeros((len(tokens), length), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, each in enumerate(tokens):
        ids[row, : len(each)] = each
        mask[row, : len(each)] = 1
    return ids, mask


class OpenStatic(_Opened):
    def __init__(self, model: StaticEmbedding) -> None:
        from safetensors.numpy import load_file

        arrays = list(load_file(model.weights).values())
        if len(arrays) != 1 or arrays[0].ndim != 2:
            raise SilvaError(f"{model.weights!r} does not hold one matrix")
        self._table = arrays[0].astype(np.float32)
        self._tokenizer = read_tokenizer(Path(model.tokenizer), None)

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        found = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        width = self._table.shape[1]
        return [
            _unit_mean(self._table[each.ids]) if each.ids else np.zeros(width, np.float32)
            for each in found
        ]


def _unit_mean(rows: np.ndarray) -> np.ndarray:
    """The mean of some vectors, at length 1."""
    return unit(rows.mean(axis=0, dtype=np.float32))


def _torch_transformer(folder: Path) -> Transformer:
    import torch
    from transformers import AutoModel

    loaded: Any = AutoModel.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, use_safetensors=True
    )
    loaded = loaded.eval()

    def run(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            found: np.ndarray = loaded(
                input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)
            ).last_hidden_state.numpy()
        return found

    return run
