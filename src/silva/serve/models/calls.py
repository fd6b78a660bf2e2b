"""The calls to an endpoint: connections, retries, and answers as they arrive.

All calls of an open endpoint go through one event loop and one pool of connections. A call takes
one of the endpoint's places, and keeps it through its retries and pauses: an endpoint that is full
or ill is asked less. What may be tried again, and when, stands in `retries.py`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import os
import queue
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

from silva.errors import SilvaError
from silva.lifetime import Thread, join_all
from silva.serve.deadline import limit
from silva.serve.models.endpoint import TEXTS_AT_ONCE, Endpoint, EndpointError
from silva.serve.models.errors import Abandoned
from silva.serve.models.model import Answer, Question
from silva.serve.models.openai import (
    Completion,
    Embeddings,
    Streamed,
    Tokens,
    completion_body,
    embeddings_body,
)
from silva.serve.models.retries import Breaker, is_retried, pause, retry_after
from silva.serve.models.usage import Meter, Usage

T = TypeVar("T")
Found = dict[int, Any]

_MOST_BYTES = 32 << 20
"""Bytes of a reply that are read; a longer one is an error."""
_SHOWN = 300
"""Bytes of a refusal that its error notes."""
_OF_ITS_TEXTS = frozenset({400, 413, 422})
"""The statuses that may be the fault of one text among several."""


class OpenEndpoint:
    """The connections to an endpoint, and the loop that they live in."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._meter = Meter()
        self._breaker = Breaker(time.monotonic, endpoint.concurrency)
        self._loop = asyncio.new_event_loop()
        self._client = _client(endpoint.concurrency)
        self._places = asyncio.Semaphore(endpoint.concurrency)
        self._recovered = asyncio.Event()
        """Set, and made anew, when the circuit closes."""
        self._thread = Thread(_live, "endpoint", (self._loop, self._client))
        self._thread.start()

    @property
    def usage(self) -> Usage:
        return self._meter.read()

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        return self._all("generate", questions)

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        return self._all("embed", texts)

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        return self._all("score", pairs)

    def stream(self, question: Question, on_text: Callable[[str], None]) -> Answer | Exception:
        """The answer, handed over text by text as it comes. What has begun is not tried again."""

        async def whole() -> Answer:
            async with self._places:
                await self._admitted(time.monotonic() + self._endpoint.deadline)
                return await self._streamed(question, on_text)

        future = asyncio.run_coroutine_threadsafe(whole(), self._loop)
        awaited = limit()
        if awaited is not None:
            awaited.when_given_up(lambda: (future.cancel(), None)[1])
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            return Abandoned(f"nobody awaits what {self._endpoint!r} was asked")
        except SilvaError as error:
            return error

    def arriving(self, kind: str, items: list[Any]) -> Generator[Mapping[int, Any], None, None]:
        """Answers as they arrive; those that arrive together come together. Calls that nobody
        awaits any more are cancelled."""
        arrived: queue.SimpleQueue[Found | None] = queue.SimpleQueue()
        work = self._answer_all(list(self._calls(kind, items)), arrived)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        left, awaited = len(items), limit()
        if awaited is not None:
            awaited.when_given_up(lambda: (future.cancel(), None)[1])
        try:
            while left and (some := arrived.get()) is not None:  # each call has a deadline
                while not arrived.empty() and (more := arrived.get()) is not None:
                    some |= more
                left -= len(some)
                yield some
            if left and awaited is not None and awaited.is_given_up:
                raise Abandoned(f"nobody awaits what {self._endpoint!r} was asked")
            if left:
                with contextlib.suppress(concurrent.futures.CancelledError):
                    future.result()
                raise EndpointError(f"{self._endpoint!r} was closed")
        finally:
            future.cancel()

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            join_all([self._thread])

    def _all(self, kind: str, items: list[Any]) -> list[Any]:
        found: Found = {}
        for some in self.arriving(kind, items):
            found.update(some)
        return [found[i] for i in range(len(items))]

    # What is asked.

    def _calls(self, kind: str, items: list[Any]) -> Iterator[Coroutine[Any, Any, Found]]:
        if kind == "generate":
            for place, question in enumerate(items):
                yield self._generated(place, question)
        elif kind == "embed":
            for start in range(0, len(items), TEXTS_AT_ONCE):
                yield self._embedded(start, items[start : start + TEXTS_AT_ONCE])
        else:
            yield self._unscored(len(items))

    async def _answer_all(
        self, calls: list[Coroutine[Any, Any, Found]], arrived: queue.SimpleQueue[Found | None]
    ) -> None:
        async def one(call: Coroutine[Any, Any, Found]) -> None:
            arrived.put(await call)

        try:
            await asyncio.gather(*map(one, calls))
        finally:
            for _ in range(2):  # one may be taken together with what arrived before
                arrived.put(None)

    async def _generated(self, place: int, question: Question) -> Found:
        body = completion_body(self._endpoint.name, question)
        try:
            found = await self._call("chat/completions", body, Completion, Completion.is_whole)
        except SilvaError as error:
            return {place: error}
        self._count(found.usage)
        return {place: found.answer()}

    async def _embedded(self, start: int, texts: list[str]) -> Found:
        """The vectors of some texts. Where they are refused together, the halves are asked, so that
        one text costs no other its vector."""
        body = embeddings_body(self._endpoint.name, texts)
        try:
            found = await self._call(
                "embeddings", body, Embeddings, lambda one: one.is_whole(len(texts))
            )
        except SilvaError as error:
            half = len(texts) // 2
            if not half or getattr(error, "status", None) not in _OF_ITS_TEXTS:
                return dict.fromkeys(range(start, start + len(texts)), error)
            first = await self._embedded(start, texts[:half])
            return first | await self._embedded(start + half, texts[half:])
        self._count(found.usage)
        vectors = enumerate(found.vectors(), start)
        return {place: np.array(vector, np.float32) for place, vector in vectors}

    async def _unscored(self, count: int) -> Found:
        error = EndpointError(
            f"{self._endpoint!r} cannot score: endpoints do not return the likelihood of a given "
            "answer. Use a local model"
        )
        return dict.fromkeys(range(count), error)

    def _count(self, usage: Tokens | None) -> None:
        found, (given, made) = usage or Tokens(), self._endpoint.price
        self._meter.add(
            prompt_tokens=found.prompt_tokens,
            answer_tokens=found.completion_tokens,
            money=(found.prompt_tokens * given + found.completion_tokens * made) / 1e6,
        )

    async def _streamed(self, question: Question, on_text: Callable[[str], None]) -> Answer:
        import httpx

        name, began = repr(self._endpoint), time.monotonic()
        body = completion_body(self._endpoint.name, question)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        made = Streamed(on_text)
        self._meter.add(calls=1)
        try:
            async with (
                asyncio.timeout(self._endpoint.timeout),
                self._posted("chat/completions", body) as reply,
            ):
                if reply.status_code != 200:
                    raise self._refused(reply, await _body(reply) or b"").error
                async for line in reply.aiter_lines():
                    made.add(line)
                    if made.bytes > _MOST_BYTES:
                        raise EndpointError(f"{name} sent over {_MOST_BYTES:,} bytes")
        except (TimeoutError, httpx.RequestError, httpx.StreamError, msgspec.DecodeError) as broken:
            self._breaker.failed(began)
            self._meter.add(failures=1)
            shown = str(broken) or type(broken).__name__
            raise EndpointError(f"{name} broke off its answer: {shown}") from broken
        if made.finish is None:
            raise EndpointError(f"{name} broke off its answer")
        self._succeeded()
        self._count(made.usage)
        return made.answer()

    # One call.

    async def _call(
        self, path: str, body: dict[str, Any], kind: type[T], is_whole: Callable[[T], bool]
    ) -> T:
        """One call with its retries. Its deadline begins when it has its place."""
        async with self._places:
            until = time.monotonic() + self._endpoint.deadline
            for attempt in itertools.count():
                await self._admitted(until)
                began = time.monotonic()
                outcome = await self._attempt(path, body, kind, is_whole, until - began)
                if not isinstance(outcome, _Failed):
                    self._succeeded()
                    return outcome
                wait = self._wait_after(outcome, attempt, began)
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
                    f"{self._endpoint!r} has failed several times in a row: not asked"
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
        return wait if self._breaker.may_retry() else None

    async def _attempt(
        self,
        path: str,
        body: dict[str, Any],
        kind: type[T],
        is_whole: Callable[[T], bool],
        left: float,
    ) -> T | _Failed:
        import httpx

        name, seconds = repr(self._endpoint), max(min(self._endpoint.timeout, left), 0.0)
        self._meter.add(calls=1)
        try:
            async with asyncio.timeout(seconds), self._posted(path, body) as reply:
                data = await _body(reply)
        except TimeoutError:
            error = EndpointError(f"{name} did not answer within {seconds:.3g} s")
            return _Failed(error, passes=True)
        except (httpx.RequestError, httpx.StreamError) as broken:
            shown = str(broken) or type(broken).__name__
            return _Failed(EndpointError(f"{name} cannot be reached: {shown}"), passes=True)
        if data is None:
            return _Failed(EndpointError(f"{name} sent over {_MOST_BYTES:,} bytes"), passes=False)
        if reply.status_code != 200:
            return self._refused(reply, data)
        try:
            found = msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
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
    async def _posted(self, path: str, body: dict[str, Any]) -> AsyncIterator[Any]:
        url = f"{self._endpoint.url.rstrip('/')}/{path}"
        headers = {"content-type": "application/json"}
        if self._endpoint.key is not None:
            headers["authorization"] = f"Bearer {_secret(self._endpoint.key)}"
        content = msgspec.json.encode(body)
        async with self._client.stream("POST", url, content=content, headers=headers) as reply:
            yield reply


@dataclass(frozen=True)
class _Failed:
    """An attempt that failed."""

    error: EndpointError
    passes: bool
    """Whether a later attempt may succeed."""
    retry_after: float | None = None


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


def _live(loop: asyncio.AbstractEventLoop, client: Any) -> None:
    """Runs a loop to its end. The thread owns the loop and its connections: garbage collection may
    close the endpoint on this very thread."""
    loop.run_forever()
    loop.run_until_complete(_end(client))
    loop.close()


async def _end(client: Any) -> None:
    """Ends the calls that are still under way, and the connections."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.aclose()


def _secret(variable: str) -> str:
    found = os.environ.get(variable, "")
    if not found or not (found.isprintable() and found.isascii()):
        raise EndpointError(f"the environment variable {variable} holds no API key")
    return found


def _redacted(text: str, secret: str) -> str:
    """A text without a secret, also where the text was cut within it.

    >>> _redacted("the key sesame-open is wrong: sesame", "sesame-open")
    'the key *** is wrong: ***'
    """
    text = text.replace(secret, "***")
    cut = next((n for n in range(len(secret) - 1, 3, -1) if text.endswith(secret[:n])), 0)
    return text[: len(text) - cut] + "***" if cut else text
