"""An endpoint that speaks OpenAI's protocol, as a real server that can be told to misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from silva.serve.models.endpoint.endpoint import Endpoint


class Upstream:
    """What the server was asked, and how it shall answer the next calls."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.script: list[Any] = []
        """For each of the next calls: a status, bytes to send as they are, or seconds to wait."""
        self.refuses: str | None = None
        """A text that embeddings are refused for."""
        self.echoes_key = False
        self.at_once = 0
        self.most_at_once = 0
        """Calls that were under way at the same time."""
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    @property
    def prompts(self) -> list[str]:
        return [call["messages"][-1]["content"] for call in self.calls]

    def model(self, **arguments: Any) -> Endpoint:
        return Endpoint(self.url, "echo", **{"revision": "1", **arguments})

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def _handler(upstream: Upstream) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            with upstream.lock:
                upstream.at_once += 1
                upstream.most_at_once = max(upstream.most_at_once, upstream.at_once)
            try:
                self.respond()
            finally:
                with upstream.lock:
                    upstream.at_once -= 1

        def respond(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with upstream.lock:
                upstream.calls.append(body)
                upstream.headers.append(dict(self.headers))
                told = upstream.script.pop(0) if upstream.script else 200
            if isinstance(told, float):
                time.sleep(told)
                told = 200
            if isinstance(told, bytes):
                self.reply(200, told)
            elif told != 200:
                key = self.headers["authorization"] if upstream.echoes_key else ""
                said = json.dumps({"error": {"message": f"as told {key}"}})
                self.reply(told, said.encode())
            elif upstream.refuses is not None and upstream.refuses in body.get("input", ()):
                self.reply(400, b'{"error": {"message": "one of the texts is bad"}}')
            elif body.get("stream"):
                self.reply(200, b"".join(self.events(self.answer(body))))
            else:
                self.reply(200, json.dumps(self.answer(body)).encode())

        def events(self, answer: dict[str, Any]) -> Iterator[bytes]:
            """An answer word by word, as server-sent events."""
            words = answer["choices"][0]["message"]["content"].split(" ")
            for n, word in enumerate(words):
                delta = {"content": word if n == 0 else f" {word}"}
                piece = {"choices": [{"delta": delta, "finish_reason": None}]}
                yield f"data: {json.dumps(piece)}\n\n".encode()
            end = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": answer["usage"]}
            yield f"data: {json.dumps(end)}\n\ndata: [DONE]\n\n".encode()

        def answer(self, body: dict[str, Any]) -> dict[str, Any]:
            if "input" in body:
                vectors = [[float(len(text)), 1.0] for text in body["input"]]
                data = [{"embedding": v, "index": i} for i, v in enumerate(vectors)]
                return {"data": data, "usage": {"prompt_tokens": 2 * len(data)}}
            said = body["messages"][-1]["content"]
            message = {"role": "assistant", "content": f"<{said}>"}
            usage = {"prompt_tokens": 10, "completion_tokens": 5}
            return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

        def reply(self, status: int, body: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # the client did not wait

    return Handler


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    found = Upstream()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def own_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Answers of a test stay in the test."""
    monkeypatch.setenv("SILVA_ANSWERS", str(tmp_path / "answers"))
    return tmp_path / "answers"
