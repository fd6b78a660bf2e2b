"""Fetches bytes of objects: many requests at once, without a thread for each.

One event loop per process, on a thread of its own, submits requests to obstore and waits for all of
them. The bytes in flight are bounded; a small request counts as `LEAST`, so the number of
connections is bounded too. obstore retries a request that fails for a passing reason (429, 5xx, a
broken connection, a timeout) with growing, jittered pauses; a response that is cut off is requested
again here. After `Patience.deadline` the request is an error.

obstore's threads do not survive a fork: a process that was forked after its parent had read objects
gets an error, since it would wait for ever.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from silva.errors import PlanError, SilvaError, SourceError
from silva.io.incoming import LEDGER
from silva.io.objects.addresses import Address, Root
from silva.io.objects.errors import check_unchanged, failed_object
from silva.lifetime import Thread, join_all

UNDER_WAY = 64 << 20
"""The most bytes that a process has in flight."""
LEAST = 256 << 10
"""The least bytes that a request counts as, so that there are at most 256 at once."""

_FAREWELL = 5.0
"""Seconds that requests in flight have to be cancelled."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Patience:
    """How long to wait for a store, in seconds."""

    answer: float = 30.0
    """The timeout of one response, from the request to its last byte; then it is retried."""
    deadline: float = 120.0
    """The deadline of a request with all its retries."""
    pause: float = 0.1
    """The pause before the first retry; each one is about twice as long as the one before."""


PATIENCE = Patience()


@dataclass(frozen=True)
class Request:
    """A part of an object, as it was when it was listed."""

    root: Root
    key: str
    size: int
    """The size of the object."""
    version: str
    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def shown(self) -> str:
        return self.root.shown(self.key)


class Allowance:
    """A bound on bytes in flight; requests are served first come, first served."""

    def __init__(self, total: int) -> None:
        self._total = self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def take(self, wanted: int) -> AsyncIterator[None]:
        amount = min(max(wanted, LEAST), self._total)
        if self._waiting or amount > self._free:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((amount, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._give_back(amount)
                raise
        else:
            self._free -= amount
        try:
            yield
        finally:
            self._give_back(amount)

    def _give_back(self, amount: int) -> None:
        self._free += amount
        while self._waiting:
            wanted, turn = self._waiting[0]
            if turn.cancelled():
                self._waiting.popleft()
            elif wanted <= self._free:
                self._free -= wanted
                self._waiting.popleft()
                turn.set_result(None)
            else:
                return


class Fetcher:
    """The event loop of this process, and its thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.allowance = Allowance(UNDER_WAY)
        thread = Thread(_serve, "objects", (self.loop,))
        thread.start()
        weakref.finalize(self, _stop, self.loop, thread)


class Connection:
    """Requests of one source or folder in this process. Its clients are configured by the
    environment at first use.

    obstore's threads may hold an exception that it raised, also the one that ends a listing, and so
    the frames that it passed. What awaits obstore is therefore a function that holds a client and
    not the connection, which would keep the fetcher and its thread.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._fetcher = fetcher()
        self.client = functools.lru_cache(maxsize=256)(lambda root: _store(root, patience))

    def fetch(self, requests: Sequence[Request]) -> Future[list[bytes]]:
        """The bytes of all requests, in their order."""
        return self._submit(lambda: all_of([self._fetch(request) for request in requests]))

    async def _fetch(self, request: Request) -> bytes:
        async def get() -> bytes:
            with LEDGER.asking(request.length):
                return await _get(self.client(request.root), request)

        return await self.ask(get, request.shown, nbytes=request.length)

    async def ask(
        self,
        work: Callable[[], Awaitable[_T]],
        shown: str,
        deed: str = "read",
        *,
        nbytes: int = 0,
        bounded: bool = True,
    ) -> _T:
        """The result of one request, once its `nbytes` may be in flight. Work that is not
        `bounded` sees to its deadline itself."""

        async def once() -> _T:
            async with asyncio.timeout(self._patience.deadline if bounded else None):
                return await work()

        async with self._fetcher.allowance.take(nbytes):
            return await persist(once, shown, self._patience, deed)

    async def list_below(self, address: Address, folder: str, deed: str = "read") -> list[Any]:
        """The metadata of the objects below a folder; the deadline is for each page."""

        def pages() -> Awaitable[list[Any]]:
            return _list_pages(self.client(address.root), folder, self._patience.deadline)

        return await self.ask(pages, address.shown, deed, bounded=False)

    def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Waits for the result of the work."""
        return result_of(self._submit(work))

    def _submit(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> Future[_T]:
        fetcher()  # raises if this process was forked
        return asyncio.run_coroutine_threadsafe(work(), self._fetcher.loop)


def result_of(future: Future[_T]) -> _T:
    """Waits for a result; who is interrupted meanwhile does not need it any more."""
    try:
        return future.result()
    finally:
        future.cancel()


class BrokenOff(Exception):
    """A response was cut off."""

    def __init__(self, error: Exception) -> None:
        self.error = error


async def persist(
    work: Callable[[], Awaitable[_T]], shown: str, patience: Patience, deed: str = "read"
) -> _T:
    """The result of the work, which is repeated until the deadline if a response is cut off."""
    begun, pause = time.monotonic(), patience.pause
    while True:
        try:
            return await work()
        except BrokenOff as broken:
            error, again = broken.error, True
        except SilvaError:
            raise
        except Exception as raised:  # noqa: BLE001  reported without the library's text
            error, again = raised, False
        # obstore's threads may hold its error until their next call into Python. The traceback
        # would hold the frames of this request with it, and so the fetcher and its thread.
        error.__traceback__ = None
        if not again or time.monotonic() - begun + pause > patience.deadline:
            break
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        pause *= 2
    try:
        raise failed_object(deed, shown, error, patience.deadline)
    finally:
        del error  # a cycle with this frame, which only the garbage collector would free


async def _get(store: Any, request: Request) -> bytes:
    import obstore

    whole = request.length == request.size  # every web server can do that, also one without ranges
    options: Any = {} if whole else {"range": (request.start, request.stop)}
    answer = await obstore.get_async(store, request.key, options=options)
    check_unchanged(request.shown, request.size, request.version, answer.meta)
    try:
        data: bytes = (await answer.bytes_async()).to_bytes()
    except Exception as error:  # noqa: BLE001  reported without the library's text
        raise BrokenOff(error) from None
    if len(data) != request.length:
        raise BrokenOff(EOFError())
    return data


async def _list_pages(client: Any, folder: str, deadline: float) -> list[Any]:
    import obstore

    found: list[Any] = []
    now = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(deadline) as limit:
            async for metas in obstore.list(client, folder or None, chunk_size=1000):
                found += metas
                limit.reschedule(now() + deadline)
    except obstore.exceptions.GenericError as error:
        if "response body" in str(error):
            raise BrokenOff(error) from None
        raise
    return found


async def all_of(works: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """All results; after the first error the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if thread.is_alive():  # false in a forked process
        loop.call_soon_threadsafe(loop.stop)
        join_all([thread], _FAREWELL)


_of_process: dict[int, weakref.ref[Fetcher]] = {}
"""By process id: obstore has one set of threads and connections per process."""
_making = threading.Lock()


def fetcher() -> Fetcher:
    """The fetcher of this process; it ends when the last reference to it is gone."""
    own = os.getpid()
    if _of_process and own not in _of_process:
        raise SourceError(
            "this process was forked after objects had been read, and their connections do not "
            "survive a fork: start it with the method 'spawn' or 'forkserver', or use silva's "
            "own workers"
        )
    with _making:
        held = _of_process.get(own)
        found = None if held is None else held()
        if found is None:
            found = Fetcher()
            _of_process[own] = weakref.ref(found)
        return found


def _store(root: Root, patience: Patience) -> Any:
    try:
        from obstore.store import HTTPStore, from_url
    except ImportError:
        raise PlanError(
            f"{root.url} needs obstore: pip install 'silva[cloud]', or read local files"
        ) from None
    # plain http is used only where the address, or an endpoint in the environment, says so
    client: Any = {"timeout": f"{int(patience.answer * 1000)}ms", "allow_http": True}
    retry: Any = {
        "max_retries": 100,
        "retry_timeout": timedelta(seconds=patience.deadline),
        "backoff": {
            "init_backoff": timedelta(seconds=patience.pause),
            "max_backoff": timedelta(seconds=100 * patience.pause),
            "base": 2,
        },
    }
    if not root.is_web:
        return from_url(root.url, client_options=client, retry_config=retry)
    if root.login.text:
        token = base64.b64encode(root.login.text.encode()).decode()
        client["default_headers"] = {"authorization": f"Basic {token}"}
    query = f"/?{root.query.text}" if root.query.text else ""
    return HTTPStore.from_url(root.url + query, client_options=client, retry_config=retry)
