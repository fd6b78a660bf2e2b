"""Files in an object store or on a web server, with the same interface as local files.

The listing holds the size and version (ETag) of each object. Every response is compared with it, so
an object that was overwritten is an error, never other rows.
"""

from __future__ import annotations

import functools
import hashlib
import io
import posixpath
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, NamedTuple, cast

import numpy as np

from silva.errors import SourceError
from silva.io.objects.addresses import Address, Root, matches
from silva.io.objects.errors import version_of
from silva.io.objects.fetching import PATIENCE, Connection, Patience, Request, all_of, result_of
from silva.io.objects.stream import (
    BUFFER,
    BlockCache,
    ObjectArray,
    ObjectStream,
    Range,
    RangeReader,
    cuts,
)
from silva.io.paths import Listing
from silva.io.source import Travels


class _ListedObject(NamedTuple):
    root: Root
    key: str
    size: int
    version: str

    def order(self) -> tuple[bytes, str]:
        return self.root.shown(self.key).encode(), self.root.query.text


@dataclass(frozen=True)
class ObjectFiles(Travels):
    """Objects by their addresses; a client is made in each process that reads."""

    reads_at_once: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = ("_objects",)

    addresses: tuple[Address, ...]
    suffixes: tuple[str, ...]
    """The suffixes of the objects that a *folder* means."""
    patience: Patience = PATIENCE

    def __getstate__(self) -> dict[str, Any]:
        _ = self._objects  # a worker must not list again: it could find other objects
        return super().__getstate__()

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(address.shown for address in self.addresses)

    @functools.cached_property
    def _connection(self) -> Connection:
        return Connection(self.patience)

    @functools.cached_property
    def _blocks(self) -> BlockCache:
        return BlockCache()

    @functools.cached_property
    def _objects(self) -> tuple[_ListedObject, ...]:
        meant = self._connection.run(lambda: all_of([self._find(each) for each in self.addresses]))
        found: dict[Any, _ListedObject] = {}
        for address, several in zip(self.addresses, meant, strict=True):
            if not several:
                raise self._nothing(address)
            found.update({each.order(): each for each in several})
        return tuple(found[order] for order in sorted(found))

    @functools.cached_property
    def listing(self) -> Listing:
        paths = tuple(each.root.shown(each.key) for each in self._objects)
        return Listing(paths, np.array([each.size for each in self._objects], dtype=np.int64))

    @functools.cached_property
    def fingerprint(self) -> str:
        paths = [path.partition("://")[2] for path in self.listing.paths]
        parent = posixpath.commonpath({posixpath.dirname(path) for path in paths})
        digest = hashlib.blake2b(digest_size=16)
        for path, each in zip(paths, self._objects, strict=True):
            relative = path[len(parent) :].lstrip("/")
            digest.update(f"{relative}\0{each.size} {each.version}\n".encode())
        return digest.hexdigest()

    def read(self, files: Sequence[int]) -> list[bytes]:
        return [
            parts[0] if len(parts) == 1 else b"".join(parts)
            for parts in self._fetch([(i, 0, self._objects[i].size) for i in files])
        ]

    def read_range(self, file: int, start: int, length: int) -> bytes:
        with self.open(file) as stream:
            stream.seek(start)
            return stream.read(length)

    def read_ranges(self, file: int, ranges: Sequence[Range]) -> list[bytes]:
        """The bytes of each range, all fetched together."""
        return [b"".join(p) for p in self._fetch([(file, first, last) for first, last in ranges])]

    def open(self, file: int) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(self._stream(file, (), in_blocks=True), BUFFER))

    def open_arrow(
        self, file: int, mapped: bool = False, ranges: Sequence[tuple[int, int]] = ()
    ) -> Any:
        import pyarrow as pa

        return pa.PythonFile(self._stream(file, ranges), mode="r")

    def array(
        self, file: int, dtype: np.dtype, shape: tuple[int, ...], offset: int, fortran: bool
    ) -> Any:
        found = ObjectArray(self.read_ranges, self.listing.sizes[file], file, dtype, shape, offset)
        return found.whole("F") if fortran else found

    def _stream(self, file: int, planned: Sequence[Range], in_blocks: bool = False) -> ObjectStream:
        each = self._objects[file]

        def fetch(start: int, stop: int) -> Future[list[bytes]]:
            return self._connection.fetch([Request(*each, start, stop)])

        def small(start: int, stop: int) -> bytes:
            return self._blocks.read(file, each.size, fetch, start, stop)

        ranges = RangeReader(each.size, fetch, planned, small if in_blocks else None)
        return ObjectStream(each.size, ranges)

    def _fetch(self, wanted: Sequence[tuple[int, int, int]]) -> list[list[bytes]]:
        """Parts of files, each in requests that run in parallel."""
        ranges = [cuts(start, stop) or [(start, stop)] for _, start, stop in wanted]
        requests = [
            Request(*self._objects[file], *each)
            for (file, _, _), several in zip(wanted, ranges, strict=True)
            for each in several
        ]
        fetched = result_of(self._connection.fetch(requests))
        data = iter(fetched)
        return [[next(data) for _ in several] for several in ranges]

    async def _find(self, address: Address) -> list[_ListedObject]:
        """The objects that an address means: itself, those below it, or those that match a glob."""
        root, key = address.root, address.key
        if address.is_glob:
            found = await self._below(address, address.folder)
            return [each for each in found if matches(key, each.key)]
        if root.is_web or (key and not key.endswith("/")):
            alone = await self._connection.ask(
                lambda: _head(self._connection.client(root), root, key), address.shown
            )
            if alone is not None or root.is_web:
                return [] if alone is None else [alone]
        found = await self._below(address, key.rstrip("/"))
        return [each for each in found if _is_meant(each.key, key, self.suffixes)]

    async def _below(self, address: Address, folder: str) -> list[_ListedObject]:
        """The objects below a folder, without the empty ones that stand for folders."""
        metas = await self._connection.list_below(address, folder)
        found = [_ListedObject(address.root, m["path"], m["size"], version_of(m)) for m in metas]
        empty = {each.key for each in found if not each.size}
        folders = {above for each in found if empty for above in _above(each.key)} & empty
        return [each for each in found if each.key not in folders]

    def _nothing(self, address: Address) -> SourceError:
        if address.is_glob:
            return SourceError(f"no object matches {address.shown!r}")
        what = f"there is no object {address.shown!r}"
        if not address.root.is_web:
            kind = " or ".join(self.suffixes)
            what += f", nor are there {kind + ' ' if kind else ''}objects below it"
        return SourceError(what)


async def _head(client: Any, root: Root, key: str) -> _ListedObject | None:
    import obstore
    from obstore.exceptions import NotSupportedError, PermissionDeniedError

    try:
        meta = await obstore.head_async(client, key)
    except FileNotFoundError:
        return None
    except (PermissionDeniedError, NotSupportedError):
        if not root.query.text:
            raise
        # a signature may be valid for GET only: one byte is enough
        answer = await obstore.get_async(client, key, options={"range": (0, 1)})
        meta = answer.meta
    return _ListedObject(root, key, meta["size"], version_of(meta))


def _above(key: str) -> list[str]:
    return [key[:i] for i, character in enumerate(key) if character == "/"]


def _is_meant(key: str, folder: str, suffixes: tuple[str, ...]) -> bool:
    below = key[len(folder.rstrip("/")) :].split("/")
    return key.endswith(suffixes or "") and not any(name.startswith(".") for name in below)
