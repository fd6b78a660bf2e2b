"""The models that are open in this process, each once.

A model travels to workers as a value; the process that runs a step opens it. All threads share it:
a model takes memory, and the questions of several threads make larger batches.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import numpy as np

from silva.errors import StepError
from silva.lifetime import close_at_exit
from silva.serve.models.answers import Answers, default_folder
from silva.serve.models.asking import Asking
from silva.serve.models.model import Answer, Model, OpenModel, Question

V = TypeVar("V")


class _Structs(Generic[V]):
    """Values as MessagePack of a known type."""

    def __init__(self, kind: type[V]) -> None:
        self._kind = kind

    def encode(self, value: V) -> bytes:
        return msgspec.msgpack.encode(value)

    def decode(self, data: bytes) -> V:
        return msgspec.msgpack.decode(data, type=self._kind)


class _Vectors:
    """Vectors of float32 as their bytes."""

    def encode(self, value: np.ndarray) -> bytes:
        return np.ascontiguousarray(value, dtype="<f4").tobytes()

    def decode(self, data: bytes) -> np.ndarray:
        return np.frombuffer(data, dtype="<f4")


class Running:
    """One open model, and the questions that it is being asked. It is closed when nobody has a
    model of that identity any more."""

    def __init__(self, models: Models, seconds: float | None) -> None:
        self._models = models  # which keep their file of answers open as long as this
        answers = models.answers
        self._lock = threading.Lock()
        self._opened: OpenModel | None = None
        self.vectors: Asking[str, np.ndarray] = Asking(answers, _Vectors(), seconds)
        self.texts: Asking[Question, Answer] = Asking(answers, _Structs(Answer), seconds)
        self.scores: Asking[tuple[str, str], float] = Asking(answers, _Structs(float), seconds)

    def open(self, model: Model) -> OpenModel:
        """The model, opened by whoever needs it first."""
        with self._lock:
            if self._opened is None:
                try:
                    self._opened = model.open()
                except Exception as error:
                    raise StepError(f"{model!r} cannot be opened: {error}") from error
            return self._opened

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def __del__(self) -> None:
        self.close()


class Models:
    """All open models of a process."""

    def __init__(self, folder: Path | None) -> None:
        self.answers = Answers(folder)
        self._lock = threading.Lock()
        self._running: weakref.WeakValueDictionary[str, Running] = weakref.WeakValueDictionary()

    def running(self, model: Model) -> Running:
        """The open model of that identity. Who has a model keeps it open."""
        with self._lock:
            found = self._running.get(model.identity)
            if found is None:
                found = Running(self, model.lifetime)
                self._running[model.identity] = found
        model.keep(found)
        return found

    def close(self) -> None:
        with self._lock:
            running = list(self._running.values())
            self._running.clear()
        with contextlib.ExitStack() as stack:
            stack.callback(self.answers.close)
            for one in running:
                stack.callback(one.close)

    def __del__(self) -> None:
        self.close()


_lock = threading.Lock()
_opened: weakref.WeakValueDictionary[tuple[int, Path], Models] = weakref.WeakValueDictionary()


def models() -> Models:
    """The open models of this process, with the answers in today's folder. They live as long as
    one of them is open."""
    key = os.getpid(), default_folder()
    with _lock:
        found = _opened.get(key)
        if found is None:
            found = _opened[key] = Models(key[1])
            close_at_exit(found)
        return found
