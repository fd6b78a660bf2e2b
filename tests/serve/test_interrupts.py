"""Steps that raise what ends a program: the request ends, and the server goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from tests.serve.http_tools import shows

import silva as sv
from silva.serve.models.model import Answer, Model

ENDS: list[type[BaseException]] = [KeyboardInterrupt, SystemExit, GeneratorExit]


@dataclass(frozen=True, eq=False)
class Own(Model):
    name: str
    ends: type[BaseException]
    where: str = "generate"

    @property
    def identity(self) -> str:
        return f"{self.name} {self.ends.__name__} {self.where}"

    def open(self) -> Any:
        if self.where == "open":
            raise self.ends
        return self

    def generate(self, *asked: Any, **settings: Any) -> Any:
        if isinstance(asked[0], str):
            return super().generate(*asked, **settings)
        if self.where == "generate" and any(one.messages[0].text == "1" for one in asked[0]):
            raise self.ends
        return [Answer("fine") for _ in asked[0]]

    def close(self) -> None: ...


def _raises_on_one(error: type[BaseException]) -> Callable[[int], int]:
    def step(x: int) -> int:
        if x == 1:
            raise error
        return x

    return step


def _until(error: type[BaseException]) -> sv.Expr:
    fails = _raises_on_one(error)
    turn = sv.requests("x").derive(x=lambda x: x)
    return sv.loop(turn, until=lambda x: fails(x) == x, at_most=1)


def _reranked(error: type[BaseException]) -> sv.Pipeline:
    fails = _raises_on_one(error)
    rows = sv.requests("x").derive(h=lambda x: [{"id": 1, "text": str(x)}], q=lambda x: str(x))
    return rows.derive(h=sv.rerank("q", "h", by=lambda q, text: float(fails(int(text)))))


STEPS: dict[str, Callable[[type[BaseException]], sv.Pipeline]] = {
    "a function": lambda e: sv.requests("x").derive(y=_raises_on_one(e)),
    "a filter": lambda e: sv.requests("x").filter(_raises_on_one(e)),
    "a loop": lambda e: sv.requests("x").derive(turns=_until(e)),
    "a rerank": _reranked,
    "a model": lambda e: sv.requests("x").derive(
        y=Own("m", e).generate("{x}", show=lambda value: str(value))
    ),
}


@pytest.mark.parametrize(
    ("error", "in_place"),
    [(KeyboardInterrupt, False), (KeyboardInterrupt, True), (SystemExit, True)],
)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_ends_a_program_ends_its_request_and_no_server(
    name: str, error: type[BaseException], in_place: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), STEPS[name](error).serve(port=0) as server:
        for station in server.app.engine.stations:
            station.quick.in_place = in_place
        replies = [
            httpx.post(server.address, json={"x": x}, headers=shows(server.token), timeout=30)
            for x in (1, 2, 1, 3)
        ]
    ends_with = {KeyboardInterrupt: 500}.get(error, 502 if name == "a model" else 422)
    assert [one.status_code for one in replies] == [ends_with, 200, ends_with, 200]
    assert error.__name__ in caplog.text
    shown = replies[0].headers["x-request-id"]
    assert sum(shown in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_a_program_gets_the_interrupt_and_may_go_on(name: str, in_place: bool) -> None:
    pipeline = STEPS[name](KeyboardInterrupt)
    pipeline.ask(x=2)
    for station in pipeline._program._engine.stations:  # type: ignore[union-attr]
        station.quick.in_place = in_place
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            pipeline.ask(x=1)
        assert pipeline.ask(x=2) is not None
    with pytest.raises(KeyboardInterrupt):
        pipeline.evaluate([{"x": 1}], lambda x: 1.0)


@pytest.mark.parametrize("error", ENDS)
def test_a_model_that_ends_a_program_when_it_is_opened_ends_no_server(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    asked = sv.requests("x").derive(y=Own("m", error, "open").generate("{x}"))
    with asked.serve(port=0) as server:
        replies = [
            httpx.post(server.address, json={"x": "a"}, headers=shows(server.token), timeout=30)
            for _ in range(2)
        ]
        assert httpx.get(f"{server.address}/health", timeout=30).status_code == 200
        assert httpx.get(f"{server.address}/ready", timeout=30).status_code == 503
    ends_with = 500 if error is KeyboardInterrupt else 502
    assert [one.status_code for one in replies] == [ends_with] * 2
    assert error.__name__ in caplog.text
