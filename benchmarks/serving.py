"""`python -m benchmarks.serving`: requests over HTTP, beside bare starlette and FastAPI.

Each server runs in a process of its own, on the same uvicorn, uvloop and httptools, and answers the
same question: add one to a number. A client in another process writes raw HTTP over sockets, so
that it costs little. Rounds are interleaved; figures are medians. `server CPU` is what the server's
process spends on a request. FastAPI is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil

TOKEN = "benchmarks-of-silva"
SERVERS = tuple(n for n in ("starlette", "fastapi", "silva") if importlib.util.find_spec(n))
_CLIENTS = (1, 16, 200)
_LIMIT = 0.0005
"""Seconds that silva's median may lie above that of bare starlette, with one client."""


class Figures(NamedTuple):
    p50: float
    """Seconds."""
    rate: float
    """Requests per second."""
    cpu: float
    """CPU seconds of the server per request."""


def app(name: str) -> Any:
    """The ASGI app of a contestant."""
    if name == "silva":
        import silva as sv

        def add(x):
            return x + 1

        pipeline = sv.requests("x").derive(y=add)
        return pipeline.asgi(token=TOKEN)
    if name == "starlette":
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        async def echo(request: Request) -> JSONResponse:
            row = await request.json()
            return JSONResponse({"x": row["x"], "y": row["x"] + 1})

        return Starlette(routes=[Route("/", echo, methods=["POST"])])
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Asked(BaseModel):
        x: int

    class Answer(BaseModel):
        x: int
        y: int

    made = FastAPI()

    async def answer(asked: Asked) -> Answer:
        return Answer(x=asked.x, y=asked.x + 1)

    answer.__annotations__ = {"asked": Asked, "return": Answer}
    made.post("/")(answer)
    return made


def run_server(name: str) -> None:
    """Serves until standard input ends."""
    import threading

    import uvicorn

    from silva.serve.server import listening_socket

    listening = listening_socket("127.0.0.1", 0)
    settings = {"log_level": "warning", "access_log": False, "loop": "uvloop", "http": "httptools"}
    server = uvicorn.Server(uvicorn.Config(app(name), **settings))

    def end() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=end, daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    asyncio.run(server.serve([listening]))


@contextmanager
def served(name: str) -> Iterator[tuple[int, psutil.Process]]:
    command = [sys.executable, "-m", "benchmarks.serving", "--server", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        try:
            yield int(it.stdout.readline()), psutil.Process(it.pid)
        finally:
            it.kill()


async def client(port: int, clients: int, requests: int) -> tuple[list[float], float]:
    """The latency of each request, and the seconds that all took."""
    body = b'{"x": 41}'
    head = (
        f"POST / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    sent = head.encode() + body
    latencies: list[float] = []

    async def one(count: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(count):
            began = time.perf_counter()
            writer.write(sent)
            reply = await reader.readuntil(b"\r\n\r\n")
            length = int(reply.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            data = await reader.readexactly(length)
            latencies.append(time.perf_counter() - began)
            assert reply.startswith(b"HTTP/1.1 200"), reply
            assert json.loads(data)["y"] == 42, data
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(one(requests // clients) for _ in range(clients)))
    return latencies, time.perf_counter() - began


def measure(port: int, process: psutil.Process, clients: int, requests: int) -> Figures:
    asyncio.run(client(port, clients, max(requests // 10, clients)))  # warm
    before = sum(process.cpu_times()[:2])
    latencies, seconds = asyncio.run(client(port, clients, requests))
    spent = sum(process.cpu_times()[:2]) - before
    return Figures(median(latencies), len(latencies) / seconds, spent / len(latencies))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--server", choices=SERVERS, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=8000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.server:
        run_server(given.server)
        return 0
    found: dict[tuple[str, int], list[Figures]] = {}
    for _ in range(given.rounds):
        for name in SERVERS:
            with served(name) as (port, process):
                for clients in _CLIENTS:
                    figures = measure(port, process, clients, given.requests)
                    found.setdefault((name, clients), []).append(figures)
    medians = {
        key: Figures(*(median(values) for values in zip(*figures, strict=True)))
        for key, figures in found.items()
    }
    print(f"{'server':<10} {'clients':>7} {'p50 ms':>8} {'requests/s':>11} {'server CPU µs':>14}")
    for (name, clients), one in medians.items():
        p50, cpu = 1e3 * one.p50, 1e6 * one.cpu
        print(f"{name:<10} {clients:>7} {p50:>8.3f} {one.rate:>11,.0f} {cpu:>14.1f}")
    over = medians["silva", 1].p50 - medians["starlette", 1].p50
    print(f"\none client: silva's median lies {1e3 * over:.3f} ms above starlette's (≤ 0.5)")
    right = over <= _LIMIT
    for clients in _CLIENTS[1:] if "fastapi" in SERVERS else ():
        share = medians["silva", clients].cpu / medians["fastapi", clients].cpu
        print(f"{clients} clients: {share:.2f} of FastAPI's CPU per request (≤ 1)")
        right = right and share <= 1
    if given.json is not None:
        text = json.dumps({f"{n}, {c}": one._asdict() for (n, c), one in medians.items()}, indent=1)
        given.json.write_text(text + "\n")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
