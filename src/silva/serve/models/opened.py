"""The models that are open in this process, each once.

A model travels to workers as a value; the process that runs a step opens it. All threads share it:
a model takes memory, and the questions of several threads make larger batches.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import weakref
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from silva.errors import StepError
from silva.lifetime import close_at_exit
from silva.physical.stage.raised import in_words
from silva.serve.deadline import limit
from silva.serve.models.answers import Answers, default_folder
from silva.serve.models.asking import Arriving, Asking
from silva.serve.models.calling import answers_of
from silva.serve.models.codecs import Scores, Texts, Vectors
from silva.serve.models.errors import Abandoned, ModelError
from silva.serve.models.model import Answer, Model, OpenModel, Question
from silva.serve.models.usage import Usage

V = TypeVar("V")


class Running:
    """One open model, which lets in as many threads as it says. It is closed when nobody has a
    model of that connection any more."""

    def __init__(self, models: Models, model: Model) -> None:
        self._models = models  # which keep their file of answers open as long as this
        self._lock = threading.Lock()
        self._gate = threading.Semaphore(max(model.concurrency, 1))
        self._opened: OpenModel | None = None
        self._process = os.getpid()
        self._arrived = 0
        """Answers that have arrived so far."""

    def open(self, model: Model) -> OpenModel:
        """The model, opened by whoever needs it first."""
        with self._lock:
            if self._opened is None:
                self._opened = _open(model)
            return self._opened

    @property
    def usage(self) -> Usage | None:
        """What the open model was asked so far; None if it is not open, or does not count."""
        found = getattr(self._opened, "usage", None)
        return found if isinstance(found, Usage) else None

    def vectors(
        self, model: Model, keys: Sequence[bytes], texts: Sequence[str]
    ) -> list[np.ndarray | Exception]:
        return self._ask(self._models.vectors, "embed", model, keys, texts)

    def texts(
        self, model: Model, keys: Sequence[bytes], questions: Sequence[Question]
    ) -> list[Answer | Exception]:
        return self._ask(self._models.texts, "generate", model, keys, questions)

    def scores(
        self, model: Model, keys: Sequence[bytes], pairs: Sequence[tuple[str, str]]
    ) -> list[float | Exception]:
        return self._ask(self._models.scores, "score", model, keys, pairs)

    def _ask(
        self, asking: Asking[Any, V], kind: str, model: Model, keys: Sequence[bytes], items: Any
    ) -> list[V | Exception]:
        return asking.ask(
            keys,
            items,
            lambda some: self._call(kind, model, some),
            seconds=model.lifetime,
            patience=model.patience,
        )

    def _call(self, kind: str, model: Model, items: list[Any]) -> Arriving[Any]:
        opened = self.open(model)
        self._enter(model)
        try:
            for some in answers_of(opened, kind, model, items):
                self._arrived += len(some)
                yield some
        finally:
            self._gate.release()

    def _enter(self, model: Model) -> None:
        """Waits until one more thread may call the model."""
        awaited = limit()
        while True:
            arrived = self._arrived
            left = model.patience if awaited is None else min(awaited.left(), model.patience)
            if self._gate.acquire(timeout=left):
                return
            if awaited is not None and not awaited.left():
                raise Abandoned(f"nobody awaits what {model!r} is asked")
            if arrived == self._arrived and left == model.patience:
                raise ModelError(f"{model!r} is busy, and did not answer in {model.patience:g} s")

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None and self._process == os.getpid():
            opened.close()

    def __del__(self) -> None:
        if self._opened is not None:
            self.close()


class Models:
    """All open models of a process, and the questions that they are being asked."""

    def __init__(self, folder: Path | None) -> None:
        self.answers = Answers(folder)
        self.vectors: Asking[str, np.ndarray] = Asking(self.answers, Vectors())
        self.texts: Asking[Question, Answer] = Asking(self.answers, Texts())
        self.scores: Asking[tuple[str, str], float] = Asking(self.answers, Scores())
        self._lock = threading.Lock()
        self._running: weakref.WeakValueDictionary[Hashable, Running] = (
            weakref.WeakValueDictionary()
        )
        weakref.finalize(self, _close, self._running, self.answers)  # also at exit

    def running(self, model: Model) -> Running:
        """The open model of that connection. Who has a model keeps it open."""
        key = (type(model), model.connection)
        with self._lock:
            found = self._running.get(key)
            if found is None:
                found = self._running[key] = Running(self, model)
        model.keep(found)
        return found

    def close(self) -> None:
        with self._lock:
            _close(self._running, self.answers)


def _open(model: Model) -> OpenModel:
    try:
        # a copy does not hold what runs it: no cycle keeps the model open
        opened = copy.copy(model).open()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise StepError(f"{model!r} cannot be opened: {in_words(error)}") from error
    if not callable(getattr(opened, "close", None)):
        raise StepError(
            f"{model!r} cannot be opened: open() returned {type(opened).__name__}, which has no "
            "close()"
        )
    return opened


def _close(running: weakref.WeakValueDictionary[Hashable, Running], answers: Answers) -> None:
    with contextlib.ExitStack() as stack:
        stack.callback(answers.close)
        for one in list(running.values()):
            stack.callback(one.close)
        running.clear()


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
