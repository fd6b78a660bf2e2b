"""Requests over HTTP: every one ends in exactly one reply, of the right kind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serve.conftest import Upstream

import silva as sv


@contextmanager
def client(pipeline: sv.Pipeline, **arguments: Any) -> Iterator[httpx.Client]:
    with pipeline.serve(port=0, **arguments) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        with httpx.Client(base_url=server.address, headers=headers, timeout=30) as found:
            yield found


def test_each_end_of_a_request_has_its_status(upstream: Upstream) -> None:
    def half(x):
        return 10 / x

    pipeline = sv.requests("x").derive(y=half).filter(sv.col("y") > 0)
    with client(pipeline, request_bytes=100) as http:
        assert http.post("/", json={"x": 4}).json() == {"x": 4, "y": 2.5}
        dropped = http.post("/", json={"x": -4})
        assert (dropped.status_code, list(dropped.json())) == (200, ["filtered"])
        failed = http.post("/", json={"x": 0})
        assert failed.status_code == 422
        assert failed.json()["request"] == failed.headers["x-request-id"]
        assert ".py" not in failed.text  # where the code lies is the server's own affair
        for body in ({"z": 1}, {"x": 1, "z": 1}, [1], "x"):
            assert http.post("/", json=body).status_code == 422
        assert http.post("/", content=b"{").status_code == 422
        assert http.post("/", content=b"[" * 5000).status_code in (413, 422)
        assert http.post("/", json={"x": "a" * 200}).status_code == 413
        assert http.get("/").status_code == 405
        assert http.post("/other", json={"x": 1}).status_code == 404
        wrong = {"authorization": "Bearer no"}
        assert http.post("/", json={"x": 1}, headers=wrong).status_code == 401
        assert 'silva_replies_total{status="401"} 1' in http.get("/metrics").text
        assert httpx.get(http.base_url.join("/metrics")).status_code == 401
        assert httpx.get(http.base_url.join("/health")).json() == {}


def test_an_upstream_that_fails_is_a_502_and_a_late_one_a_504(upstream: Upstream) -> None:
    pipeline = sv.requests("q").derive(a=upstream.model(concurrency=2).generate("{q}"))
    with client(pipeline, deadline=1.0) as http:
        upstream.script = [400]
        assert http.post("/", json={"q": "a"}).status_code == 502
        upstream.script = [2.5]
        assert http.post("/", json={"q": "b"}).status_code == 504
        assert http.post("/", json={"q": "c"}).json() == {"q": "c", "a": "<c>"}


def test_too_many_requests_are_told_so() -> None:
    start, go = threading.Event(), threading.Event()

    def wait(x):
        start.set()
        go.wait(timeout=30)
        return x

    with client(sv.requests("x").derive(y=wait), most=1) as http:
        first: list[int] = []

        def post() -> None:
            first.append(http.post("/", json={"x": 1}).status_code)

        thread = threading.Thread(target=post)
        thread.start()
        start.wait(timeout=30)
        assert http.post("/", json={"x": 2}).status_code == 429
        go.set()
        thread.join()
        assert first == [200]


def test_a_repeated_key_gets_the_stored_reply() -> None:
    calls: list[int] = []

    def count(x):
        calls.append(x)
        return len(calls)

    with client(sv.requests("x").derive(n=sv.impure(count))) as http:
        key = {"idempotency-key": "k1"}
        first = http.post("/", json={"x": 1}, headers=key)
        again = http.post("/", json={"x": 1}, headers=key)
        assert first.content == again.content
        assert http.post("/", json={"x": 1}).json() == {"x": 1, "n": 2}
    assert calls == [1, 1]


def test_requests_in_flight_are_answered_when_the_server_closes() -> None:
    start = threading.Event()

    def wait(x):
        start.set()
        threading.Event().wait(0.3)
        return x

    pipeline = sv.requests("x").derive(y=wait)
    found: list[int] = []
    with pipeline.serve(port=0) as server:
        headers = {"authorization": f"Bearer {server.token}"}

        def post() -> None:
            found.append(httpx.post(server.address, json={"x": 1}, headers=headers).status_code)

        thread = threading.Thread(target=post)
        thread.start()
        start.wait(timeout=30)
    thread.join()
    assert found == [200]


def test_substitutes_are_named() -> None:
    def half(x):
        return 10 / x

    with client(sv.requests("x").derive(y=half), on_error=sv.Substitute(-1.0)) as http:
        reply = http.post("/", json={"x": 0}).json()
    assert reply["y"] == -1.0
    assert reply["substituted"] == ["y = half(x)"]


def test_the_command_line_serves_a_pipeline_until_it_is_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text('import silva as sv\nanswers = sv.requests("x").derive(y=lambda x: 2 * x)\n')
    command = [sys.executable, "-m", "silva", "serve", f"{file}:answers"]
    environment = {**os.environ, "SILVA_TOKEN": "sixteen-characters"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        headers = {"authorization": "Bearer sixteen-characters"}
        assert httpx.post(address, json={"x": 4}, headers=headers).json() == {"x": 4, "y": 8}
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) in (0, 130)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_beyond_this_machine_it_needs_tls(host: str) -> None:
    with pytest.raises(sv.PlanError, match="TLS"):
        sv.requests("x").serve(host=host, port=0)


def test_run_and_serve_give_the_same_bytes(upstream: Upstream) -> None:
    import msgspec

    rows = [{"q": f"question {n % 20}"} for n in range(60)]
    pipeline = (
        sv.requests("q")
        .derive(v=upstream.model().embed("q"))
        .derive(a=upstream.model().generate("Say {q}"), n=lambda v: float(v.sum()))
    )
    with client(pipeline) as http:
        online = [http.post("/", json=row).content for row in rows]
    offline = [msgspec.json.encode({**row, "v": row["v"].tolist()}) for row in pipeline.run(rows)]
    assert online == offline
