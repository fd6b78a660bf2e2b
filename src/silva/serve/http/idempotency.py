"""Requests that come again with the same `Idempotency-Key`: all of them get one reply.

The first one is the attempt. Others that come while it is on its way wait for it, and later ones
get the reply that is kept. An attempt that failed on the server's side is not kept, since the next
one may go better.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from silva.serve.http.replies import Reply

_OWN_BYTES = 1024
"""Bytes that a kept reply takes beside its body: the task, digests and a place in the dict."""


@dataclass(eq=False)
class Attempt:
    """One request with a key, and those who wait for its reply."""

    row: bytes
    """The digest of the request."""
    task: asyncio.Task[Reply]
    waiters: int = 0


class OtherRequest(Exception):
    """The key was used for another request."""


class Attempts:
    """The attempts of one tenant. Replies are kept up to so many bytes, the latest ones."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._found: dict[bytes, Attempt] = {}
        """Those on their way: as many as there are requests in flight."""
        self._kept: OrderedDict[bytes, Attempt] = OrderedDict()

    async def once(
        self, key: bytes, row: bytes, answer: Callable[[], Coroutine[None, None, Reply]]
    ) -> Reply:
        """The reply of the first request with this key. An attempt that nobody waits for any more
        is cancelled."""
        known, asked = _digest(key), _digest(row)
        attempt = self._kept.get(known) or self._found.get(known)
        if attempt is None:
            attempt = Attempt(asked, asyncio.get_running_loop().create_task(answer()))
            self._found[known] = attempt
        elif attempt.row != asked:
            raise OtherRequest
        attempt.waiters += 1
        try:
            return await asyncio.shield(attempt.task)
        finally:
            attempt.waiters -= 1
            self._settle(known, attempt)

    def _settle(self, known: bytes, attempt: Attempt) -> None:
        """Keeps an attempt that has ended, and cancels one that nobody waits for."""
        if self._found.get(known) is not attempt:
            return  # another one has settled it
        if not attempt.task.done():
            if attempt.waiters:
                return
            attempt.task.cancel()
        del self._found[known]
        task = attempt.task
        if not task.done() or task.cancelled() or task.exception() or not task.result().is_final:
            return
        self._kept[known] = attempt
        self._bytes += _size(attempt)
        while self._bytes > self._most:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= _size(oldest)


def _size(attempt: Attempt) -> int:
    return _OWN_BYTES + len(attempt.task.result().body)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()
