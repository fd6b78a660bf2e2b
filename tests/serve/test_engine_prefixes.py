"""Requests that wait for a local model are asked in the order of the beginnings that they share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from tests.serve.engine_tools import opened, turns

import silva as sv
from silva.serve.engine.curve import Curve
from silva.serve.engine.engine import Engine
from silva.serve.models.model import Answer, Model, Question
from silva.serve.tenant import Tenant

PROMPT = "Answer.\n{text}\nQ: {question}"


@dataclass
class Reads:
    """What a model has read, which holds the parts of the prompt before; it answers at a gate."""

    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    asked: list[str] = field(default_factory=list)
    parts: int = 0
    """Parts of prompts that were read, and not held."""
    held: tuple[str, ...] = ()

    def generate(self, questions: list[Question]) -> Sequence[Answer]:
        return [self.answer(question) for question in questions]

    def answer(self, question: Question) -> Answer:
        assert self.gate.acquire(timeout=60)
        parts = question.messages[0].parts
        self.parts += len(parts)
        for one, other in zip(parts, self.held, strict=False):
            if one != other:
                break
            self.parts -= 1
        self.held = parts
        self.asked.append("".join(parts[1::2]))
        return Answer(f"<{parts[-1]}>")

    def close(self) -> None: ...

    embed = score = None


@dataclass(frozen=True)
class Local(Model):
    """A model that holds one prompt, as a local one does."""

    lifetime: ClassVar[float | None] = 0
    reads: Reads = field(default_factory=Reads, compare=False)

    @property
    def identity(self) -> str:
        return f"local {id(self.reads)}"

    @property
    def prompts_at_once(self) -> int | None:
        return 1

    def open(self) -> Any:
        return self.reads


async def asked(
    engine: Engine, model: Local, rows: list[tuple[str, str]], tenants: Sequence[Tenant] = ()
) -> list[str]:
    """The answers to rows of which all but the first wait while that is read."""
    (station,) = engine.stations
    made = []
    for n, (text, question) in enumerate(rows):
        row, more = {"text": text, "question": question}, {}
        if tenants:
            more = {"tenant": tenants[n]}
        made.append(asyncio.ensure_future(engine.answer(row, deadline=60, **more)))
        await turns()
    assert len(station.waiting) == len(rows) - 1
    model.reads.gate.release(len(rows))
    return [found.rows[0]["answer"] for found in await asyncio.gather(*made)]


@pytest.fixture
def model() -> Iterator[Local]:
    found = Local()
    yield found
    found.reads.gate.release(1000)


def pipeline(model: Local, **more: Any) -> sv.Pipeline:
    return sv.requests("text", "question").derive(answer=model.generate(PROMPT, **more))


ROWS = [(text, question) for question in "1234" for text in "abc"]


def test_passages_are_read_once_and_answers_stay_with_their_requests(model: Local) -> None:
    with opened(pipeline(model)) as engine:
        found = asyncio.run(asked(engine, model, ROWS))
    assert found == [f"<{question}>" for _, question in ROWS]
    assert model.reads.asked == [f"{text}{question}" for text in "abc" for question in "1234"]
    assert model.reads.parts == 4 + 2 * 3 + 3 * 3  # as they came: 4 + 11 * 3


class Known(Curve):
    """A row takes a second, whatever the test's model takes."""

    def seconds(self, rows: float) -> float:
        return float(rows)


@pytest.mark.parametrize(
    ("slo", "order"),
    [
        (0.5, "a1 a2 a3 a4 b1 b2 b3 b4 c1 c2 c3 c4"),
        (1.9, "a1 b1 c1 a2 b2 c2 a3 b3 c3 a4 b4 c4"),
        (3.9, "a1 a2 b1 b2 c1 c2 c3 a3 a4 b3 b4 c4"),
        (99.0, "a1 a2 a3 a4 b1 b2 b3 b4 c1 c2 c3 c4"),
    ],
)
def test_only_those_are_overtaken_that_stay_in_time(model: Local, slo: float, order: str) -> None:
    """Within 3.9 s, two may be overtaken: they then end after two and three seconds. Within 0.5 s
    nobody is in time, in whatever order."""
    with opened(pipeline(model), slo=slo, clock=lambda: 0.0) as engine:
        (station,) = engine.stations
        station.curve = Known()
        asyncio.run(asked(engine, model, ROWS))
    assert " ".join(model.reads.asked) == order


def test_without_an_objective_nobody_is_overtaken_beyond_half_of_its_deadline(model: Local) -> None:
    now = [0.0]
    with opened(pipeline(model), clock=lambda: now[0]) as engine:
        (station,) = engine.stations
        station.curve = Known()

        async def every() -> None:
            made = []
            for text, question in ("a1", "b1", "a2"):
                row = {"text": text, "question": question}
                made.append(asyncio.ensure_future(engine.answer(row, deadline=60)))
                await turns()
            now[0] = 29.0
            model.reads.gate.release(3)
            await asyncio.gather(*made)

        asyncio.run(every())
    assert model.reads.asked == ["a1", "b1", "a2"]


def test_tenants_do_not_follow_each_other(model: Local) -> None:
    ann, bob = Tenant("ann"), Tenant("bob")
    rows = [("a", "1"), ("b", "2"), ("a", "3")]
    with opened(pipeline(model)) as engine:
        asyncio.run(asked(engine, model, rows, [ann, bob, bob]))
    assert model.reads.asked == ["a1", "b2", "a3"]


def test_values_that_a_function_shows_are_compared_as_they_are(model: Local) -> None:
    loops: list[bool] = []

    def show(value: Any) -> str:
        loops.append(threading.current_thread() is threading.main_thread())
        return str(value)

    with opened(pipeline(model, show=show)) as engine:
        asyncio.run(asked(engine, model, [([text], question) for text, question in ROWS]))
    assert model.reads.parts == 4 + 2 * 3 + 3 * 3
    assert not any(loops)


def test_a_request_that_is_given_up_is_skipped(model: Local) -> None:
    async def every(engine: Engine) -> None:
        made = []
        for text, question in ROWS[:6]:
            row = {"text": text, "question": question}
            made.append(asyncio.ensure_future(engine.answer(row, deadline=60)))
            await turns()
        made[3].cancel()
        await turns()
        model.reads.gate.release(6)
        await asyncio.gather(*made, return_exceptions=True)

    with opened(pipeline(model)) as engine:
        asyncio.run(every(engine))
        assert engine.stations[0].overtakes == 1
    assert model.reads.asked == ["a1", "b1", "b2", "c1", "c2"]
