"""Asks a model for what nobody has asked for yet.

Equal questions are one question: within a block, across threads and requests in flight, and across
runs by the answers that are kept. Each question ends in a value or in its own error, so one bad row
never costs another one its answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from silva.serve.models.answers import Answers
from silva.serve.models.observed import current

Q = TypeVar("Q")
V = TypeVar("V")


class Codec(Protocol[V]):
    """How the values of a kind of question are kept."""

    def encode(self, value: V, /) -> bytes: ...
    def decode(self, data: bytes, /) -> V: ...


class Asking(Generic[Q, V]):
    """The questions of one kind that are in flight."""

    def __init__(self, answers: Answers, codec: Codec[V], seconds: float | None) -> None:
        """`seconds`: how long an answer is kept; None for good."""
        self._answers = answers
        self._codec = codec
        self._seconds = seconds
        self._lock = threading.Lock()
        self._flying: dict[bytes, Future[V]] = {}

    def ask(
        self,
        keys: Sequence[bytes],
        questions: Sequence[Q],
        call: Callable[[list[Q]], list[V | Exception]],
        deadline: float,
    ) -> list[V | Exception]:
        """The value of each question, or its error. `call` gets the questions that are neither kept
        nor in flight, each once. Waits at most `deadline` seconds for what others have asked."""
        first = dict(zip(keys, questions, strict=True))
        asked = current()
        kept = {} if asked is not None and asked.anew else self._answers.get(first)
        done: dict[bytes, V | Exception] = {
            key: self._codec.decode(data) for key, data in kept.items()
        }
        if done and asked is not None:
            asked.note_kept(self._answers, list(done))
        mine: dict[bytes, Future[V]] = {}
        others: dict[bytes, Future[V]] = {}
        with self._lock:
            for key in first.keys() - done.keys():
                if key in self._flying:
                    others[key] = self._flying[key]
                else:
                    mine[key] = self._flying[key] = Future()
        if mine:
            done.update(self._call({key: first[key] for key in first if key in mine}, mine, call))
        for key, future in others.items():
            error = future.exception(timeout=deadline)
            if error is not None and not isinstance(error, Exception):
                raise error
            done[key] = future.result() if error is None else error
        return [done[key] for key in keys]

    def _call(
        self,
        questions: dict[bytes, Q],
        futures: dict[bytes, Future[V]],
        call: Callable[[list[Q]], list[V | Exception]],
    ) -> dict[bytes, V | Exception]:
        """Calls the model. Whatever happens, nobody waits for these questions afterwards."""
        try:
            began = time.perf_counter()
            values = call(list(questions.values()))
            seconds = time.perf_counter() - began
            found = dict(zip(questions, values, strict=True))
            good = {k: v for k, v in found.items() if not isinstance(v, Exception)}
            encoded = {key: self._codec.encode(value) for key, value in good.items()}
            asked = current()
            if asked is None or not asked.anew:
                self._answers.put(encoded, seconds=self._seconds)
            if asked is not None:
                asked.note_called(self._answers, list(questions), seconds, self._seconds)
        except BaseException as error:
            self._land(futures, dict.fromkeys(futures, error))
            raise
        self._land(futures, found)
        return found

    def _land(
        self, futures: dict[bytes, Future[V]], found: Mapping[bytes, V | BaseException]
    ) -> None:
        with self._lock:
            for key in futures:
                del self._flying[key]
        for key, future in futures.items():
            value = found[key]
            if isinstance(value, BaseException):
                future.set_exception(value)
            else:
                future.set_result(value)
