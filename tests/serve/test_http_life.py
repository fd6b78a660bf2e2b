"""A server from its start to its end: warm-up, readiness, draining, mounting, TLS, kills."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serve.http_tools import TOKENS, shows
from tests.service.service_tools import self_signed

import silva as sv
from silva.serve.models.model import Model

ANN = TOKENS["ann"]


@dataclass(frozen=True)
class Slow(Model):
    """A model that loads when it is told to."""

    name: str

    @property
    def identity(self) -> str:
        return self.name

    def open(self) -> Any:
        LOADING[self.name].begun.set()
        LOADING[self.name].go.wait(timeout=30)
        if LOADING[self.name].errors:
            raise LOADING[self.name].errors.pop()
        return Opened()


class Opened:
    def embed(self, texts: list[str]) -> list[Any]:
        raise NotImplementedError

    def score(self, pairs: list[tuple[str, str]]) -> list[Any]:
        raise NotImplementedError

    def generate(self, questions: list[Any]) -> list[Any]:
        return [sv.models.Answer("yes") for _ in questions]

    def close(self) -> None: ...


class Loading:
    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.errors: list[Exception] = []


LOADING: dict[str, Loading] = {}


@pytest.fixture
def loading(request: pytest.FixtureRequest) -> Loading:
    return LOADING.setdefault(request.node.name, Loading())


def status(address: str, path: str) -> int:
    return httpx.get(f"{address}{path}").status_code


def until(address: str, path: str, wanted: int) -> None:
    """Asks again until the status is the wanted one; the test's time limit ends it otherwise."""
    while status(address, path) != wanted:
        pass


def test_it_is_ready_after_warm_up_and_alive_before(
    loading: Loading, request: pytest.FixtureRequest
) -> None:
    pipeline = sv.requests("q").derive(a=Slow(request.node.name).generate("{q}"))
    with pipeline.serve(port=0) as server:
        loading.begun.wait(timeout=30)  # nobody has asked anything yet
        assert status(server.address, "/health") == 200
        assert status(server.address, "/ready") == 503
        loading.go.set()
        until(server.address, "/ready", 200)
        reply = httpx.post(server.address, json={"q": "?"}, headers=shows(server.token))
        assert reply.json() == {"q": "?", "a": "yes"}


def test_a_warm_up_that_failed_is_tried_again(
    loading: Loading, request: pytest.FixtureRequest
) -> None:
    loading.go.set()
    loading.errors.append(OSError("the disk is not mounted yet"))
    pipeline = sv.requests("q").derive(a=Slow(request.node.name).generate("{q}"))
    with pipeline.serve(port=0) as server:
        until(server.address, "/ready", 200)
        assert not loading.errors


def test_requests_in_flight_are_answered_when_the_server_closes() -> None:
    began, go = threading.Event(), threading.Event()

    def wait(x):
        began.set()
        go.wait(timeout=30)
        return x

    app = sv.requests("x").derive(y=wait).asgi(token=ANN)

    async def both() -> tuple[int, list[int]]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
            http.headers.update(shows(ANN))
            first = asyncio.create_task(http.post("/", json={"x": 1}))
            await asyncio.to_thread(began.wait, 30)
            drained = asyncio.create_task(app.drained())
            await asyncio.sleep(0)
            late = [(await http.post("/", json={"x": 2})).status_code]
            late.append((await http.get("/ready")).status_code)
            late.append((await http.get("/health")).status_code)
            assert not drained.done()
            go.set()
            await drained
            return (await first).status_code, late

    found = asyncio.run(both())
    app.close()
    assert found == (200, [503, 503, 200])


def test_a_server_that_is_closed_answers_what_is_in_flight() -> None:
    began, go = threading.Event(), threading.Event()

    def wait(x):
        began.set()
        go.wait(timeout=30)
        return x

    with ThreadPoolExecutor() as pool:
        with sv.requests("x").derive(y=wait).serve(port=0) as server:
            headers = shows(server.token)
            first = pool.submit(httpx.post, server.address, json={"x": 1}, headers=headers)
            began.wait(timeout=30)
            threading.Timer(0.1, go.set).start()
        assert first.result().status_code == 200


def test_an_app_mounted_in_another_one_lives_by_its_lifespan(
    loading: Loading, request: pytest.FixtureRequest
) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.testclient import TestClient

    loading.go.set()
    answers = sv.requests("q").derive(a=Slow(request.node.name).generate("{q}")).asgi(token=ANN)
    outer = Starlette(routes=[Mount("/ask", answers)], lifespan=answers.lifespan)
    with TestClient(outer) as http:
        assert http.get("/ask/ready").status_code == 200  # at the first time of asking
        reply = http.post("/ask/", json={"q": "?"}, headers=shows(ANN))
        assert reply.json() == {"q": "?", "a": "yes"}
        assert http.get("/ready").status_code == 404
    with TestClient(outer) as http:  # it has been closed
        assert http.post("/ask/", json={"q": "?"}, headers=shows(ANN)).status_code == 503


def test_an_app_mounted_without_a_lifespan_warms_up_when_it_is_asked(
    loading: Loading, request: pytest.FixtureRequest
) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.testclient import TestClient

    loading.go.set()
    answers = sv.requests("q").derive(a=Slow(request.node.name).generate("{q}")).asgi(token=ANN)
    with TestClient(Starlette(routes=[Mount("/ask", answers)])) as http:
        while http.get("/ask/ready").status_code != 200:
            pass
        assert loading.begun.is_set()
    answers.close()


def test_tls_is_spoken_beyond_this_machine(tmp_path: Path) -> None:
    files = self_signed(tmp_path)
    with sv.requests("x").serve(host="0.0.0.0", port=0, tls=tuple(map(str, files))) as server:
        port = server.address.rpartition(":")[2]
        trusted = ssl.create_default_context(cafile=str(files[0]))
        address = f"https://127.0.0.1:{port}"
        with httpx.Client(verify=trusted, headers=shows(server.token)) as http:
            assert http.post(address, json={"x": 1}).json() == {"x": 1}
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/health")  # whose certificate nobody knows
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/health")


def test_a_proxy_may_end_tls() -> None:
    with sv.requests("x").serve(host="0.0.0.0", port=0, behind_proxy=True) as server:
        assert server.address.startswith("http://")
        port = server.address.rpartition(":")[2]
        reply = httpx.post(f"http://127.0.0.1:{port}", json={"x": 1}, headers=shows(server.token))
        assert reply.json() == {"x": 1}


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_beyond_this_machine_it_needs_tls(host: str) -> None:
    with pytest.raises(sv.PlanError, match="TLS"):
        sv.requests("x").serve(host=host, port=0)


# The command line.

PIPELINES = """
import silva as sv
answers = sv.requests("x").derive(y=lambda x: 2 * x)
rows = sv.from_columns({"x": [1]})
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    file = tmp_path / "app.py"
    file.write_text(PIPELINES)
    return file


def command(*arguments: Any) -> list[str]:
    return [sys.executable, "-m", "silva", "serve", *map(str, arguments)]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_command_line_serves_a_pipeline_until_it_is_ended(
    app: Path, end: signal.Signals
) -> None:
    environment = {**os.environ, "SILVA_TOKEN": ANN}
    given = ("--slo", 0.2, "--deadline", 5, "--rate", 0.001)
    with subprocess.Popen(
        command(f"{app}:answers", *given), stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        found = [httpx.post(address, json={"x": 4}, headers=shows(ANN)) for _ in range(2)]
        assert found[0].json() == {"x": 4, "y": 8}
        assert found[1].status_code == 429
        process.send_signal(end)
        assert process.wait(timeout=60) in (0, 130)


def test_a_killed_server_breaks_the_connection_and_answers_nothing_twice(app: Path) -> None:
    file = app.with_name("slow.py")
    file.write_text(
        "import silva as sv, threading\n"
        "def wait(x):\n"
        "    print('began', flush=True)\n"
        "    threading.Event().wait(30)\n"
        "answers = sv.requests('x').derive(y=wait)\n"
    )
    environment = {**os.environ, "SILVA_TOKEN": ANN}
    with (
        subprocess.Popen(
            command(f"{file}:answers"), stdout=subprocess.PIPE, env=environment, text=True
        ) as process,
        ThreadPoolExecutor() as pool,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        process.stdout.readline()
        first = pool.submit(httpx.post, address, json={"x": 4}, headers=shows(ANN), timeout=30)
        assert process.stdout.readline() == "began\n"
        process.kill()
        with pytest.raises(httpx.TransportError):
            first.result()


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("answers", ["--memory", "2GiB"], "--memory"),
        ("answers", ["--runs", "3"], "--runs"),
        ("answers", ["--connections", "3"], "--connections"),
        ("answers", ["--workers", "3"], "--workers"),
        ("rows", ["--slo", "1"], "--slo"),
        ("rows", ["--deadline", "1"], "--deadline"),
        ("rows", ["--rate", "1"], "--rate"),
        ("rows", ["--behind-proxy"], "--behind-proxy"),
        ("answers", ["--certificate", "a.pem"], "--key"),
        ("answers", ["--rate", "0"], "rate"),
        ("answers", ["--host", "0.0.0.0"], "needs TLS"),
    ],
)
def test_options_that_do_not_apply_are_refused(
    app: Path, target: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from silva.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["serve", f"{app}:{target}", *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
