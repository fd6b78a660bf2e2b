"""Answers from a file, for tests: no model, no network, the same answers every time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import threading
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from silva.errors import SilvaError
from silva.plan.arguments import explains_verbs, path_of
from silva.serve.models.calling import answers_of
from silva.serve.models.model import Answer, Model, Question, model_or_none

Recording = dict[str, dict[str, Any]]

_ALIKE = 20
"""Characters that two texts begin with alike before an error compares them."""
_SHOWN = 40
"""Characters that it shows of each from there on."""


@explains_verbs
@dataclass(frozen=True)
class Recorded(Model):
    """Replays what another model has answered: `Recorded("answers.json")`.

    A question that is not in the file is an error, which names it. With `model=`, it is asked and
    written into the file: run a test once with it, and commit the file. The file is JSON:
    `{"generate": {"the prompt": "the answer"}, "embed": {"the text": [0.1, …]}}`; several messages
    of a prompt are joined as lines `role: text`. An answer that you write is one for all settings;
    one that was recorded is an object, from the settings to the text.
    """

    lifetime: ClassVar[float] = 0.0  # what it answers is in its file
    file: str
    model: Model | None = None

    def __post_init__(self) -> None:
        path_of("Recorded(file)", self.file)
        model_or_none("Recorded(model=…)", self.model)

    def __repr__(self) -> str:
        return f"recorded in {self.file}"

    @property
    def identity(self) -> str:
        if self.model is not None:
            return f"recording\0{os.path.abspath(self.file)}\0{self.model.identity}"
        path = Path(self.file)
        content = path.read_bytes() if path.exists() else b""
        return f"recorded\0{hashlib.sha256(content).hexdigest()}"

    @property
    def connection(self) -> Hashable:
        return (self.identity, os.path.abspath(self.file))

    def open(self) -> OpenRecorded:
        return OpenRecorded(self)


class OpenRecorded:
    """A file of answers."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._path = Path(recorded.file)
        self._lock = threading.Lock()
        self._model = None if recorded.model is None else recorded.model.open()
        self._found = _read(self._path)

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        texts = [_prompt(question) for question in questions]
        settings = [_settings(question) for question in questions]
        known = self._found.get("generate", {})
        found = [_of_settings(known.get(t), s) for t, s in zip(texts, settings, strict=True)]
        made = self._missing("generate", found, questions)
        new: Recording = {"generate": {}}
        for i, answer in made.items():
            if isinstance(answer, Answer):
                new["generate"].setdefault(texts[i], {})[settings[i]] = answer.text
        self._write(new)
        return [
            Answer(one)
            if one is not None
            else made[i]
            if i in made
            else self._unknown("generate", texts[i], settings[i])
            for i, one in enumerate(found)
        ]

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        found = self._replay("embed", texts, texts)
        return [one if isinstance(one, Exception) else np.array(one, np.float32) for one in found]

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        texts = [f"{prompt}\n{answer}" for prompt, answer in pairs]
        found = self._replay("score", texts, pairs)
        return [one if isinstance(one, Exception) else float(one) for one in found]

    def close(self) -> None:
        if self._model is not None:
            self._model.close()

    def _replay(self, kind: str, texts: list[str], items: list[Any]) -> list[Any]:
        known = self._found.get(kind, {})
        found = [known.get(text) for text in texts]
        made = self._missing(kind, found, items)
        good = {i: value for i, value in made.items() if not isinstance(value, Exception)}
        self._write({kind: {texts[i]: np.asarray(v, float).tolist() for i, v in good.items()}})
        return [
            one if one is not None else made[i] if i in made else self._unknown(kind, texts[i])
            for i, one in enumerate(found)
        ]

    def _missing(self, kind: str, found: list[Any], items: list[Any]) -> dict[int, Any]:
        """What the model says where nothing was found, by place."""
        places = [i for i, one in enumerate(found) if one is None]
        if self._model is None or self._recorded.model is None or not places:
            return {}
        asked, made = self._recorded.model, dict[int, Any]()
        for some in answers_of(self._model, kind, asked, [items[i] for i in places]):
            made |= {places[i]: value for i, value in some.items()}
        return made

    def _write(self, new: Recording) -> None:
        """Adds answers to the file, whoever else adds some. A reader sees all of it or nothing."""
        if not any(new.values()):
            return
        with self._lock, _alone(self._path.parent):
            found = _read(self._path)
            for kind, answers in new.items():
                known = found.setdefault(kind, {})
                for text, value in answers.items():
                    before = known.get(text)
                    both = isinstance(value, dict) and isinstance(before, dict)
                    known[text] = {**(before or {}), **value} if both else value
            data = msgspec.json.format(msgspec.json.encode(found), indent=1)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}")
            try:
                with open(handle, "wb") as file:
                    file.write(data)
                os.replace(name, self._path)
            except BaseException:
                os.unlink(name)
                raise
            self._found = found

    def _unknown(self, kind: str, text: str, settings: str = "") -> SilvaError:
        asked = f"{text} ({settings})" if settings else text
        return SilvaError(
            f"{str(self._path)!r} holds no answer ({kind}) to {asked!r:.200}: record it with "
            f"Recorded(file, model=…){_why_not(text, self._found.get(kind, {}))}"
        )


def _why_not(text: str, known: Mapping[str, Any]) -> str:
    """How a text differs from the recorded one that begins most like it, if any does."""
    if isinstance(there := known.get(text), dict):
        return f". It was recorded with other settings: {'; '.join(there)}"
    most = max(known, key=lambda one: _same_beginning(one, text), default="")
    place = _same_beginning(most, text)
    if place < _ALIKE:
        return ""
    shown = [repr(one[place : place + _SHOWN]) for one in (most, text)]
    return f". One that was recorded differs from character {place} on: {shown[0]}, not {shown[1]}"


def _same_beginning(one: str, other: str) -> int:
    """The number of characters that two texts begin with alike."""
    differ = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


def _read(path: Path) -> Recording:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Recording)
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise SilvaError(f"{str(path)!r} is no recording: {error}") from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keeps other processes from writing in a folder that they also lock."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _prompt(question: Question) -> str:
    if len(question.messages) == 1 and not question.messages[0].role:
        return question.messages[0].text
    return "\n".join(f"{message.role}: {message.text}" for message in question.messages)


def _settings(question: Question) -> str:
    """The settings of a question as text, in which two settings differ."""
    one = question.settings
    shown = [f"max_tokens={one.max_tokens}", f"temperature={one.temperature:g}"]
    if one.top_p != 1:
        shown.append(f"top_p={one.top_p:g}")
    if one.stop:
        shown.append(f"stop={list(one.stop)!r}")
    if question.seed is not None:
        shown.append(f"seed={question.seed}")
    return ", ".join(shown)


def _of_settings(known: Any, settings: str) -> str | None:
    """The text for these settings; what is no object is for all of them."""
    found = known.get(settings) if isinstance(known, dict) else known
    return None if found is None else str(found)
