"""Models that fail, are slow, or are asked by many at once: no row pays for another one."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.serve import engine_tools
from tests.serve.conftest import Upstream

import silva as sv
from silva.serve.deadline import Limit
from silva.serve.engine.engine import Engine
from silva.serve.models.answers import Answers
from silva.serve.models.asking import Asking
from silva.serve.models.errors import Abandoned
from silva.serve.models.model import Answer, Model, Question, Settings
from silva.serve.models.opened import models
from silva.serve.models.prompt import Prompt
from silva.serve.tenant import Purse, Tenant, acting_for


def question(text: str) -> Question:
    return Question(Prompt.of("{q}", None).render({"q": text}), Settings())


def kept(pipeline: sv.Pipeline, at_most: int = 100) -> list[Any]:
    with pipeline.loader(workers=0, on_error=sv.Skip(at_most=at_most)) as loader:
        return list(loader)


def numbered(count: int) -> sv.Pipeline:
    return sv.from_columns({"q": [str(n) for n in range(count)]})


# Threads.


class _Busy:
    """A model that notes how many threads are in it."""

    def __init__(self, counts: list[int]) -> None:
        self._counts = counts
        self._lock = threading.Lock()
        self._inside = 0
        self._met = threading.Event()

    def generate(self, questions: list[Question]) -> list[Answer]:
        with self._lock:
            self._inside += 1
            self._counts.append(self._inside)
            if self._inside > 1:
                self._met.set()
        self._met.wait(0.05)  # time for a second thread to come in
        with self._lock:
            self._inside -= 1
        return [Answer(one.messages[0].text) for one in questions]

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Shared(Model):
    name: str
    counts: Any = None
    concurrency: int = 1

    @property
    def identity(self) -> str:
        return self.name

    def open(self) -> Any:
        return _Busy(self.counts)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_threads_enter_a_model_than_it_says(concurrency: int) -> None:
    counts: list[int] = []
    model = _Shared(f"busy {concurrency}", counts, concurrency)
    running = models().running(model)
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(running.texts, model, [bytes([n])], [question(str(n))]) for n in range(16)
        ]
        assert [one.result()[0].text for one in asked] == [str(n) for n in range(16)]  # type: ignore[union-attr]
    assert max(counts) <= concurrency
    assert (max(counts) > 1) == (concurrency > 1)


def test_a_question_that_lands_between_look_and_flight_is_not_asked_again(tmp_path: Path) -> None:
    class Text:
        encode = staticmethod(str.encode)
        decode = staticmethod(bytes.decode)

    calls: list[str] = []

    class Late(Answers):
        """Answers of which the first look finds nothing, while somebody else's question lands."""

        first = True

        def get(self, keys: Any) -> dict[bytes, bytes]:
            found = super().get(keys)
            if self.first:
                self.first = False
                other = threading.Thread(target=ask, args=("other",))
                other.start()
                other.join()
            return found

    asking: Asking[str, str] = Asking(Late(tmp_path), Text())

    def ask(name: str) -> list[str | Exception]:
        def call(some: list[str]) -> Iterator[dict[int, str | Exception]]:
            calls.append(name)
            yield {0: name}

        return asking.ask([b"k"], ["q"], call, seconds=None, patience=5)  # type: ignore[arg-type]

    assert ask("mine") == ["other"]
    assert calls == ["other"]


def test_the_first_value_of_a_key_is_the_value_in_every_process(tmp_path: Path) -> None:
    one, two = Answers(tmp_path), Answers(tmp_path)
    assert one.put({b"k": b"first"}, seconds=None) == {b"k": b"first"}
    assert two.put({b"k": b"second"}, seconds=None) == {b"k": b"first"}
    assert two.get([b"k"]) == one.get([b"k"]) == {b"k": b"first"}
    one.close()
    two.close()


def test_what_nobody_awaits_is_cancelled_and_asked_again_by_others(upstream: Upstream) -> None:
    upstream.script = [30.0]
    model = upstream.model(concurrency=1)
    running, limit = models().running(model), Limit(time.monotonic() + 60)

    def abandoned() -> None:
        with limit.applies(), pytest.raises(Abandoned):
            running.texts(model, [b"a"], [question("a")])

    def another() -> Any:
        return running.texts(model, [b"a"], [question("a")])

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(abandoned)
        while not upstream.calls:
            time.sleep(0.01)
        second = pool.submit(another)
        limit.give_up()
        first.result()
        (answer,) = second.result()
    assert isinstance(answer, Answer)
    assert len(upstream.calls) == 2


# Endpoints.


def test_waiting_for_a_place_does_not_use_up_a_call_s_deadline(upstream: Upstream) -> None:
    upstream.script = [0.2] * 8
    opened = upstream.model(concurrency=1, deadline=1.0).open()
    found = opened.generate([question(str(n)) for n in range(8)])
    opened.close()
    assert [one.text for one in found] == [f"<{n}>" for n in range(8)]  # type: ignore[union-attr]
    assert opened.usage.failures == 0


@pytest.mark.parametrize("status", [503, 429])
def test_a_fault_that_hits_all_calls_at_once_costs_no_answer(
    upstream: Upstream, status: int
) -> None:
    upstream.script = [status] * 16
    opened = upstream.model(concurrency=16).open()
    found = opened.generate([question(str(n)) for n in range(16)])
    opened.close()
    assert [one.text for one in found] == [f"<{n}>" for n in range(16)]  # type: ignore[union-attr]
    assert len(upstream.calls) == 32


def test_a_dead_endpoint_is_given_up_after_the_deadline_of_one_call(upstream: Upstream) -> None:
    upstream.script = [503] * 1000
    opened = upstream.model(concurrency=4, deadline=0.5).open()
    found = opened.generate([question(str(n)) for n in range(100)])
    opened.close()
    assert all(isinstance(one, Exception) for one in found)
    assert len(upstream.calls) < 30  # the others were not sent


def test_a_refused_text_fails_alone(upstream: Upstream) -> None:
    upstream.refuses = "bad"
    texts = ["bad" if n in (3, 40) else str(n) for n in range(64)]
    made = sv.from_columns({"t": texts}).derive(v=upstream.model().embed("t"))
    assert len(kept(made)) == 62


@pytest.mark.parametrize("step", ["embed", "generate", "score"])
def test_half_a_character_fails_its_row_alone(upstream: Upstream, step: str) -> None:
    model = upstream.model()
    made = {
        "embed": lambda: model.embed("q"),
        "generate": lambda: model.generate("{q}"),
        "score": lambda: _Constant().score("{q}", "yes"),
    }[step]()
    rows = sv.from_items([{"q": "\ud800"}, {"q": "b"}, {"q": "c"}]).derive(x=made)
    assert [row["q"] for row in kept(rows)] == ["b", "c"]


def test_what_an_endpoint_says_reaches_no_client_and_the_key_nobody(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import httpx

    monkeypatch.setenv("MY_KEY", "sesame-open-wide")
    upstream.echoes_key = True
    upstream.script = [401, 401]
    asked = sv.requests("q").derive(a=upstream.model(key="MY_KEY").generate("{q}"))
    with caplog.at_level(logging.DEBUG), asked.serve(port=0) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        reply = httpx.post(server.address, json={"q": "a"}, headers=headers)
    assert reply.status_code == 502
    assert "as told" not in reply.text
    with pytest.raises(sv.RowError, match=r"as told.*\*\*\*") as error:
        asked.ask(q="b")
    assert "sesame" not in f"{reply.text} {caplog.text} {error.value}"


def test_a_reply_that_cannot_be_unpacked_is_the_endpoint_s_fault() -> None:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("content-encoding", "gzip")
            self.send_header("content-length", "8")
            self.end_headers()
            self.wfile.write(b"not gzip")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    opened = sv.models.Endpoint(url, "x", deadline=0.5).open()
    (found,) = opened.generate([question("a")])
    opened.close()
    server.shutdown()
    server.server_close()
    thread.join()
    assert isinstance(found, sv.models.ModelError)


def test_models_that_differ_in_how_they_are_reached_share_answers_alone(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_A", "alpha-key")
    monkeypatch.setenv("KEY_B", "beta-key")
    one, two = upstream.model(key="KEY_A"), upstream.model(key="KEY_B")
    for model, text in ((one, "1"), (two, "2"), (two, "1")):
        list(sv.from_columns({"q": [text]}).derive(x=model.generate("{q}")))
    sent = [headers["authorization"] for headers in upstream.headers]
    assert sent == ["Bearer alpha-key", "Bearer beta-key"]


def test_another_fallback_is_another_pipeline(upstream: Upstream) -> None:
    rows, spare = numbered(1), [upstream.model(revision=name) for name in ("x", "y")]
    made = [rows.derive(x=upstream.model(fallback=one).generate("{q}")) for one in spare]
    assert made[0].fingerprint != made[1].fingerprint


def test_a_budget_is_a_hard_stop(upstream: Upstream) -> None:
    # the upstream counts 10 tokens of each prompt and 5 of each answer
    model = upstream.model(concurrency=4, price=(1e5, 1e5), budget=30.0)
    opened = model.open()
    found = opened.generate([Question(question("x" * 4).messages, Settings(5))] * 40)
    opened.close()
    answered = sum(isinstance(one, Answer) for one in found)
    assert opened.usage.money <= 30.0
    assert 14 <= answered == len(upstream.calls) <= 20
    with pytest.raises(sv.PlanError, match="price"):
        upstream.model(budget=1.0)


def test_explain_says_which_answers_are_only_recorded(upstream: Upstream) -> None:
    remote = numbered(1).derive(a=upstream.model().generate("{q}"))
    assert "not recomputable" in str(remote.explain())
    local = numbered(1).derive(a=_Constant().generate("{q}"))
    assert "not recomputable" not in str(local.explain())


def test_an_answer_is_streamed_as_it_comes(upstream: Upstream) -> None:
    opened, pieces = upstream.model().open(), list[str]()
    found = opened.stream(question("a b c"), pieces.append)
    assert isinstance(found, Answer)
    assert found.text == "".join(pieces) == "<a b c>"
    assert len(pieces) == 3
    assert found.answer_tokens == 5
    upstream.script = [b'data: {"choices": [{"delta": {"content": "half"}}]}\n\n', 401]
    assert isinstance(opened.stream(question("d"), pieces.append), sv.models.ModelError)
    assert pieces[-1] == "half"
    assert isinstance(opened.stream(question("e"), pieces.append), sv.models.ModelError)
    opened.close()


def test_a_stream_is_tried_again_until_its_first_text(upstream: Upstream) -> None:
    opened, pieces = upstream.model().open(), list[str]()
    upstream.script = [503, b"", b"data: {"]
    found = opened.stream(question("a b"), pieces.append)
    opened.close()
    assert isinstance(found, Answer)
    assert found.text == "".join(pieces) == "<a b>"
    assert len(upstream.calls) == 4


def test_a_tenant_pays_for_what_was_sent_and_not_answered(upstream: Upstream) -> None:
    asked = Question(question("x" * 4).messages, Settings(5))
    model = upstream.model(price=(1e6, 1e6))
    half = b'data: {"choices": [{"delta": {"content": "half"}}]}\n\n'
    spent = []
    for told in (200, 401, half):
        opened, tenant = model.open(), Tenant("ann", Purse(1000.0))
        upstream.script = [told]
        with acting_for(tenant):
            opened.stream(asked, lambda _: None)
        opened.close()
        spent.append(tenant.purse.spent("money"))
    at_most = 4 + 16 + 5  # bytes, what an endpoint may put around them, and tokens of the answer
    assert spent == [10 + 5, 0, at_most]


def test_a_call_that_is_given_up_before_it_begins_ends(upstream: Upstream) -> None:
    opened, limit = upstream.model().open(), Limit(time.monotonic() + 60)
    limit.give_up()
    with limit.applies(), pytest.raises(Abandoned):
        opened.generate([question("x")])
    with limit.applies():
        assert isinstance(opened.stream(question("x"), print), Abandoned)
    opened.close()


def test_a_request_that_is_given_up_cancels_its_call(upstream: Upstream) -> None:
    upstream.script = [2.5]
    pipeline = sv.requests("q").derive(a=upstream.model().generate("{q}"))

    async def give_up(engine: Engine) -> int:
        request = asyncio.create_task(engine.answer({"q": "x"}, deadline=60))
        while not upstream.calls:
            await asyncio.sleep(0)
        request.cancel()
        await engine_tools.turns()
        while engine.stations[0].running:
            await asyncio.sleep(0)
        return upstream.at_once

    with engine_tools.opened(pipeline) as engine:
        assert asyncio.run(give_up(engine)) == 1  # the endpoint has not answered yet


def test_a_dead_endpoint_costs_nothing(upstream: Upstream) -> None:
    model = upstream.model(price=(1e6, 1e6), budget=1e4, deadline=0.1)
    upstream.server.shutdown()
    upstream.server.server_close()
    opened, tenant = model.open(), Tenant("ann", Purse(1000.0))
    with acting_for(tenant):
        (found,) = opened.generate([question("x")])
    opened.close()
    assert isinstance(found, sv.models.ModelError)
    assert tenant.purse.spent("money") == 0


def test_a_local_model_that_fails_is_upstream() -> None:
    import httpx

    class Ended:
        def generate(self, questions: list[Question]) -> list[Exception]:
            return [sv.models.ModelError("m.gguf has ended")] * len(questions)

        def close(self) -> None: ...

    class Dead(_Constant):
        def open(self) -> Any:
            return Ended()

    with sv.requests("q").derive(a=Dead().generate("{q}")).serve(port=0) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        reply = httpx.post(server.address, json={"q": "a"}, headers=headers)
    assert reply.status_code == 502


# What models return.


@dataclass(frozen=True)
class _Constant(Model):
    """A model of the user's that returns what it was made with."""

    vectors: Any = ()

    @property
    def identity(self) -> str:
        return f"constant {self.vectors!r}"

    def open(self) -> Any:
        return _OpenConstant(self.vectors)


class _OpenConstant:
    def __init__(self, vectors: Any) -> None:
        self._vectors = vectors

    def embed(self, texts: list[str]) -> list[Any]:
        every = [np.array(vector, np.float32) for vector in self._vectors]
        return every[: len(texts)]

    def score(self, pairs: list[tuple[str, str]]) -> list[float]:
        return [0.5] * len(pairs)

    def close(self) -> None: ...


def test_a_vector_that_is_empty_or_of_another_width_fails_its_row() -> None:
    model = _Constant(((1, 2), (), (3, 4), (5, 6, 7)))
    assert [row["v"].tolist() for row in kept(numbered(4).derive(v=model.embed("q")))] == [
        [1.0, 2.0],
        [3.0, 4.0],
    ]


def test_as_many_answers_come_as_questions() -> None:
    with pytest.raises(sv.RowError, match="returned 0 answers"):
        list(numbered(1).derive(v=_Constant().embed("q")))


# Recordings.


def test_recording_on_threads_loses_nothing(upstream: Upstream, tmp_path: Path) -> None:
    file = str(tmp_path / "answers.json")
    model = sv.models.Recorded(file, model=upstream.model())
    made = numbered(100).derive(x=model.generate("{q}"))
    with made.loader(backend="threads", workers=4) as loader:
        assert len(list(loader)) == 100
    again = numbered(100).derive(x=sv.models.Recorded(file).generate("{q}"))
    assert len(list(again)) == 100
    assert max(Counter(upstream.prompts).values()) == 1


def _record(file: str, url: str, start: int) -> None:
    model = sv.models.Recorded(file, model=sv.models.Endpoint(url, "echo", revision="1"))
    opened = model.open()
    for n in range(start, start + 20):
        opened.generate([question(str(n))])
    opened.close()


def test_recording_in_several_processes_loses_nothing(upstream: Upstream, tmp_path: Path) -> None:
    file = str(tmp_path / "answers.json")
    context = multiprocessing.get_context("spawn")
    made = [context.Process(target=_record, args=(file, upstream.url, n)) for n in (0, 20)]
    for one in made:
        one.start()
    for one in made:
        one.join()
    opened = sv.models.Recorded(file).open()
    found = opened.generate([question(str(n)) for n in range(40)])
    assert [one.text for one in found] == [f"<{n}>" for n in range(40)]  # type: ignore[union-attr]


def test_a_recorded_answer_is_of_its_settings(upstream: Upstream, tmp_path: Path) -> None:
    file = str(tmp_path / "answers.json")
    model = sv.models.Recorded(file, model=upstream.model())
    list(numbered(1).derive(x=model.generate("{q}", max_tokens=7)))
    with pytest.raises(sv.RowError, match="max_tokens=8"):
        list(numbered(1).derive(x=sv.models.Recorded(file).generate("{q}", max_tokens=8)))


_AT_EXIT = """
import threading
from dataclasses import dataclass
import silva as sv
from silva.lifetime import Thread

class Open:
    def generate(self, questions):
        return [sv.models.Answer("x") for _ in questions]
    def close(self):
        print("closed", flush=True)

@dataclass(frozen=True)
class Model(sv.models.Model):
    identity = "at exit"
    def open(self):
        return Open()

model = Model()
def ask():
    list(sv.from_columns({"q": ["a"]}).derive(a=model.generate("{q}")))
thread = Thread(ask, "asks")
thread.start()
thread.join()
"""


def test_models_are_closed_at_exit_without_a_sound() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _AT_EXIT], capture_output=True, text=True, check=True, timeout=120
    )
    assert ended.stdout == "closed\n"
    assert ended.stderr == ""
