"""A folder of an object store that is written as well as read.

Requests go the way of those of sources: on one loop, tried again with growing pauses until a
deadline, and errors never contain the library's text. An object appears whole or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from silva.errors import SourceError
from silva.io.objects.addresses import Address
from silva.io.objects.errors import has_no_answer, version_of
from silva.io.objects.fetching import PATIENCE, BrokenOff, Connection, Patience, Request
from silva.io.objects.stream import AHEAD, cuts

_T = TypeVar("_T")


class Listed(NamedTuple):
    """An object as of when it was listed or written."""

    key: str
    """The key, relative to the folder."""
    size: int
    version: str
    written: float
    """The time of the last change, in seconds since 1970."""


Part = tuple[Listed, int, int]
"""An object, the first byte and the number of bytes."""


class ObjectFolder:
    def __init__(self, address: Address, patience: Patience = PATIENCE) -> None:
        self._root, self._key = address.root, address.key.strip("/")
        self._connection = Connection(patience)
        self._expected: dict[Part, Future[list[bytes]]] = {}
        self._expected_before: dict[Part, Future[list[bytes]]] = {}

    @property
    def shown(self) -> str:
        return self._root.shown(self._key)

    def look(self) -> tuple[list[str], list[str]]:
        """The names of the folders and of the objects directly in it."""
        import obstore

        async def ask() -> Any:
            return await obstore.list_with_delimiter_async(self._client(), self._key or None)

        found = self._do(ask, self.shown, "list")
        return (
            [self._below(key) for key in found["common_prefixes"]],
            [self._below(meta["path"]) for meta in found["objects"]],
        )

    def below(self, name: str) -> list[Listed]:
        """All objects below one of its folders."""

        address = Address(self._root, self._full(name))
        found = self._connection.run(
            lambda: self._connection.list_below(address, address.key, "list")
        )
        return [
            Listed(
                self._below(meta["path"]),
                meta["size"],
                version_of(meta),
                meta["last_modified"].timestamp(),
            )
            for meta in found
        ]

    def expect(self, parts: Sequence[Part]) -> None:
        """Begins to fetch what will be read after what was expected the last time; the bytes of
        both wait for their reader, as far as they are bounded."""
        _cancel(self._expected_before)
        self._expected_before, self._expected = self._expected, {}
        ahead = 0
        for part in parts:
            ahead += part[2]
            if ahead > AHEAD:
                return
            if part not in self._expected_before:
                self._expected[part] = self._begin(part)

    def forget(self) -> None:
        """Cancels what `expect` has started."""
        self.expect([])
        self.expect([])

    def read(self, parts: Sequence[Part]) -> Iterator[bytes | SourceError]:
        """Of each object so many bytes from a place on, or why there are none. What comes next is
        fetched meanwhile, as far as it is bounded in bytes."""
        rest, started, ahead = deque(parts), deque[tuple[Future[list[bytes]], int]](), 0
        try:
            for _ in parts:
                while rest and (not started or ahead + rest[0][2] <= AHEAD):
                    part = rest.popleft()
                    started.append((self._started(part), part[2]))
                    ahead += part[2]
                future, length = started[0]
                try:
                    found = future.result()
                except SourceError as error:
                    yield error
                else:
                    yield found[0] if len(found) == 1 else b"".join(found)
                started.popleft()
                ahead -= length
        finally:
            for future, _ in started:
                future.cancel()

    def _started(self, part: Part) -> Future[list[bytes]]:
        for expected in (self._expected_before, self._expected):
            found = expected.pop(part, None)
            if found is not None:
                return found
        return self._begin(part)

    def _begin(self, part: Part) -> Future[list[bytes]]:
        listed, start, length = part
        key = self._full(listed.key)
        requests = [
            Request(self._root, key, listed.size, listed.version, *cut)
            for cut in cuts(start, start + length)
        ]
        return self._connection.fetch(requests)

    def write(self, key: str, data: bytes) -> str:
        """Writes an object and returns its version."""
        import obstore

        async def put() -> str:
            client, full = self._client(), self._full(key)
            try:
                answer = await obstore.put_async(client, full, data, use_multipart=False)
            except obstore.exceptions.GenericError as error:
                # writing is idempotent: it is retried if there was no response
                raise (BrokenOff(error) if has_no_answer(error) else error) from None
            return version_of(answer) if answer["e_tag"] else "unknown"

        return self._do(put, self._shown(key), "write")

    def exists(self, key: str) -> bool:
        import obstore

        async def ask() -> bool:
            try:
                await obstore.head_async(self._client(), self._full(key))
            except FileNotFoundError as absent:
                absent.__traceback__ = None  # for the reason given in `persist`
                return False
            return True

        return self._do(ask, self._shown(key), "read")

    def remove(self, keys: Sequence[str]) -> None:
        """Removes objects; missing ones are ignored."""
        import obstore

        async def delete() -> None:
            await obstore.delete_async(self._client(), [self._full(key) for key in keys])

        self._do(delete, self.shown, "remove objects in")

    def _client(self) -> Any:
        return self._connection.client(self._root)

    def _do(self, work: Callable[[], Awaitable[_T]], shown: str, deed: str) -> _T:
        return self._connection.run(lambda: self._connection.ask(work, shown, deed))

    def _full(self, name: str) -> str:
        return f"{self._key}/{name}" if self._key else name

    def _below(self, key: str) -> str:
        return key[len(self._key) + 1 :] if self._key else key

    def _shown(self, name: str) -> str:
        return self._root.shown(self._full(name))


def _cancel(futures: dict[Part, Future[list[bytes]]]) -> None:
    for future in futures.values():
        future.cancel()
