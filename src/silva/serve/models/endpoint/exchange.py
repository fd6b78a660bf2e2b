"""One call to an endpoint: its place, its retries, and its money.

A call takes one of the endpoint's places, and keeps it through its retries and pauses: an endpoint
that is full or ill is asked less. What may be tried again, and when, stands in `retries.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from silva.serve.models.endpoint.endpoint import Endpoint, EndpointError
from silva.serve.models.endpoint.openai import (
    Completion,
    Embeddings,
    Streamed,
    Tokens,
    completion_body,
)
from silva.serve.models.endpoint.retries import Breaker, is_retried, pause, retry_after
from silva.serve.models.model import Answer, Question
from silva.serve.models.usage import Meter
from silva.serve.tenant import BudgetSpent, Purse, current

R = TypeVar("R", Completion, Embeddings)
T = TypeVar("T")

_MOST_BYTES = 32 << 20
"""Bytes of a reply that are read; a longer one is an error."""
_SHOWN = 300
"""Bytes of a refusal that its error notes."""
_AROUND = 16
"""Tokens that an endpoint may put around a text: roles and marks."""


class Exchange:
    """The connections to an endpoint, and what is known of it. It belongs to one event loop."""

    def __init__(self, endpoint: Endpoint, meter: Meter) -> None:
        self._endpoint = endpoint
        self._meter = meter
        self._purse = Purse(endpoint.budget)
        self._breaker = Breaker(time.monotonic, endpoint.concurrency)
        self._client = _client(endpoint.concurrency)
        self._places = asyncio.Semaphore(endpoint.concurrency)
        self._recovered = asyncio.Event()
        """Set, and made anew, when the circuit closes."""

    async def close(self) -> None:
        await self._client.aclose()

    async def stream(self, question: Question, on_text: Callable[[str], None]) -> Answer:
        """One answer, whose text is handed over as it comes. It is tried again until its first text
        has come."""
        body = completion_body(self._endpoint.name, question)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        async with self._places:
            with self._paid(most_of(question)) as paid:
                made = await self._tried(lambda left: self._streamed(body, on_text, left))
                paid(made.usage)
                return made.answer()

    async def _streamed(
        self, body: dict[str, Any], on_text: Callable[[str], None], left: float
    ) -> Streamed | _Failed:
        import httpx

        name, seconds = repr(self._endpoint), max(min(self._endpoint.timeout, left), 0.0)
        made, sent = Streamed(on_text), _Sent()
        self._meter.add(calls=1)
        try:
            async with (
                asyncio.timeout(seconds),
                self._posted("chat/completions", body, sent) as reply,
            ):
                if reply.status_code != 200:
                    return self._refused(reply, await _body(reply) or b"")
                async for line in reply.aiter_lines():
                    made.add(line)
                    if made.bytes > _MOST_BYTES:
                        error = EndpointError(f"{name} sent over {_MOST_BYTES:,} bytes")
                        return _Failed(error, passes=False)
        except (
            TimeoutError, httpx.RequestError, httpx.StreamError, msgspec.DecodeError, RecursionError
        ) as broken:  # fmt: skip
            message = f"{name} broke off its answer: {str(broken) or type(broken).__name__}"
            error = EndpointError(message, was_sent=sent.has_begun)
            return _Failed(error, passes=True, is_final=made.has_begun)
        if made.finish is None:
            error = EndpointError(f"{name} broke off its answer")
            return _Failed(error, passes=True, is_final=made.has_begun)
        return made

    async def call(
        self,
        path: str,
        body: dict[str, Any],
        kind: type[R],
        is_whole: Callable[[R], bool],
        most: Tokens,
    ) -> R:
        """One call with its retries, of so many tokens at most. Its deadline begins when it has its
        place, and so does what is set aside for it."""
        async with self._places:
            with self._paid(most) as paid:
                found = await self._tried(
                    lambda left: self._attempt(path, body, kind, is_whole, left)
                )
                paid(found.usage)
                return found

    async def _tried(self, attempt: Callable[[float], Awaitable[T | _Failed]]) -> T:
        """What an attempt gives in the end; it is told how many seconds it has."""
        until = time.monotonic() + self._endpoint.deadline
        for number in itertools.count():
            await self._admitted(until)
            began = time.monotonic()
            outcome = await attempt(until - began)
            if not isinstance(outcome, _Failed):
                self._succeeded()
                return outcome
            wait = self._wait_after(outcome, number, began)
            if wait is None or time.monotonic() + wait > until:
                raise outcome.error
            self._meter.add(retries=1)
            await asyncio.sleep(wait)
        raise AssertionError

    async def _admitted(self, until: float) -> None:
        """Waits until the endpoint may be asked: while it is full, and while the circuit is open.
        Who has a fallback does not wait for a dead endpoint, and nobody does for one that has been
        dead for as long as a call may take."""
        while wait := self._breaker.wait():
            given_up = self._breaker.has_failed_for(self._endpoint.deadline)
            late = time.monotonic() + wait > until
            if self._endpoint.fallback is not None or given_up or late:
                raise EndpointError(
                    f"{self._endpoint!r} has failed several times in a row: not asked",
                    was_sent=False,
                )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._recovered.wait(), wait)

    def _succeeded(self) -> None:
        if self._breaker.succeeded():
            self._recovered.set()
            self._recovered = asyncio.Event()

    def _wait_after(self, failed: _Failed, attempt: int, began: float) -> float | None:
        """Seconds before the next attempt; None if there is none."""
        self._meter.add(failures=1)
        if not failed.passes:
            return None
        wait = pause(attempt, failed.retry_after)
        if failed.error.status == 429:  # full is not dead
            self._breaker.full(failed.retry_after or 0.0)
            return None if self._breaker.has_failed_for(self._endpoint.deadline) else wait
        self._breaker.failed(began)
        return wait if not failed.is_final and self._breaker.may_retry() else None

    async def _attempt(
        self,
        path: str,
        body: dict[str, Any],
        kind: type[R],
        is_whole: Callable[[R], bool],
        left: float,
    ) -> R | _Failed:
        import httpx

        name, seconds = repr(self._endpoint), max(min(self._endpoint.timeout, left), 0.0)
        sent = _Sent()
        self._meter.add(calls=1)
        try:
            async with asyncio.timeout(seconds), self._posted(path, body, sent) as reply:
                data = await _body(reply)
        except TimeoutError:
            message = f"{name} did not answer within {seconds:.3g} s"
            error = EndpointError(message, was_sent=sent.has_begun)
            return _Failed(error, passes=True)
        except (httpx.RequestError, httpx.StreamError) as broken:
            message = f"{name} cannot be reached: {str(broken) or type(broken).__name__}"
            error = EndpointError(message, was_sent=sent.has_begun)
            return _Failed(error, passes=True)
        if data is None:
            return _Failed(EndpointError(f"{name} sent over {_MOST_BYTES:,} bytes"), passes=False)
        if reply.status_code != 200:
            return self._refused(reply, data)
        try:
            found = msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
            error = EndpointError(f"{name} sent a reply that cannot be read: {wrong}")
            return _Failed(error, passes=True)
        if not is_whole(found):
            return _Failed(EndpointError(f"{name} sent a reply that is not whole"), passes=True)
        return found

    def _refused(self, reply: Any, data: bytes) -> _Failed:
        """The failure for a status other than 200. What the endpoint says may hold prompts, and the
        key that it was sent: it is a note for whoever reads the traceback, without the key."""
        status = reply.status_code
        error = EndpointError(f"{self._endpoint!r} answered {status}", status=status)
        text = data[:_SHOWN].decode("utf-8", "replace")
        if self._endpoint.key is not None:
            text = _redacted(text, _secret(self._endpoint.key))
        error.add_note(f"The endpoint said: {text}")
        return _Failed(error, is_retried(status), retry_after(reply.headers.get("retry-after")))

    @contextlib.asynccontextmanager
    async def _posted(self, path: str, body: dict[str, Any], sent: _Sent) -> AsyncIterator[Any]:
        url = f"{self._endpoint.url.rstrip('/')}/{path}"
        headers = {"content-type": "application/json"}
        if self._endpoint.key is not None:
            headers["authorization"] = f"Bearer {_secret(self._endpoint.key)}"
        content = msgspec.json.encode(body)
        async with self._client.stream(
            "POST", url, content=content, headers=headers, extensions={"trace": sent.note}
        ) as reply:
            yield reply

    @contextlib.contextmanager
    def _paid(self, tokens: Tokens) -> Iterator[Callable[[Tokens | None], None]]:
        """Sets aside what a call may cost at most, of the endpoint's budget and of the tenant's
        money, and settles what it has cost. A call that was sent and not answered may have cost all
        of it; one that was refused, or never sent, has cost nothing."""
        most = self._money(tokens)
        with contextlib.ExitStack() as stack:
            try:
                of_budget = stack.enter_context(self._purse.reserved(most))
            except BudgetSpent as spent:
                raise EndpointError(
                    f"the budget of {self._endpoint!r} does not suffice for the call"
                ) from spent
            try:
                of_tenant = stack.enter_context(current().purse.reserved(most))
            except BudgetSpent:
                of_budget(0.0)
                raise

            def settle(money: float) -> None:
                of_budget(money)
                of_tenant(money)

            def paid(usage: Tokens | None) -> None:
                settle(self._money(usage or tokens))
                self._count(usage)

            try:
                yield paid
            except EndpointError as error:
                if not error.may_have_cost:
                    settle(0.0)
                raise

    def _money(self, tokens: Tokens) -> float:
        given, made = self._endpoint.price
        return (tokens.prompt_tokens * given + tokens.completion_tokens * made) / 1e6

    def _count(self, usage: Tokens | None) -> None:
        found = usage or Tokens()
        self._meter.add(
            prompt_tokens=found.prompt_tokens,
            answer_tokens=found.completion_tokens,
            money=self._money(found),
        )


@dataclass
class _Sent:
    """Whether a request has left this process, as its connection says."""

    has_begun: bool = False

    async def note(self, event: str, _: dict[str, Any]) -> None:
        self.has_begun |= event.endswith("send_request_headers.started")


@dataclass(frozen=True)
class _Failed:
    """An attempt that failed."""

    error: EndpointError
    passes: bool
    """Whether a later attempt may succeed."""
    retry_after: float | None = None
    is_final: bool = False
    """Whether its text was heard, so that it is not made again all the same."""


def most_of(question: Question) -> Tokens:
    """The tokens of a question and its answer, at most."""
    given = most([one.text for one in question.messages])
    return Tokens(given.prompt_tokens, question.settings.max_tokens)


def most(texts: list[str]) -> Tokens:
    """The tokens of some texts, at most: one for each byte."""
    return Tokens(sum(len(text.encode()) + _AROUND for text in texts))


async def _body(reply: Any) -> bytes | None:
    """The body of a reply; None if it is too long."""
    data = bytearray()
    async for piece in reply.aiter_bytes():
        data += piece
        if len(data) > _MOST_BYTES:
            return None
    return bytes(data)


def _client(most: int) -> Any:
    import httpx

    limits = httpx.Limits(max_connections=most, max_keepalive_connections=most)
    return httpx.AsyncClient(limits=limits, timeout=None, follow_redirects=False)


def _secret(variable: str) -> str:
    found = os.environ.get(variable, "")
    if not found or not (found.isprintable() and found.isascii()):
        message = f"the environment variable {variable} holds no API key"
        raise EndpointError(message, was_sent=False)
    return found


def _redacted(text: str, secret: str) -> str:
    """A text without a secret, also where the text was cut within it.

    >>> _redacted("the key sesame-open is wrong: sesame", "sesame-open")
    'the key *** is wrong: ***'
    """
    text = text.replace(secret, "***")
    cut = next((n for n in range(len(secret) - 1, 3, -1) if text.endswith(secret[:n])), 0)
    return text[: len(text) - cut] + "***" if cut else text
