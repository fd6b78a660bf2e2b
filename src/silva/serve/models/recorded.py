"""Answers from a file, for tests: no model, no network, the same answers every time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from silva.errors import SilvaError
from silva.serve.models.model import Answer, Model, Question

Recording = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Recorded(Model):
    """Replays what another model has answered: `Recorded("answers.json")`.

    A question that is not in the file is an error, which names it. With `model=`, it is asked and
    written into the file: run a test once with it, and commit the file. The file is JSON:
    `{"generate": {"the prompt": "the answer"}, "embed": {"the text": [0.1, …]}}`; several messages
    of a prompt are joined as lines `role: text`.
    """

    file: str
    model: Model | None = None

    def __repr__(self) -> str:
        return f"recorded in {self.file}"

    @property
    def identity(self) -> str:
        path = Path(self.file)
        content = path.read_bytes() if path.exists() else b""
        return f"recorded\0{hashlib.sha256(content).hexdigest()}"

    def open(self) -> OpenRecorded:
        return OpenRecorded(self)


class OpenRecorded:
    """A file of answers."""

    def __init__(self, recorded: Recorded) -> None:
        self._path = Path(recorded.file)
        self._model = None if recorded.model is None else recorded.model.open()
        self._found: Recording = {}
        if self._path.exists():
            self._found = msgspec.json.decode(self._path.read_bytes(), type=Recording)

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        texts = [_prompt(question) for question in questions]
        found = self._replay("generate", texts, lambda some: self._asked(questions, texts, some))
        return [one if isinstance(one, Exception) else Answer(str(one)) for one in found]

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        found = self._replay(
            "embed", texts, lambda some: [_plain(v) for v in self._open.embed(some)]
        )
        return [one if isinstance(one, Exception) else np.array(one, np.float32) for one in found]

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        texts = [f"{prompt}\n{answer}" for prompt, answer in pairs]
        chosen = dict(zip(texts, pairs, strict=True))
        found = self._replay(
            "score", texts, lambda some: self._open.score([chosen[t] for t in some])
        )
        return [one if isinstance(one, Exception) else float(one) for one in found]

    def close(self) -> None:
        if self._model is not None:
            self._model.close()

    @property
    def _open(self) -> Any:
        assert self._model is not None
        return self._model

    def _asked(self, questions: list[Question], texts: list[str], some: list[str]) -> list[Any]:
        chosen = dict(zip(texts, questions, strict=True))
        answers = self._open.generate([chosen[text] for text in some])
        return [one if isinstance(one, Exception) else one.text for one in answers]

    def _replay(self, kind: str, texts: list[str], ask: Any) -> list[Any]:
        known = self._found.setdefault(kind, {})
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        errors: dict[str, Exception] = {}
        if missing and self._model is not None:
            for text, value in zip(missing, ask(missing), strict=True):
                if isinstance(value, Exception):
                    errors[text] = value
                else:
                    known[text] = value
            self._path.write_bytes(msgspec.json.format(msgspec.json.encode(self._found), indent=1))
        return [known[t] if t in known else errors.get(t, self._unknown(kind, t)) for t in texts]

    def _unknown(self, kind: str, text: str) -> SilvaError:
        return SilvaError(
            f"{str(self._path)!r} holds no answer ({kind}) to {text!r:.200}: record it with "
            "Recorded(file, model=…)"
        )


def _prompt(question: Question) -> str:
    if len(question.messages) == 1 and not question.messages[0].role:
        return question.messages[0].text
    return "\n".join(f"{message.role}: {message.text}" for message in question.messages)


def _plain(vector: Any) -> Any:
    return vector if isinstance(vector, Exception) else [float(x) for x in vector]
