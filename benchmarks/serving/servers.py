"""The servers that are compared, each a process: `python -m benchmarks.serving.servers NAME`.

`echo` adds one to a number. `accelerator` does so with a step that takes a fixed time for each call
and little for each row, as models on a GPU do.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.environments import make, python_of
from benchmarks.serving.client import TOKEN

_RAY = "ray_serve"
_CALL, _ROW = 0.040, 0.0004
"""Seconds of a call of the accelerator, and of each row in it: what a small reranker takes."""
_END = 60.0
"""Seconds in which a server must have ended."""


def app(name: str, *options: str) -> Any:
    """The ASGI app of a contestant."""
    return {"starlette": _starlette, "fastapi": _fastapi, "silva": _silva}[name](*options)


def _silva(step: str = "echo", slo: str = "", most_rows: str = "") -> Any:
    import silva as sv

    def add(x):
        return x + 1

    def call(x):
        time.sleep(_CALL + _ROW * len(x))
        return [one + 1 for one in x]

    made = add if step == "echo" else sv.batched(call)
    return (
        sv.requests("x")
        .derive(y=made)
        .asgi(
            token=TOKEN,
            slo=float(slo) if slo else None,
            most_rows=int(most_rows) if most_rows else None,
        )
    )


def _starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def echo(request: Request) -> JSONResponse:
        row = await request.json()
        return JSONResponse({"x": row["x"], "y": row["x"] + 1})

    return Starlette(routes=[Route("/", echo, methods=["POST"])])


def _fastapi() -> Any:
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


def main() -> None:
    """Serves until standard input ends."""
    import uvicorn

    from silva.serve.http.server import listening_socket

    listening = listening_socket("127.0.0.1", 0)
    settings: dict[str, Any] = {"loop": "uvloop", "http": "httptools"}
    settings |= {"log_level": "warning", "access_log": False}
    server = uvicorn.Server(uvicorn.Config(app(*sys.argv[1:]), **settings))

    def end() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=end, daemon=True).start()
    print(f"port {listening.getsockname()[1]}", flush=True)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve([listening]))


class Process:
    """A running server."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        found = next((line for line in process.stdout if line.startswith("port ")), None)
        if found is None:
            raise RuntimeError(f"the server {name} has not started")
        self.port = int(found.split()[1])
        own = psutil.Process(process.pid)
        self._processes = [own] if name != _RAY else list(_that_answer(own))

    def cpu(self) -> float:
        """CPU seconds so far."""
        return sum(sum(process.cpu_times()[:2]) for process in self._processes)


def _that_answer(driver: psutil.Process) -> Iterator[psutil.Process]:
    """The processes of Ray that a request goes through: the proxy and the replica."""
    for process in driver.children(recursive=True):
        shown = " ".join(process.cmdline())
        if "ProxyActor" in shown or "ServeReplica" in shown:
            yield process


@contextmanager
def served(name: str, *options: object) -> Iterator[Process]:
    """A server, until the block ends."""
    if name == _RAY:
        make(_RAY)
        command = [python_of(_RAY), str(Path(__file__).with_name("ray_serve.py"))]
    else:
        command = [sys.executable, "-m", "benchmarks.serving.servers", name, *map(str, options)]
    with (
        tempfile.TemporaryDirectory(prefix="silva-bench-") as home,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": home},  # where Ray leaves the token of its cluster
        ) as it,
    ):
        try:
            yield Process(name, it)
        finally:
            assert it.stdin is not None
            it.stdin.close()
            try:
                it.wait(_END)
            finally:
                it.kill()


if __name__ == "__main__":
    main()
