"""One run of a pipeline that several readers share.

Readers are at different positions. Batches that the slowest reader has not read yet are kept while
memory allows. When it is full, the fastest reader waits for the others, at most `patience` seconds;
then the oldest batches are dropped, and readers that still need them get a run of their own.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from silva.columns import empty
from silva.columns.allocation import is_sharing
from silva.columns.serial.batch_codec import encode_pieces
from silva.errors import LoaderError
from silva.lifetime import Thread, join_all
from silva.loader import Loader
from silva.service.split_batch import split_batch
from silva.service.wire import PROGRESS

_AHEAD_BYTES, _AHEAD = 64 << 20, 64
"""Bytes and batches that are made ahead of the fastest reader."""
_ALONE_BYTES = 128 << 20
"""Bytes that are kept while a run has had one reader only, for those that start a little later. To
keep more costs page faults for nobody's use."""
_OWN = 1024
"""Bytes of bookkeeping per batch."""
_BUFFER = 2 << 20
"""Bytes of a buffer that small batches share."""
_READERS = 4096
"""The most readers of a run that are remembered."""
_ENDING = 0.5
"""Seconds that the thread gets to finish before its loader is closed under it."""


class EncodedBatch(NamedTuple):
    """An encoded batch, or the end of an epoch."""

    parts: tuple[list[memoryview], ...]
    """The bytes for each rank that shares the batch, in pieces; empty at the end of an epoch."""
    moved: dict[str, Any]
    """What has changed in the state after it."""
    key: str
    """The position before it, from `key_of`."""
    nbytes: int
    start: int
    """Bytes of all batches that the run made before it."""


@dataclass
class _Reader:
    place: int
    """The number of the batch that it reads next."""
    last_request: float
    """The time of its last request."""
    waits_since: float | None = None


class _BatchMemory:
    """Memory for encoded batches: while readers on this machine share it, small batches lie side by
    side in one buffer, which is free when the last of them is dropped."""

    def __init__(self) -> None:
        self._buffer, self._used = np.empty(0, np.uint8), 0

    def allocate(self, size: int) -> memoryview:
        if size >= _BUFFER or not is_sharing():
            return empty((size,), np.uint8).data
        if self._used + size > len(self._buffer):
            self._buffer, self._used = empty((_BUFFER,), np.uint8), 0
        start, self._used = self._used, self._used + size
        return self._buffer[start : self._used].data


def key_of(state: dict[str, Any]) -> str:
    """The position of a state in its stream, as text that is equal for equal states."""
    return json.dumps([state.get(name) for name in PROGRESS], sort_keys=True)


class SharedRun:
    """A thread that makes batches, and the batches that it keeps. Batches and ends of epochs are
    numbered from the start of the run."""

    def __init__(
        self,
        loader: Loader,
        parts: int,
        room: Callable[[], int],
        patience: float,
        idle: float,
        address: str,
    ) -> None:
        """`parts`: the number of ranks that share each batch, or 0 if a batch is for one reader;
        `room`: returns the bytes that may be kept now; `address`: that of the reader for which the
        run was started."""
        self.address = address
        self._loader, self._parts = loader, parts
        self._room, self._patience, self._idle = room, patience, idle
        self._memory = _BatchMemory()
        self._changed = threading.Condition()
        self._kept: deque[EncodedBatch] = deque()
        self._bytes = 0
        """Bytes of all batches that are kept."""
        self._made_bytes = 0
        self._first = 0
        """The number of the oldest batch that is kept."""
        self._place = key_of(loader.state_dict())
        """The position before the next batch that it makes."""
        self._numbers = {self._place: 0}
        self._readers: dict[str, _Reader] = {}
        self.last_request = time.monotonic()
        """The time of the last request of any reader."""
        self._several = parts > 1
        """Whether it has had several readers, so that there may be more."""
        self._left_behind = 0
        self._left = False
        """Whether its last reader has moved to another run."""
        self._error: BaseException | None = None
        self._closed = False
        self._thread = Thread(self._work, "service-run")

    def start(self) -> None:
        self._thread.start()

    # Readers.

    def number_of(self, key: str) -> int | None:
        """The number of the batch after this position; None if that batch is not kept."""
        with self._changed:
            return None if self._closed else self._numbers.get(key)

    @property
    def oldest(self) -> int:
        return self._first

    @property
    def made(self) -> int:
        """The number of batches that it has made."""
        return self._first + len(self._kept)

    def take(
        self, reader: str, number: int, limit: int, seconds: float
    ) -> list[EncodedBatch] | None:
        """The batches from `number` on, up to the end of the epoch and about `limit` bytes; an
        empty list if none was made in time, None if that batch is no longer kept."""
        until = time.monotonic() + seconds
        with self._changed:
            me = self._readers.setdefault(reader, _Reader(number, 0.0))
            me.place = number
            self._several = self._several or len(self._readers) > 1
            self.last_request = me.last_request = time.monotonic()
            self._forget_some()
            while number >= self.made and not self._closed and self._error is None:
                left = until - time.monotonic()
                if left <= 0:
                    break
                if me.waits_since is None:
                    me.waits_since = time.monotonic()
                self._changed.notify_all()
                self._changed.wait(left)
            me.waits_since = None
            self.last_request = me.last_request = time.monotonic()
            if number < self._first or (self._closed and number >= self.made):
                self._readers.pop(reader, None)
                return None
            if number >= self.made and self._error is not None:
                raise self._error
            found = self._from(number, limit)
            me.place = number + len(found)
            self._changed.notify_all()
            return found

    def _from(self, number: int, limit: int) -> list[EncodedBatch]:
        found, size = [], 0
        for at in range(number - self._first, len(self._kept)):
            kept = self._kept[at]
            found.append(kept)
            size += kept.nbytes // max(self._parts, 1)
            if size >= limit or not kept.parts:
                break
        return found

    def _forget_some(self) -> None:
        """Bounds the number of remembered readers, whatever names they send."""
        if len(self._readers) > _READERS:
            silent = [name for name, r in self._readers.items() if r.waits_since is None]
            silent.sort(key=lambda name: self._readers[name].last_request)
            for name in silent[: _READERS // 2]:
                del self._readers[name]

    def leave(self, reader: str) -> None:
        """Keeps no more batches for this reader; ends the run if it was the last one."""
        with self._changed:
            if self._readers.pop(reader, None) is not None:
                self._left = not self._readers
                self._changed.notify_all()

    # The thread.

    def _work(self) -> None:
        try:
            while self._may_go_on():
                for batch in self._loader:
                    state = self._loader.state_dict()
                    if not self._put(self._encoded(batch), state) or not self._may_go_on():
                        return
                self._put((), self._loader.state_dict())
        except BaseException as error:  # noqa: BLE001  raised at the next request
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            self._loader.close()

    def _encoded(self, batch: dict[str, Any]) -> tuple[list[memoryview], ...] | None:
        if not isinstance(batch, dict):
            raise LoaderError("a service serves batches: end the pipeline with batch(n)")
        if not self._parts:
            return (self._pieces(batch),)
        dealt = split_batch(batch, self._parts)
        return None if dealt is None else tuple(map(self._pieces, dealt))

    def _pieces(self, batch: dict[str, Any]) -> list[memoryview]:
        return encode_pieces(batch, self._memory.allocate)

    def _put(self, parts: tuple[list[memoryview], ...] | None, state: dict[str, Any]) -> bool:
        """Keeps a batch; False if the run has been closed."""
        with self._changed:
            if self._closed:
                return False
            if parts is None:  # fewer rows than ranks: no rank gets any
                return True
            moved = {name: state[name] for name in PROGRESS if name in state}
            size = _OWN + sum(piece.nbytes for part in parts for piece in part)
            self._kept.append(EncodedBatch(parts, moved, self._place, size, self._made_bytes))
            self._bytes += size
            self._made_bytes += size
            self._place = key_of(moved)
            self._numbers[self._place] = self.made
            self._changed.notify_all()
            return True

    def _may_go_on(self) -> bool:
        """Waits until another batch is wanted and there is room for it; False once closed."""
        with self._changed:
            while not self._closed:
                wait = self._to_wait()
                if wait is None:
                    return True
                self._changed.wait(wait)
            return False

    def _to_wait(self) -> float | None:
        """Seconds to wait before the next batch, unless something changes; None to make it now."""
        now = time.monotonic()
        for name in [n for n, r in self._readers.items() if now - r.last_request > self._idle]:
            if self._readers[name].waits_since is None:
                del self._readers[name]
        if not self._readers:
            return self._idle
        places = [reader.place for reader in self._readers.values()]
        room = self._room()
        ahead = self._bytes_from(max(places))
        if ahead >= min(_AHEAD_BYTES, room // 2) or self.made - max(places) >= _AHEAD:
            return self._idle
        self._drop(room if self._several else min(room, _ALONE_BYTES), before=min(places))
        if self._bytes < room or not self._kept:
            return None
        waits = [r.waits_since for r in self._readers.values() if r.waits_since is not None]
        if not waits:
            return self._idle
        patience = self._patience - (now - min(waits))
        if patience > 0:
            return patience
        self._drop(room, before=self.made)
        for name in [n for n, r in self._readers.items() if r.place < self._first]:
            del self._readers[name]
            self._left_behind += 1
        return None

    def _bytes_from(self, number: int) -> int:
        """Bytes of the batches from this number on."""
        at = number - self._first
        return self._made_bytes - self._kept[at].start if at < len(self._kept) else 0

    def _drop(self, room: int, before: int) -> None:
        """Drops the oldest batches until there is room, but none from number `before` on."""
        while self._bytes >= room and self._kept and self._first < before:
            oldest = self._kept.popleft()
            self._bytes -= oldest.nbytes
            self._numbers.pop(oldest.key, None)
            self._first += 1

    # State, and the end.

    def is_idle(self, now: float) -> bool:
        with self._changed:
            if self._closed or (self._left and not self._readers):
                return True
            return not self.is_waited_for and now - self.last_request > self._idle

    @property
    def is_waited_for(self) -> bool:
        """Whether a reader is waiting for a batch."""
        return any(r.waits_since is not None for r in list(self._readers.values()))

    @property
    def failed(self) -> bool:
        return self._error is not None

    def stats(self) -> dict[str, Any]:
        with self._changed:
            return {
                "made": self.made,
                "kept": len(self._kept),
                "bytes": self._bytes,
                "readers": {name: self.made - r.place for name, r in self._readers.items()},
                "left_behind": self._left_behind,
            }

    def close(self) -> None:
        """Ends the run and its workers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is None:
            self._loader.close()
            return
        join_all([self._thread], _ENDING)
        if self._thread.is_alive():  # it is in a slow step
            self._loader.close()
            join_all([self._thread], _ENDING)
        self._kept.clear()
