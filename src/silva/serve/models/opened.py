"""The models that are open in this process, each once.

A model travels to workers as a value; the process that runs a step opens it. All threads share it:
a model takes memory, and the questions of several threads make larger batches.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from silva.errors import StepError
from silva.lifetime import close_at_exit
from silva.serve.models.answers import Answers, default_folder
from silva.serve.models.asking import Asking, Codec
from silva.serve.models.model import Answer, Model, ModelRef, OpenModel, Question

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
    """One open model, and the questions that it is being asked."""

    def __init__(self, model: Model, answers: Answers) -> None:
        self.model = model
        self._lock = threading.Lock()
        self._opened: OpenModel | None = None
        seconds = model.lifetime
        self.vectors: Asking[str, np.ndarray] = Asking(answers, _Vectors(), seconds)
        self.texts: Asking[Question, Answer] = Asking(answers, _Structs(Answer), seconds)
        self.scores: Asking[tuple[str, str], float] = Asking(answers, _Structs(float), seconds)

    @property
    def opened(self) -> OpenModel:
        with self._lock:
            if self._opened is None:
                try:
                    self._opened = self.model.open()
                except Exception as error:
                    raise StepError(f"{self.model!r} cannot be opened: {error}") from error
            return self._opened

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


class Models:
    """All open models of a process."""

    def __init__(self, folder: Path | None) -> None:
        self.answers = Answers(folder)
        self._lock = threading.Lock()
        self._running: dict[str, Running] = {}

    def running(self, ref: ModelRef) -> Running:
        with self._lock:
            found = self._running.get(ref.identity)
            if found is None:
                found = self._running[ref.identity] = Running(ref.model, self.answers)
            return found

    def close(self) -> None:
        with self._lock:
            running, self._running = list(self._running.values()), {}
        with contextlib.ExitStack() as stack:
            stack.callback(self.answers.close)
            for one in running:
                stack.callback(one.close)


@functools.cache
def _models_of(process: int, folder: Path) -> Models:
    models = Models(folder)
    close_at_exit(models)
    return models


def models() -> Models:
    """The open models of this process, with the answers in today's folder."""
    return _models_of(os.getpid(), default_folder())
