"""The ASGI app of a served pipeline: one address that answers, and pages for those who run it.

`POST /` takes the columns of one request as a JSON object, and answers with those of its row. The
other pages are `/health` (the process is alive), `/ready` (it takes requests) and `/metrics`. All
but the first two need the token.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Unpack

import msgspec

from silva.plan.node import Node
from silva.serve.engine import Engine
from silva.serve.metrics import Metrics
from silva.serve.options import AsgiArguments, ServeOptions
from silva.serve.replies import Reply, answered, error_reply, refused
from silva.service.access import has_token, server_token

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_TEXT = (b"content-type", b"text/plain; version=0.0.4")
_KEY_CHARACTERS = 256
"""The longest `Idempotency-Key`."""
_decode = msgspec.json.Decoder(type=dict[str, Any]).decode


def app_of(plan: Node, **arguments: Unpack[AsgiArguments]) -> App:
    """The app of a plan."""
    return App(plan, ServeOptions(**arguments))


class App:
    """An ASGI app that answers requests with a plan."""

    def __init__(self, plan: Node, options: ServeOptions) -> None:
        self.token = server_token(options.token)
        self._options = options
        self.engine = Engine(plan, slo=options.slo, seed=options.seed, on_error=options.on_error)
        self.metrics = Metrics(self.engine)
        self._flying = 0
        self._ready = True
        self._budget = _Rate(options.rate)
        self._kept: OrderedDict[str, asyncio.Future[Reply]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            return
        path, method = scope["path"].removeprefix(scope.get("root_path", "")), scope["method"]
        if path in ("/health", "/ready"):
            is_up = path == "/health" or self._ready
            await _send(send, Reply(200 if is_up else 503, b"{}"), _JSON)
            return
        request = secrets.token_hex(8)
        headers = dict(scope["headers"])
        shown = headers.get(b"authorization", b"").decode("latin-1")
        if not has_token(shown, self.token):
            reply = refused(401, "token", "show the token: Authorization: Bearer …", request)
        elif path == "/metrics" and method == "GET":
            await _send(send, Reply(200, self.metrics.text().encode()), _TEXT)
            return
        elif path not in ("", "/"):
            reply = refused(404, "address", "there is nothing here: POST to /", request)
        elif method != "POST":
            reply = refused(405, "method", "POST a JSON object", request)
        else:
            reply = await self._admit(headers, receive, request)
        self.metrics.count(reply.status)
        await _send(send, reply, _JSON, (b"x-request-id", request.encode()))

    async def _admit(self, headers: dict[bytes, bytes], receive: Receive, request: str) -> Reply:
        """Answers a request unless there are too many."""
        if not self._ready:
            return refused(503, "draining", "the server is stopping", request)
        if self._flying >= self._options.most or not self._budget.admits():
            return refused(429, "full", "too many requests: try again later", request)
        self._flying += 1
        try:
            body = await _body(receive, self._options.request_bytes)
            if body is None:
                most = self._options.request_bytes
                return refused(413, "size", f"a request has at most {most:,} bytes", request)
            key = headers.get(b"idempotency-key")
            if key is None:
                return await self._answer(body, request)
            if len(key) > _KEY_CHARACTERS:
                return refused(422, "key", "the Idempotency-Key is too long", request)
            return await self._once(key.decode("latin-1"), body, request)
        finally:
            self._flying -= 1

    async def _answer(self, body: bytes, request: str) -> Reply:
        try:
            row = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return refused(422, "request", f"the body is not a JSON object: {error}", request)
        try:
            outcome = await self.engine.answer(row, deadline=self._options.deadline)
        except Exception as error:  # noqa: BLE001  every request ends in a reply
            return error_reply(error, request)
        return answered(outcome, request)

    async def _once(self, key: str, body: bytes, request: str) -> Reply:
        """The reply to the first request with this key and body: a client that tries again gets it,
        also while the first one is still on its way."""
        known = f"{key}\0{body.hex()}"
        found = self._kept.get(known)
        if found is None:
            found = self._kept[known] = asyncio.ensure_future(self._answer(body, request))
            while len(self._kept) > self._options.kept:
                self._kept.popitem(last=False)
        reply = await asyncio.shield(found)
        if reply.status >= 500:
            self._kept.pop(known, None)  # the next attempt may go better
        return reply

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
                continue
            self.close()
            await send({"type": "lifespan.shutdown.complete"})
            return

    def drain(self) -> None:
        """Takes no further requests; those in flight are answered."""
        self._ready = False

    def close(self) -> None:
        self.drain()
        self.engine.close()


class _Rate:
    """So many requests per second, with bursts of one second."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._left = rate or 0.0
        self._at: float | None = None

    def admits(self) -> bool:
        if self._rate is None:
            return True
        now = asyncio.get_running_loop().time()
        passed = 0.0 if self._at is None else now - self._at
        self._at, self._left = now, min(self._left + passed * self._rate, max(self._rate, 1.0))
        if self._left < 1:
            return False
        self._left -= 1
        return True


async def _body(receive: Receive, most: int) -> bytes | None:
    """The body of a request; None if it is too long."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return None if len(body) > most else body
    pieces = bytearray(body)
    while message.get("more_body") and len(pieces) <= most:
        message = await receive()
        pieces += message.get("body", b"")
    return None if len(pieces) > most else bytes(pieces)


async def _send(send: Send, reply: Reply, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", str(len(reply.body)).encode())
    start = {"type": "http.response.start", "status": reply.status, "headers": [*headers, length]}
    await send(start)
    await send({"type": "http.response.body", "body": reply.body})
