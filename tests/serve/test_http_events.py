"""Server-sent events: the text as it is generated, then the row, and the same text as without."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from tests.serve.conftest import Upstream
from tests.serve.http_tools import client, connected, metric

import silva as sv
from silva.serve.models.model import Answer, Model, Question

LISTENS = {"accept": "text/event-stream"}


@dataclass
class Stage:
    """What a model says, and how far it has come."""

    pieces: list[str]
    pauses: dict[int, threading.Event] = field(default_factory=dict)
    """Before which piece it waits."""
    said: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    fails: bool = False
    """Whether it fails after its last piece."""

    def answer(self) -> Answer | Exception:
        return sv.StepError("it has ended") if self.fails else Answer("".join(self.pieces))


STAGES: dict[str, Stage] = {}


@dataclass(frozen=True)
class Speaker(Model):
    """A model that speaks piece by piece."""

    name: str
    fallback: Model | None = None

    @property
    def identity(self) -> str:
        return self.name

    def open(self) -> Any:
        return OpenSpeaker(STAGES[self.name])


class OpenSpeaker:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def stream(self, question: Question, on_text: Callable[[str], None]) -> Answer | Exception:
        try:
            for number, piece in enumerate(self.stage.pieces):
                if number in self.stage.pauses:
                    self.stage.pauses[number].wait(timeout=30)
                on_text(piece)
                self.stage.said.append(piece)
        finally:
            self.stage.stopped.set()
        return self.stage.answer()

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        return [self.stage.answer() for _ in questions]

    def embed(self, texts: list[str]) -> list[Any]:
        raise NotImplementedError

    def score(self, pairs: list[tuple[str, str]]) -> list[Any]:
        raise NotImplementedError

    def close(self) -> None: ...


@dataclass(frozen=True)
class Silent(Model):
    """A model that says all of its answer at once."""

    identity = "silent"

    def open(self) -> Any:
        return OpenSilent()


class OpenSilent:
    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        return [Answer(f"<{one.messages[-1].text}>") for one in questions]

    def close(self) -> None: ...


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def speaks(name: str, *pieces: str, **more: Any) -> Stage:
    return STAGES.setdefault(name, Stage(list(pieces), **more))


def events(reply: httpx.Response) -> Iterator[tuple[str, Any]]:
    lines = reply.iter_lines()
    for line in lines:
        if line.startswith("event: "):
            yield line[7:], json.loads(next(lines)[6:])


def test_text_comes_while_it_is_generated_and_the_row_last(name: str) -> None:
    go = threading.Event()
    speaks(name, "Par", "is", " ❤", pauses={1: go})
    pipeline = sv.requests("q").derive(a=Speaker(name).generate("{q}")).select("q", "a")
    row = {"q": "?"}
    with client(pipeline) as http:
        with http.stream("POST", "/", json=row, headers=LISTENS) as reply:
            assert reply.headers["content-type"] == "text/event-stream"
            assert reply.headers["x-request-id"]
            found = events(reply)
            first = next(found)
            assert first == ("text", {"a": "Par"})  # the model waits meanwhile
            go.set()
            *rest, last = found
        assert last == ("row", {"q": "?", "a": "Paris ❤"})
        assert {kind for kind, _ in rest} == {"text"}
        assert "".join(piece["a"] for _, piece in (first, *rest)) == "Paris ❤"
        assert http.post("/", json=row).json() == last[1]
        assert list(events(http.post("/", json=row, headers=LISTENS)))[-1] == last  # as it was kept


def test_a_client_that_hangs_up_stops_the_model(name: str) -> None:
    go = threading.Event()
    stage = speaks(name, "a", "b", "c", pauses={1: go})
    pipeline = sv.requests("q").derive(a=Speaker(name).generate("{q}"))
    with client(pipeline) as http:
        with http.stream("POST", "/", json={"q": "?"}, headers=LISTENS) as reply:
            assert next(events(reply)) == ("text", {"a": "a"})
        while not metric(http, "silva_hang_ups_total"):
            pass
        go.set()
        assert stage.stopped.wait(timeout=30)
    assert stage.said == ["a"]


def test_the_text_of_an_endpoint_is_heard_also_after_a_fault(upstream: Upstream) -> None:
    pipeline = sv.requests("q").derive(a=upstream.model().generate("{q}"))
    upstream.script = [503]
    with client(pipeline) as http:
        found = list(events(http.post("/", json={"q": "x"}, headers=LISTENS)))
    assert [call["stream"] for call in upstream.calls] == [True, True]
    assert "".join(piece["a"] for kind, piece in found if kind == "text") == "<x>"
    assert found[-1] == ("row", {"q": "x", "a": "<x>"})


def test_a_model_that_does_not_stream_gives_one_event() -> None:
    pipeline = sv.requests("q").derive(a=Silent().generate("{q}"))
    with client(pipeline) as http:
        found = list(events(http.post("/", json={"q": "x"}, headers=LISTENS)))
    assert found == [("text", {"a": "<x>"}), ("row", {"q": "x", "a": "<x>"})]


def test_only_the_last_step_is_heard(name: str, upstream: Upstream) -> None:
    speaks(name, "fir", "st")
    pipeline = (
        sv.requests("q")
        .derive(draft=Speaker(name).generate("{q}"))
        .derive(a=upstream.model().generate("{draft}"))
    )
    with client(pipeline) as http:
        found = list(events(http.post("/", json={"q": "x"}, headers=LISTENS)))
    assert found[0] == ("text", {"a": "<first>"})
    assert found[-1] == ("row", {"q": "x", "draft": "first", "a": "<first>"})


def test_a_pipeline_that_ends_otherwise_sends_its_row() -> None:
    with client(sv.requests("x").derive(y=lambda x: x + 1).filter(sv.col("y") > 1)) as http:
        found = [list(events(http.post("/", json={"x": x}, headers=LISTENS))) for x in (1, 0)]
    assert found == [[("row", {"x": 1, "y": 2})], [("row", {"filtered": "filter by y"})]]


def test_a_failure_before_the_first_text_is_an_ordinary_reply(name: str) -> None:
    speaks(name, fails=True)
    with client(sv.requests("q").derive(a=Speaker(name).generate("{q}"))) as http:
        reply = http.post("/", json={"q": "?"}, headers=LISTENS)
        assert reply.status_code == 502
        assert reply.json()["error"]["kind"] == "upstream"
        wrong = http.post("/", json={"z": 1}, headers=LISTENS)
        assert wrong.status_code == 422


def test_a_failure_after_a_text_is_an_event(name: str) -> None:
    speaks(name, "half an ans", fails=True)
    with client(sv.requests("q").derive(a=Speaker(name).generate("{q}"))) as http:
        found = list(events(http.post("/", json={"q": "?"}, headers=LISTENS)))
    assert found[0] == ("text", {"a": "half an ans"})
    assert found[-1][0] == "error"
    assert found[-1][1]["error"]["kind"] == "upstream"


def test_a_fallback_begins_the_text_anew(name: str, upstream: Upstream) -> None:
    speaks(name, "half an ans", fails=True)
    model = Speaker(name, fallback=upstream.model())
    with client(sv.requests("q").derive(a=model.generate("{q}"))) as http:
        found = list(events(http.post("/", json={"q": "?"}, headers=LISTENS)))
    kinds = [kind for kind, _ in found]
    after = found[kinds.index("restart") + 1 :]
    assert found[0] == ("text", {"a": "half an ans"})
    assert "".join(piece["a"] for kind, piece in after if kind == "text") == "<?>"
    assert found[-1] == ("row", {"q": "?", "a": "<?>"})


@pytest.mark.rest
def test_a_client_that_does_not_read_is_not_waited_for() -> None:
    """The text is longer than what the sockets of both sides hold."""
    STAGES["long"] = Stage(["x" * 1_000_000] * 32)
    asked = sv.requests("q").derive(answer=Speaker("long").generate("{q}"))
    body = b'{"q": "a"}'
    head = f"accept: text/event-stream\r\ncontent-length: {len(body)}"
    with client(asked, deadline=1.0) as http, connected(http, head, body):
        while not metric(http, "silva_hang_ups_total"):
            pass
        assert metric(http, 'silva_replies_total{status="200"}') == 0
