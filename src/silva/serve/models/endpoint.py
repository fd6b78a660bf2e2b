"""Any endpoint that speaks OpenAI's protocol: chat completions and embeddings.

All calls of a process go through one event loop and one pool of connections. A call has a deadline
that covers its retries; what may be tried again, and when, stands in `retries.py`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np

from silva.errors import PlanError, SilvaError
from silva.lifetime import Thread, join_all
from silva.serve.models.model import Answer, Model, Question
from silva.serve.models.retries import Breaker, is_retried, pause
from silva.serve.models.usage import Meter, Usage
from silva.serve.tenant import current

T = TypeVar("T")

_MOST_BYTES = 32 << 20
"""Bytes of a reply that are read; a longer one is an error."""
_DAY = 86_400.0
"""Seconds for which answers are kept of a model whose revision nobody has named."""
_TEXTS_AT_ONCE = 64
"""Texts in one request for embeddings; endpoints take at least a hundred."""


class EndpointError(SilvaError):
    """An endpoint did not answer, or answered what cannot be used."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _Embeddings(msgspec.Struct):
    data: list[_Vector]
    usage: _Usage | None = None


@dataclass(frozen=True)
class Endpoint(Model):
    """A model behind an endpoint: `Endpoint("http://localhost:8080/v1", "llama-3")`.

    Answers are kept under the endpoint, the model and `revision`. The same name may be another
    model tomorrow: without a revision, answers are kept for a day. A remote answer is recorded, not
    recomputable: another call may give another text.
    """

    url: str
    """The base address, up to and with `/v1`."""
    name: str
    """The model, as the endpoint calls it."""
    key: str | None = None
    """The name of the environment variable that holds the API key; the key itself is never part of
    a plan."""
    revision: str | None = None
    timeout: float = 60.0
    """Seconds that one attempt may take."""
    deadline: float = 300.0
    """Seconds that a call may take, retries and pauses included."""
    concurrency: int = 16
    """Calls at once."""
    price: tuple[float, float] = (0.0, 0.0)
    """Money per million tokens of prompts and of answers."""
    fallback: Model | None = None
    """The model that is asked where this one fails. Its answers are kept as its own."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PlanError(
                f"an endpoint has an address such as http://host:8080/v1, not {self.url!r}"
            )
        if parts.username or parts.password or parts.query:
            raise PlanError(
                "the address of an endpoint must hold no secrets: set key= to the name of the "
                "environment variable that holds the API key"
            )
        if self.key is not None and not self.key.isidentifier():
            raise PlanError("key= is the name of an environment variable, never the key itself")

    def __repr__(self) -> str:
        return f"{self.name} at {self.url}"

    @property
    def identity(self) -> str:
        return "\0".join(("endpoint", self.url.rstrip("/"), self.name, self.revision or ""))

    @property
    def lifetime(self) -> float | None:  # type: ignore[override]
        return _DAY if self.revision is None else None

    def open(self) -> OpenEndpoint:
        return OpenEndpoint(self)


class OpenEndpoint:
    """The connections to an endpoint, and the loop that they live in."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._meter = Meter()
        self._breaker = Breaker(time.monotonic)
        self._loop = asyncio.new_event_loop()
        self._client = _client(endpoint.concurrency)
        self._places = asyncio.Semaphore(endpoint.concurrency)
        self._thread = Thread(_live, "endpoint", (self._loop, self._client))
        self._thread.start()

    @property
    def usage(self) -> Usage:
        return self._meter.read()

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        return self._all(self._generate(question) for question in questions)

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        parts = [texts[i : i + _TEXTS_AT_ONCE] for i in range(0, len(texts), _TEXTS_AT_ONCE)]
        found = self._all(self._embed(part) for part in parts)
        return [
            vector
            for part, made in zip(parts, found, strict=True)
            for vector in (made if isinstance(made, list) else [made] * len(part))
        ]

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        error = EndpointError(
            f"{self._endpoint!r} cannot score: endpoints do not return the likelihood of a given "
            "answer. Use a local model"
        )
        return [error] * len(pairs)

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            join_all([self._thread])

    # One call.

    async def _generate(self, question: Question) -> Answer:
        settings = question.settings
        body: dict[str, Any] = {
            "model": self._endpoint.name,
            "messages": [{"role": m.role or "user", "content": m.text} for m in question.messages],
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
        }
        if settings.stop:
            body["stop"] = list(settings.stop)
        if question.seed is not None:
            body["seed"] = question.seed
        if settings.schema is not None:
            form = {"name": "answer", "schema": settings.schema.json_schema(), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        given = sum(len(m.text.encode("utf-8", "surrogatepass")) for m in question.messages)
        with current().purse.reserved(self._most_money(given, settings.max_tokens)):
            found = await self._post("chat/completions", body, _Completion, _has_text)
            choice, usage = found.choices[0], found.usage or _Usage()
            self._count(usage)
        finish = "length" if choice.finish_reason == "length" else "stop"
        text = choice.message.content or ""
        return Answer(text, finish, usage.prompt_tokens, usage.completion_tokens)

    async def _embed(self, texts: list[str]) -> list[np.ndarray]:
        body = {"model": self._endpoint.name, "input": texts, "encoding_format": "float"}

        def is_whole(found: _Embeddings) -> bool:
            indices = sorted(one.index for one in found.data)
            sizes = {len(one.embedding) for one in found.data}
            return indices == list(range(len(texts))) and len(sizes) == 1

        given = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        with current().purse.reserved(self._most_money(given, 0)):
            found = await self._post("embeddings", body, _Embeddings, is_whole)
            self._count(found.usage or _Usage())
        by_place = sorted(found.data, key=lambda one: one.index)
        return [np.array(one.embedding, np.float32) for one in by_place]

    def _count(self, usage: _Usage) -> None:
        self._meter.add(
            prompt_tokens=usage.prompt_tokens,
            answer_tokens=usage.completion_tokens,
            money=self._most_money(usage.prompt_tokens, usage.completion_tokens),
        )

    def _most_money(self, prompt: int, answer: int) -> float:
        """What a call costs with so many tokens; at most, if the prompt is counted in bytes."""
        given, made = self._endpoint.price
        return (prompt * given + answer * made) / 1e6

    async def _post(
        self, path: str, body: dict[str, Any], kind: type[T], is_whole: Callable[[T], bool]
    ) -> T:
        """One call with its retries."""
        until = time.monotonic() + self._endpoint.deadline
        for attempt in range(1_000):
            if not self._breaker.admits():
                raise EndpointError(
                    f"{self._endpoint!r} has failed several times in a row: not asked"
                )
            async with self._places:
                left = until - time.monotonic()
                outcome = await self._attempt(path, body, kind, is_whole, left)
            if not isinstance(outcome, _Failed):
                self._breaker.succeeded()
                return outcome
            self._meter.add(failures=1)
            if outcome.passes and outcome.error.status != 429:  # full is not dead
                self._breaker.failed()
            wait = pause(attempt, outcome.retry_after)
            late = time.monotonic() + wait > until
            if late or not outcome.passes or not self._breaker.may_retry():
                raise outcome.error
            self._meter.add(retries=1)
            await asyncio.sleep(wait)
        raise AssertionError

    async def _attempt(
        self,
        path: str,
        body: dict[str, Any],
        kind: type[T],
        is_whole: Callable[[T], bool],
        left: float,
    ) -> T | _Failed:
        import httpx

        name, seconds = repr(self._endpoint), min(self._endpoint.timeout, left)
        self._meter.add(calls=1)
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                status, headers, data = await self._exchange(path, body)
        except TimeoutError:
            error = EndpointError(f"{name} did not answer within {seconds:.3g} s")
            return _Failed(error, passes=True)
        except (httpx.TransportError, httpx.StreamError) as broken:
            shown = str(broken) or type(broken).__name__
            return _Failed(EndpointError(f"{name} cannot be reached: {shown}"), passes=True)
        if data is None:
            return _Failed(EndpointError(f"{name} sent over {_MOST_BYTES:,} bytes"), passes=False)
        if status != 200:
            text = data[:300].decode("utf-8", "replace")
            error = EndpointError(f"{name} answered {status}: {text}", status=status)
            return _Failed(error, is_retried(status), _seconds(headers.get("retry-after")))
        try:
            found = msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
            error = EndpointError(f"{name} sent a reply that cannot be read: {wrong}")
            return _Failed(error, passes=True)
        if not is_whole(found):
            return _Failed(EndpointError(f"{name} sent a reply that is not whole"), passes=True)
        return found

    async def _exchange(self, path: str, body: dict[str, Any]) -> tuple[int, Any, bytes | None]:
        """Status, headers and body; None for a body that is too long."""
        url = f"{self._endpoint.url.rstrip('/')}/{path}"
        headers = {"content-type": "application/json"}
        if self._endpoint.key is not None:
            headers["authorization"] = f"Bearer {_secret(self._endpoint.key)}"
        content = msgspec.json.encode(body)
        data = bytearray()
        async with self._client.stream("POST", url, content=content, headers=headers) as reply:
            async for piece in reply.aiter_bytes():
                data += piece
                if len(data) > _MOST_BYTES:
                    return reply.status_code, reply.headers, None
            return reply.status_code, reply.headers, bytes(data)

    # The loop.

    def _all(self, calls: Iterable[Coroutine[Any, Any, T]]) -> list[T | Exception]:
        async def gathered() -> list[T | BaseException]:
            return await asyncio.gather(*calls, return_exceptions=True)

        made: list[T | Exception] = []
        for one in self._wait(gathered()):
            if isinstance(one, BaseException) and not isinstance(one, Exception):
                raise one
            made.append(one)
        return made

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _client(most: int) -> Any:
    import httpx

    limits = httpx.Limits(max_connections=most, max_keepalive_connections=most)
    return httpx.AsyncClient(limits=limits, timeout=None, follow_redirects=False)


def _live(loop: asyncio.AbstractEventLoop, client: Any) -> None:
    """Runs a loop to its end. The thread owns the loop and its connections: garbage collection may
    close the endpoint on this very thread."""
    loop.run_forever()
    loop.run_until_complete(client.aclose())
    loop.close()


@dataclass(frozen=True)
class _Failed:
    """An attempt that failed."""

    error: EndpointError
    passes: bool
    """Whether a later attempt may succeed."""
    retry_after: float | None = field(default=None)


def _has_text(found: _Completion) -> bool:
    return bool(found.choices) and found.choices[0].message.content is not None


def _secret(variable: str) -> str:
    found = os.environ.get(variable, "")
    if not found or not found.isprintable():
        raise EndpointError(f"the environment variable {variable} holds no API key")
    return found


def _seconds(header: str | None) -> float | None:
    """The seconds of a Retry-After header; None for a date, which few endpoints send."""
    try:
        found = float(header or "")
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None
