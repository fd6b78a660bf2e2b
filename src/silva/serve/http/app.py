"""The ASGI app of a served pipeline: one address that answers, and pages for those who run it.

`POST /` takes the columns of one request as a JSON object, and answers with those of its row. The
other pages are `/health` (the process is alive), `/ready` (it takes requests) and `/metrics`. All
but the first two need a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections.abc import AsyncIterator
from typing import Unpack

from silva.options import check_known
from silva.plan.node import Node
from silva.serve.engine.refresh import Refreshing
from silva.serve.http.access import Account, Accounts
from silva.serve.http.admission import Admission, Asked
from silva.serve.http.events import ACCEPTED, Events, Spoken
from silva.serve.http.exchange import HungUp, Receive, Scope, Send
from silva.serve.http.metrics import Metrics
from silva.serve.http.options import AsgiArguments, ServeOptions
from silva.serve.http.replies import Replies, Reply, logger, refused

_JSON = (b"content-type", b"application/json")
_TEXT = (b"content-type", b"text/plain; version=0.0.4")


def app_of(plan: Node, **arguments: Unpack[AsgiArguments]) -> App:
    """The app of a plan."""
    check_known("asgi", arguments, ServeOptions)
    return App(plan, ServeOptions(**arguments))


class App:
    """An ASGI app that answers requests with a plan.

    A server that runs it alone warms it up and closes it. An app that it is mounted in does so by
    `lifespan`, since servers tell only the outermost app when they start and end.
    """

    def __init__(self, plan: Node, options: ServeOptions) -> None:
        self.accounts = Accounts(
            options.token, rate=options.rate, kept_bytes=options.kept_bytes, shared=options.shared
        )
        self.engine = Refreshing(
            plan,
            refresh=options.refresh,
            slo=options.slo,
            seed=options.seed,
            on_error=options.on_error,
            most_rows=options.most_rows,
        )
        units = [station.unit for station in self.engine.stations]
        replies = Replies(units, self.engine.columns)
        self._spoken = Spoken.of(units, self.engine.columns)
        self.metrics = Metrics(self.engine, self.accounts, replies, options.on_error)
        self._admission = Admission(self.engine, replies, self.metrics, options)
        self._deadline = options.deadline
        self._warming: asyncio.Task[None] | None = None

    @property
    def token(self) -> str:
        """The token of the first tenant, which is the only one unless there are several."""
        return next(iter(self.accounts)).access.token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            if path in ("/health", "/ready"):
                is_up = path == "/health" or self.is_ready
                await _send(send, Reply(200 if is_up else 503, b"{}", ""), _JSON)
            else:
                await self._serve(path, scope, receive, send)

    async def _serve(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        request = secrets.token_hex(8)
        headers = dict(scope["headers"])
        account = self.accounts.find(headers.get(b"authorization", b""))
        if account is None:
            shown = "show the token: Authorization: Bearer …"
            reply = refused(401, "token", shown, request)
        elif path == "/metrics" and scope["method"] == "GET":
            if self.accounts.may_read_metrics(account):
                await _send(send, Reply(200, self.metrics.text().encode(), request), _TEXT)
                return
            reply = refused(403, "metrics", "this token may not read the metrics", request)
        elif path not in ("", "/"):
            reply = refused(404, "address", "there is nothing here: POST to /", request)
        elif scope["method"] != "POST":
            reply = refused(405, "method", "POST a JSON object", request)
        else:
            asked = self._asked(request, account, headers, receive, send)
            try:
                reply = await self._admission.reply(asked)
            except HungUp:
                if asked.events is not None:
                    asked.events.close()
                self.metrics.hang_ups += 1
                return
            account.moved(len(reply.body))
            if asked.events is not None and await self._told(asked.events, reply):
                return
        self.metrics.count(reply.status)
        own = [_JSON, (b"x-request-id", reply.request.encode())]
        if reply.retry_after is not None:
            own.append((b"retry-after", b"%d" % max(math.ceil(reply.retry_after), 1)))
        await _send(send, reply, *own)

    async def _told(self, events: Events, reply: Reply) -> bool:
        """Writes the end of the events; False if an ordinary reply is due. A client that does not
        read them in the time of one more request has hung up."""
        try:
            async with asyncio.timeout(self._deadline):
                ended = await events.end(reply)
        except TimeoutError:
            events.close()
            self.metrics.hang_ups += 1
            return True
        if ended:
            self.metrics.count(reply.status)
        return ended

    def _asked(
        self,
        request: str,
        account: Account,
        headers: dict[bytes, bytes],
        receive: Receive,
        send: Send,
    ) -> Asked:
        listens = ACCEPTED in headers.get(b"accept", b"")
        events = Events(send, request, self._spoken) if listens else None
        return Asked(request, account, headers, receive, events)

    # From the start to the end.

    @property
    def is_ready(self) -> bool:
        """Whether it is warm and takes requests. Whoever asks first has it warmed up; after a
        failure, whoever asks next."""
        if self._admission.is_closed:
            return False
        task = self._warming
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            self._warming = asyncio.get_running_loop().create_task(self._warm())
            return False
        return task.done()

    async def _warm(self) -> None:
        try:
            await self.engine.warm()
        except Exception:
            logger.exception("the pipeline cannot be warmed up")
            raise

    async def warm(self) -> None:
        """Opens models and indices. A failure is logged, and `/ready` tries again."""
        if not self.is_ready and self._warming is not None:
            with contextlib.suppress(Exception):
                await self._warming

    @contextlib.asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """The lifespan of an app that this one is mounted in:
        `Starlette(routes=[Mount("/ask", answers)], lifespan=answers.lifespan)`."""
        await self.warm()
        try:
            yield
        finally:
            await self.drained()
            self.close()

    async def drained(self) -> None:
        """Takes no further requests, and returns when those in flight have ended."""
        await self._admission.drained()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.lifespan():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def drain(self) -> None:
        """Takes no further requests; those in flight are answered."""
        self._admission.is_closed = True

    def close(self) -> None:
        """Takes no further requests, and ends the threads of the engine."""
        self.drain()
        self.engine.close()


async def _send(send: Send, reply: Reply, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(reply.body))
    start = {"type": "http.response.start", "status": reply.status, "headers": [*headers, length]}
    await send(start)
    await send({"type": "http.response.body", "body": reply.body})
