"""Asks a model for what nobody has asked for yet.

Equal questions are one question: within a block, across threads and requests in flight, and across
runs by the answers that are kept. Each question ends in a value or in its own error, so one bad row
never costs another one its answer. An answer is kept, and given to all who wait for it, as soon as
it arrives.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from silva.serve.deadline import limit
from silva.serve.models.answers import Answers
from silva.serve.models.errors import Abandoned, ModelError
from silva.serve.models.observed import current

Q = TypeVar("Q")
V = TypeVar("V")
Arriving = Generator[Mapping[int, V | Exception], None, None]
"""Answers as they arrive: the value, or the error, of questions by their place in a list."""


class Codec(Protocol[V]):
    """How the values of a kind of question are kept."""

    def encode(self, value: V, /) -> bytes: ...
    def decode(self, data: bytes, /) -> V: ...


class Asking(Generic[Q, V]):
    """The questions of one kind that are in flight."""

    def __init__(self, answers: Answers, codec: Codec[V]) -> None:
        self._answers = answers
        self._codec = codec
        self._lock = threading.Lock()
        self._flying: dict[bytes, Future[V]] = {}
        self._landed = 0
        """Answers that have arrived so far."""

    def ask(
        self,
        keys: Sequence[bytes],
        questions: Sequence[Q],
        call: Callable[[list[Q]], Arriving[V]],
        *,
        seconds: float | None,
        patience: float,
    ) -> list[V | Exception]:
        """The value of each question, or its error.

        `call` gets the questions that are neither kept nor in flight, each once. `seconds`: how
        long their answers are kept; None for good, 0 not at all. What others have asked is waited
        for as long as some answer arrives within `patience` seconds.
        """
        first = dict(zip(keys, questions, strict=True))
        done: dict[bytes, V | Exception] = {}
        observer = current()
        stores = seconds != 0 and (observer is None or not observer.anew)
        if stores:
            self._look_up(first, done, self._answers.get)
        if done and observer is not None:
            observer.note_kept(self._answers, list(done))
        while len(done) < len(first):
            missing = {key: one for key, one in first.items() if key not in done}
            mine, others = self._enter(missing.keys() - done.keys())
            if mine and stores:
                # what has landed between the look and the entry is in memory
                self._look_up(list(mine), done, self._answers.recent)
                self._land(mine, {key: done[key] for key in mine if key in done})
            if mine:
                asked = {key: one for key, one in missing.items() if key in mine}
                self._call(asked, mine, done, call, seconds, stores=stores)
            for key, future in others.items():
                error = self._wait(future, patience)
                if isinstance(error, Abandoned):
                    continue  # the next turn asks for it
                if error is not None and not isinstance(error, Exception):
                    raise error
                done[key] = future.result() if error is None else error
        return [done[key] for key in keys]

    def _look_up(
        self,
        keys: Iterable[bytes],
        done: dict[bytes, V | Exception],
        get: Callable[[Iterable[bytes]], dict[bytes, bytes]],
    ) -> None:
        for key, data in get(keys).items():
            done[key] = self._codec.decode(data)

    def _enter(
        self, keys: Iterable[bytes]
    ) -> tuple[dict[bytes, Future[V]], dict[bytes, Future[V]]]:
        """The flights of these keys: those that begin here, and those that others have begun."""
        mine: dict[bytes, Future[V]] = {}
        others: dict[bytes, Future[V]] = {}
        with self._lock:
            for key in keys:
                if key in self._flying:
                    others[key] = self._flying[key]
                else:
                    mine[key] = self._flying[key] = Future()
        return mine, others

    def _call(
        self,
        questions: dict[bytes, Q],
        flights: dict[bytes, Future[V]],
        done: dict[bytes, V | Exception],
        call: Callable[[list[Q]], Arriving[V]],
        seconds: float | None,
        *,
        stores: bool,
    ) -> None:
        """Calls the model, which answers every question. Whatever happens, nobody waits for these
        questions afterwards."""
        keys, began, observer = list(questions), time.perf_counter(), current()
        try:
            with contextlib.closing(call(list(questions.values()))) as arriving:
                for arrived in arriving:
                    found = {keys[place]: value for place, value in arrived.items()}
                    kept = self._keep(found, seconds, stores=stores)
                    done.update(kept)
                    self._land(flights, kept)
            if observer is not None:
                taken = time.perf_counter() - began
                observer.note_called(self._answers, keys, taken, seconds)
        except BaseException as error:
            self._land(flights, dict.fromkeys(flights, error))
            raise

    def _keep(
        self, found: Mapping[bytes, V | Exception], seconds: float | None, *, stores: bool
    ) -> dict[bytes, V | Exception]:
        """What was found, with the values that are kept under these keys: the first one that any
        process has computed."""
        made = dict(found)
        encoded: dict[bytes, bytes] = {}
        for key, value in found.items():
            if not isinstance(value, Exception):
                encoded[key] = self._codec.encode(value)
        if stores:
            for key, data in self._answers.put(encoded, seconds=seconds).items():
                if data != encoded[key]:
                    made[key] = self._codec.decode(data)
        return made

    def _wait(self, future: Future[V], patience: float) -> BaseException | None:
        """The error of a flight that somebody else has begun."""
        awaited, woken = limit(), threading.Event()
        future.add_done_callback(lambda _: woken.set())
        if awaited is not None:
            awaited.when_given_up(woken.set)
        while not future.done():
            landed = self._landed
            woke = woken.wait(patience)
            if awaited is not None and awaited.is_given_up:
                raise Abandoned("nobody awaits the answer")
            if not woke and landed == self._landed:
                return ModelError(
                    f"another thread has asked the same, and got no answer in {patience:g} s"
                )
        return future.exception()

    def _land(
        self, flights: dict[bytes, Future[V]], found: Mapping[bytes, V | BaseException]
    ) -> None:
        """Ends the flights of what was found."""
        with self._lock:
            landed = {key: flights.pop(key) for key in found}
            for key in landed:
                del self._flying[key]
            self._landed += len(landed)
        for key, future in landed.items():
            value = found[key]
            if isinstance(value, BaseException):
                future.set_exception(value)
            else:
                future.set_result(value)
