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
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from silva.errors import ColumnError, StepError
from silva.lifetime import close_at_exit
from silva.serve.deadline import limit
from silva.serve.models.answers import Answers, damaged, default_folder
from silva.serve.models.asking import Arriving, Asking
from silva.serve.models.errors import Abandoned, ModelError
from silva.serve.models.model import Answer, Model, OpenModel, Question
from silva.serve.models.usage import Usage
from silva.serve.tenant import listener

V = TypeVar("V")


class _Structs(Generic[V]):
    """Values as MessagePack of a known type."""

    def __init__(self, kind: type[V]) -> None:
        self._kind = kind

    def encode(self, value: V) -> bytes:
        return msgspec.msgpack.encode(msgspec.convert(value, self._kind))

    def decode(self, data: bytes) -> V:
        try:
            return msgspec.msgpack.decode(data, type=self._kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise damaged(str(error)) from error


class _Vectors:
    """Vectors of float32 as their bytes."""

    def encode(self, value: np.ndarray) -> bytes:
        vector = np.ascontiguousarray(value, dtype="<f4")
        if vector.ndim != 1 or not len(vector):
            raise ColumnError(f"the model returned no vector, but {vector.shape} numbers")
        return vector.tobytes()

    def decode(self, data: bytes) -> np.ndarray:
        if not data or len(data) % 4:
            raise damaged(f"{len(data)} bytes are no vector")
        return np.frombuffer(data, dtype="<f4")


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
                try:
                    # a copy does not hold what runs it: no cycle keeps the model open
                    self._opened = copy.copy(model).open()
                except Exception as error:
                    raise StepError(f"{model!r} cannot be opened: {error}") from error
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
            on_text, stream = listener(), getattr(opened, "stream", None)
            if on_text is not None and stream is not None and (kind, len(items)) == ("generate", 1):
                yield {0: stream(items[0], on_text)}
                self._arrived += 1
                return
            arriving = getattr(opened, "arriving", None)
            if arriving is None:
                found = getattr(opened, kind)(items)
                if len(found) != len(items):
                    raise ModelError(
                        f"{model!r} returned {len(found)} answers to {len(items)} questions"
                    )
                arriving = lambda *_: iter([dict(enumerate(found))])  # noqa: E731
            for some in arriving(kind, items):
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
        self.vectors: Asking[str, np.ndarray] = Asking(self.answers, _Vectors())
        self.texts: Asking[Question, Answer] = Asking(self.answers, _Structs(Answer))
        self.scores: Asking[tuple[str, str], float] = Asking(self.answers, _Structs(float))
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
