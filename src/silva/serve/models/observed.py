"""What a thread asks of models, noted for whoever measures it: real calls, tokens and money, and
how long an answer that is kept had taken when it was made.

Only who measures a step row by row keeps times: what a batch takes says little about one request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import msgspec

from silva.serve.models.answers import Answers

_TIME = b"seconds of a call"
"""Marks the digest under which the time of an answer is kept."""


@dataclass
class Asked:
    """What was asked of models within `observed()`."""

    keeps_times: bool
    anew: bool = False
    """Whether kept answers are asked for again, and the new ones are not kept."""
    calls: int = 0
    """Questions that a model was really asked; the others were kept or in flight."""
    tokens: int = 0
    """Tokens of all prompts and answers, kept ones too."""
    money: float = 0.0
    """What they cost by the price of their model, kept ones too."""
    kept_seconds: float = 0.0
    """Seconds that the kept answers had taken."""
    untimed: bool = False
    """Whether that is not known of some."""
    _times: list[tuple[Answers, dict[bytes, bytes], float | None]] = field(default_factory=list)

    def note_kept(self, answers: Answers, keys: Sequence[bytes]) -> None:
        """Notes how long these kept answers had taken, where they were made by one call."""
        found = answers.get(map(_time_of, keys))
        for key in keys:
            data = found.get(_time_of(key))
            seconds, questions = (0.0, 0) if data is None else _decode(data)
            self.untimed |= questions != len(keys)
            self.kept_seconds += seconds / len(keys)

    def note_called(
        self, answers: Answers, keys: Sequence[bytes], seconds: float, lifetime: float | None
    ) -> None:
        """Notes a call. `lifetime`: seconds for which its answers are kept."""
        self.calls += len(keys)
        if self.keeps_times:
            data = msgspec.msgpack.encode((seconds, len(keys)))
            self._times.append((answers, dict.fromkeys(map(_time_of, keys), data), lifetime))

    def keep_times(self) -> None:
        """Writes the times of the calls, once nothing is measured any more."""
        for answers, values, lifetime in self._times:
            answers.put(values, seconds=lifetime)
        self._times.clear()

    def note_tokens(self, counts: Iterable[tuple[int, int]], price: tuple[float, float]) -> None:
        """Notes the tokens of prompts and answers; the price is that of a million of each."""
        for prompt, answer in counts:
            self.tokens += prompt + answer
            self.money += (prompt * price[0] + answer * price[1]) / 1e6


_asked: ContextVar[Asked | None] = ContextVar("asked", default=None)


def current() -> Asked | None:
    """Where this thread notes what it asks; None if nobody wants to know."""
    return _asked.get()


@contextmanager
def observed(*, keeps_times: bool = False, anew: bool = False) -> Iterator[Asked]:
    """Notes what this thread asks of models. `keeps_times`: the times of its calls are kept beside
    the answers. `anew`: kept answers are asked for again, to be timed."""
    token = _asked.set(made := Asked(keeps_times, anew))
    try:
        yield made
    finally:
        _asked.reset(token)
        made.keep_times()


def _time_of(key: bytes) -> bytes:
    return hashlib.blake2b(_TIME + key, digest_size=32).digest()


def _decode(data: bytes) -> tuple[float, int]:
    return msgspec.msgpack.decode(data, type=tuple[float, int])
