"""An endpoint that is open: what it is asked, and its answers as they arrive.

All calls of an open endpoint go through one event loop and one pool of connections (`exchange.py`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import queue
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from typing import Any

import numpy as np

from silva.errors import SilvaError
from silva.lifetime import Thread, join_all
from silva.serve.deadline import limit
from silva.serve.models.endpoint.endpoint import TEXTS_AT_ONCE, Endpoint, EndpointError
from silva.serve.models.endpoint.exchange import Exchange, most, most_of
from silva.serve.models.endpoint.openai import (
    Completion,
    Embeddings,
    completion_body,
    embeddings_body,
)
from silva.serve.models.errors import Abandoned
from silva.serve.models.model import Answer, Question
from silva.serve.models.usage import Meter, Usage

Found = dict[int, Any]
Call = Callable[[], Coroutine[Any, Any, Found]]

_OF_ITS_TEXTS = frozenset({400, 413, 422})
"""The statuses that may be the fault of one text among several."""


class OpenEndpoint:
    """The connections to an endpoint, and the loop that they live in."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._meter = Meter()
        self._exchange = Exchange(endpoint, self._meter)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(_live, "endpoint", (self._loop, self._exchange))
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
        """The answer, handed over text by text as it comes."""

        future = asyncio.run_coroutine_threadsafe(
            self._exchange.stream(question, on_text), self._loop
        )
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
        for _ in range(2):  # one may be taken together with what arrived before
            future.add_done_callback(lambda _: arrived.put(None))  # also if it never begins
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

    def _calls(self, kind: str, items: list[Any]) -> Iterator[Call]:
        if kind == "generate":
            for place, question in enumerate(items):
                yield functools.partial(self._generated, place, question)
        elif kind == "embed":
            for start in range(0, len(items), TEXTS_AT_ONCE):
                texts = items[start : start + TEXTS_AT_ONCE]
                yield functools.partial(self._embedded, start, texts)
        else:
            yield functools.partial(self._unscored, len(items))

    async def _answer_all(
        self, calls: list[Call], arrived: queue.SimpleQueue[Found | None]
    ) -> None:
        async def one(call: Call) -> None:
            arrived.put(await call())

        await asyncio.gather(*map(one, calls))

    async def _generated(self, place: int, question: Question) -> Found:
        body = completion_body(self._endpoint.name, question)
        try:
            found = await self._exchange.call(
                "chat/completions", body, Completion, Completion.is_whole, most_of(question)
            )
        except SilvaError as error:
            return {place: error}
        return {place: found.answer()}

    async def _embedded(self, start: int, texts: list[str]) -> Found:
        """The vectors of some texts. Where they are refused together, the halves are asked, so that
        one text costs no other its vector."""
        body = embeddings_body(self._endpoint.name, texts)
        try:
            found = await self._exchange.call(
                "embeddings", body, Embeddings, lambda one: one.is_whole(len(texts)), most(texts)
            )
        except SilvaError as error:
            half = len(texts) // 2
            if not half or getattr(error, "status", None) not in _OF_ITS_TEXTS:
                return dict.fromkeys(range(start, start + len(texts)), error)
            first = await self._embedded(start, texts[:half])
            return first | await self._embedded(start + half, texts[half:])
        vectors = enumerate(found.vectors(), start)
        return {place: np.array(vector, np.float32) for place, vector in vectors}

    async def _unscored(self, count: int) -> Found:
        error = EndpointError(
            f"{self._endpoint!r} cannot score: endpoints do not return the likelihood of a given "
            "answer. Use a local model"
        )
        return dict.fromkeys(range(count), error)


def _live(loop: asyncio.AbstractEventLoop, exchange: Exchange) -> None:
    """Runs a loop to its end. The thread owns the loop and its connections: garbage collection may
    close the endpoint on this very thread."""
    loop.run_forever()
    loop.run_until_complete(_end(exchange))
    loop.close()


async def _end(exchange: Exchange) -> None:
    """Ends the calls that are still under way, and the connections."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await exchange.close()
