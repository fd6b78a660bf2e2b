"""Which requests are answered, and the way of each from its body to its reply."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec

from silva.errors import PlanError
from silva.serve.engine.refresh import Refreshing
from silva.serve.http.access import Account
from silva.serve.http.events import Events
from silva.serve.http.exchange import Receive, TooLong, read_body, unless_hung_up
from silva.serve.http.idempotency import OtherRequest
from silva.serve.http.metrics import Metrics
from silva.serve.http.options import ServeOptions
from silva.serve.http.replies import Replies, Reply, refused
from silva.serve.requests import Row, checked

_KEY_CHARACTERS = 256
"""The longest `Idempotency-Key`."""
_PLACE = 1.0
"""Seconds after which a client may try again when all places are taken: the shortest time that
`Retry-After` can say."""
_decode = msgspec.json.Decoder(type=dict[str, Any]).decode
_pack = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(slots=True)
class Asked:
    """A request as it came in."""

    id: str
    """What its reply shows as `x-request-id`."""
    account: Account
    headers: dict[bytes, bytes]
    receive: Receive
    events: Events | None
    """Where its client listens."""


class Admission:
    """Admits requests while there is room for them, and answers them."""

    def __init__(
        self, engine: Refreshing, replies: Replies, metrics: Metrics, options: ServeOptions
    ) -> None:
        self._engine = engine
        self._replies = replies
        self._metrics = metrics
        self._options = options
        self._flying = 0
        self._arriving: dict[asyncio.Timeout, None] = {}
        self._idle = asyncio.Event()
        self.is_closed = False
        """Whether it takes no further requests."""

    async def reply(self, asked: Asked) -> Reply:
        """Answers a request unless there are too many. It takes a place among those in flight once
        its body is here, so clients that send slowly keep nobody out."""
        account, began = asked.account, asyncio.get_running_loop().time()
        if self.is_closed:
            return refused(503, "draining", "the server is stopping", asked.id)
        wait = account.wait(began)
        if wait:
            return _full(asked, "this token's rate is used up", wait)
        if account.tenant.purse.is_empty:
            account.refused += 1
            return refused(429, "money", "this token's money is spent", asked.id)
        until = began + self._options.deadline
        found = await self._row(asked, until)
        if isinstance(found, Reply):
            return found
        if self._flying >= self._options.most or account.is_full:
            return _full(asked, "too many requests are in flight", _PLACE)
        self._flying += 1
        account.flying += 1
        try:
            return await unless_hung_up(asked.receive, self._once(asked, *found, until))
        finally:
            self._flying -= 1
            account.flying -= 1
            self._idle.set()
            self._metrics.took(asyncio.get_running_loop().time() - began)

    async def drained(self) -> None:
        """Takes no further requests, and returns when those in flight have ended."""
        self.is_closed = True
        while self._flying:
            self._idle.clear()
            await self._idle.wait()

    async def _row(self, asked: Asked, until: float) -> tuple[Row, bytes] | Reply:
        """The columns of a request, and what is the same for equal ones; or why there are none."""
        most = self._options.request_bytes
        try:
            async with self._arrives(until):
                body = await read_body(asked.receive, most)
            asked.account.moved(len(body))
            row = checked(self._engine.names, _decode(body))
            return row, _pack(row)
        except TooLong:
            return refused(413, "size", f"a request has at most {most:,} bytes", asked.id)
        except TimeoutError:
            return refused(408, "deadline", "the body did not arrive in time", asked.id)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return refused(422, "request", f"the body is not a JSON object: {error}", asked.id)
        except OverflowError:
            return refused(422, "request", "an integer has at most 64 bits", asked.id)
        except PlanError as error:
            return refused(422, "request", str(error), asked.id)

    @contextlib.asynccontextmanager
    async def _arrives(self, until: float) -> AsyncIterator[None]:
        """The time in which a body arrives. There are at most as many on their way as requests in
        flight; one more ends the time of the oldest, which is the slowest."""
        while len(self._arriving) >= self._options.most:
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            if not oldest.expired():
                oldest.reschedule(asyncio.get_running_loop().time())
        async with asyncio.timeout_at(until) as limit:
            self._arriving[limit] = None
            try:
                yield
            finally:
                self._arriving.pop(limit, None)

    async def _once(self, asked: Asked, row: Row, packed: bytes, until: float) -> Reply:
        """Answers a request; one with a known key gets the reply of the first one with it."""
        key = asked.headers.get(b"idempotency-key")
        if key is None:
            return await self._answer(asked, row, until)
        if len(key) > _KEY_CHARACTERS:
            return refused(422, "key", "the Idempotency-Key is too long", asked.id)
        try:
            return await asked.account.attempts.once(
                key, packed, lambda: self._answer(asked, row, until)
            )
        except OtherRequest:
            message = "the Idempotency-Key was used for another request"
            return refused(422, "key", message, asked.id)

    async def _answer(self, asked: Asked, row: Row, until: float) -> Reply:
        tenant, events = asked.account.tenant, asked.events
        if events is not None and events.spoken is not None:
            tenant = tenant.listening(events.spoken.step, events.hear)
        left = until - asyncio.get_running_loop().time()
        try:
            outcome = await self._engine.answer(row, deadline=left, tenant=tenant)
            if outcome.failures:
                self._metrics.failed(failure.step for failure in outcome.failures)
            return self._replies.answered(outcome, asked.id)
        except Exception as error:  # noqa: BLE001  every request ends in a reply
            return self._replies.error(error, asked.id)


def _full(asked: Asked, why: str, wait: float) -> Reply:
    asked.account.refused += 1
    return refused(429, "full", f"{why}: try again later", asked.id, retry_after=wait)
