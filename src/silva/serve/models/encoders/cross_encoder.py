"""Cross-encoders: models that read a question and a passage together, and say how well they fit.

A folder in the layout of sentence-transformers' `CrossEncoder`: a transformer with a head of one
number. The head is one product for each pair, whose last bits change with the number of pairs, so
each pair is read alone: a score depends on its pair and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from silva.errors import SilvaError
from silva.plan.arguments import explains_verbs, natural, path_of
from silva.serve.models.encoders.layout import check_files, digest_of, read_json, read_tokenizer
from silva.serve.models.errors import QuestionError
from silva.serve.models.model import Answer, Model, Question

_WEIGHTS = "model.safetensors"
_FILES = ("config.json", "tokenizer.json", _WEIGHTS)
_ROWS = 256
_LENGTH = 512
"""Tokens of a pair where the folder does not say how many the model takes."""


@explains_verbs
@dataclass(frozen=True)
class CrossEncoder(Model):
    """A cross-encoder, for `sv.rerank("question", "hits", by=CrossEncoder("models/ms-marco"))`.

    A score is the number of the model's head; a logistic function is applied where the folder says
    so, or says nothing. A passage that is too long is cut after `max_tokens`, the question is not.
    """

    reads_pairs: ClassVar[bool] = True
    path: str
    max_tokens: int | None = None
    """Tokens of a pair; None for as many as the model takes."""

    def __post_init__(self) -> None:
        path_of("CrossEncoder(path)", self.path)
        if self.max_tokens is not None:
            natural("CrossEncoder(max_tokens=…)", self.max_tokens, least=1)

    @property
    def identity(self) -> str:
        return f"cross-encoder\0{digest_of(self.path, _FILES)}\0{self.max_tokens}"

    def rows_at_once(self, kind: str) -> int:
        return _ROWS

    def open(self) -> OpenCrossEncoder:
        return OpenCrossEncoder(self)


class OpenCrossEncoder:
    def __init__(self, model: CrossEncoder) -> None:
        folder = Path(model.path)
        check_files(folder, _FILES)
        config = read_json(folder / "config.json")
        self._activation = _activation(folder, config)
        most = model.max_tokens or int(config.get("max_position_embeddings") or _LENGTH)
        self._tokenizer = read_tokenizer(folder / "tokenizer.json", None)
        self._tokenizer.enable_truncation(most, strategy="only_second")
        self._run = _classifier(folder)

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        """How well a text fits a question, for pairs (question, text)."""
        found: list[float | Exception] = []
        for pair in pairs:
            try:
                tokens = self._tokenizer.encode(*pair)
            except Exception as error:  # noqa: BLE001  the tokenizer's own classes: a long question
                found.append(QuestionError(f"the pair cannot be read: {error}"))
                continue
            found.append(self._activation(self._run(tokens.ids, tokens.type_ids)))
        return found

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        return [QuestionError("a cross-encoder does not embed") for _ in texts]

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        return [QuestionError("a cross-encoder does not generate") for _ in questions]

    def close(self) -> None: ...


def _activation(folder: Path, config: dict[str, Any]) -> Callable[[float], float]:
    """What is applied to the number of the head."""
    labels = config.get("id2label") or {"0": ""}
    if len(labels) != 1:
        raise SilvaError(f"{str(folder)!r} has a head of {len(labels)} numbers, not of one")
    named = (config.get("sentence_transformers") or {}).get("activation_fn")
    named = named or config.get("sbert_ce_default_activation_function") or "Sigmoid"
    kind = str(named).rpartition(".")[2]
    if kind not in _ACTIVATIONS:
        raise SilvaError(f"{str(folder)!r} applies {named}, which silva does not know")
    return _ACTIVATIONS[kind]


def _sigmoid(logit: float) -> float:
    return float(1 / (1 + np.exp(-np.float64(logit))))


_ACTIVATIONS: dict[str, Callable[[float], float]] = {"Identity": float, "Sigmoid": _sigmoid}


def _classifier(folder: Path) -> Callable[[list[int], list[int]], float]:
    """From the tokens of a pair, and the text that each is of, to the number of the head."""
    import torch
    from transformers import AutoModelForSequenceClassification

    loaded: Any = AutoModelForSequenceClassification.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False, use_safetensors=True
    )
    loaded = loaded.eval()
    takes_types = getattr(loaded.config, "type_vocab_size", 0) > 1

    def run(ids: list[int], types: list[int]) -> float:
        given = {"input_ids": torch.tensor([ids])}
        if takes_types:
            given["token_type_ids"] = torch.tensor([types])
        with torch.inference_mode():
            return float(loaded(**given).logits[0, 0])

    return run
