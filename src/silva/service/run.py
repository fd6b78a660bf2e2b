"""One run of a pipeline, whose batches are kept for a while for all that want them.

Readers are at different places. What the slowest has not had yet is kept as long as there is room;
when there is none, the fastest waits for the others, but not longer than its patience: then the
oldest batches go, and who still wanted them must begin a run of its own.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from silva.columns.serial_batch import encode_batch
from silva.errors import LoaderError
from silva.loader import Loader
from silva.service.parts import parts_of
from silva.service.wire import MOVES

_AHEAD_BYTES, _AHEAD = 64 << 20, 64
"""How much, and how many batches, are made before anybody asks for them."""
_OWN = 1024
"""Bytes that a batch takes here beside its own."""
_ENDING = 0.5
"""Seconds in which a loader should have come to its end before it is closed from outside."""


class Kept(NamedTuple):
    """A batch, or the end of an epoch."""

    parts: tuple[memoryview, ...]
    """The batch for each of its ranks; none where an epoch ends."""
    moved: dict[str, Any]
    """Where the stream stands after it."""
    key: str
    """The place before it."""
    nbytes: int
    start: int
    """Bytes of all that the run made before it."""


@dataclass
class _Reader:
    place: int
    """The number of what it wants next."""
    heard: float
    """When it last asked."""
    waits_since: float | None = None


def key_of(state: dict[str, Any]) -> str:
    """A place in a stream, equal for equal states."""
    return json.dumps([state.get(name) for name in MOVES], sort_keys=True)


class Run:
    """Batches are numbered from where the run began, ends of epochs among them."""

    def __init__(
        self, loader: Loader, parts: int, room: Callable[[], int], patience: float, idle: float
    ) -> None:
        """`room`: bytes that may be kept at this moment; `parts`: ranks that share each batch, or 0
        where a batch is for one."""
        self._loader, self._parts = loader, parts
        self._room, self._patience, self._idle = room, patience, idle
        self._changed = threading.Condition()
        self._kept: deque[Kept] = deque()
        self._bytes = 0
        """Of all that is kept."""
        self._made_bytes = 0
        self._first = 0
        """The number of the oldest that is kept."""
        self._place = key_of(loader.state_dict())
        """Where the run stands: before what it makes next."""
        self._numbers = {self._place: 0}
        self._readers: dict[str, _Reader] = {}
        self._asked = time.monotonic()
        self._left_behind = 0
        self._error: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="silva-service-run", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # For readers.

    def number_of(self, key: str) -> int | None:
        """The number of what comes after this place; None where that is not kept."""
        with self._changed:
            return None if self._closed else self._numbers.get(key)

    @property
    def oldest(self) -> int:
        return self._first

    @property
    def made(self) -> int:
        """How many it has made."""
        return self._first + len(self._kept)

    def take(self, reader: str, number: int, limit: int, seconds: float) -> list[Kept] | None:
        """What comes from `number` on, up to the end of the epoch and about so many bytes; an empty
        list where nothing was made in time, None where it is no longer kept."""
        until = time.monotonic() + seconds
        with self._changed:
            me = self._readers.setdefault(reader, _Reader(number, 0.0))
            me.place, me.heard = number, time.monotonic()
            while number >= self.made and not self._closed and self._error is None:
                left = until - time.monotonic()
                if left <= 0:
                    break
                if me.waits_since is None:
                    me.waits_since = time.monotonic()
                self._changed.notify_all()
                self._changed.wait(left)
            me.waits_since = None
            self._asked = me.heard = time.monotonic()
            if number < self._first or (self._closed and number >= self.made):
                self._readers.pop(reader, None)
                return None
            if number >= self.made and self._error is not None:
                raise self._error
            found = self._from(number, limit)
            me.place = number + len(found)
            self._changed.notify_all()
            return found

    def _from(self, number: int, limit: int) -> list[Kept]:
        found, size = [], 0
        for at in range(number - self._first, len(self._kept)):
            kept = self._kept[at]
            found.append(kept)
            size += kept.nbytes // max(self._parts, 1)
            if size >= limit or not kept.parts:
                break
        return found

    def leave(self, reader: str) -> None:
        """Nothing is kept for this reader any more."""
        with self._changed:
            self._readers.pop(reader, None)
            self._changed.notify_all()

    # The thread that makes batches.

    def _work(self) -> None:
        try:
            while self._may_go_on():
                for batch in self._loader:
                    state = self._loader.state_dict()
                    if not self._put(self._encoded(batch), state) or not self._may_go_on():
                        return
                self._put((), self._loader.state_dict())
        except BaseException as error:  # noqa: BLE001  raised to those who ask for the next batch
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            self._loader.close()

    def _encoded(self, batch: dict[str, Any]) -> tuple[memoryview, ...] | None:
        if not isinstance(batch, dict):
            raise LoaderError("a service hands out batches: end the pipeline with batch(n)")
        if not self._parts:
            return (encode_batch(batch),)
        dealt = parts_of(batch, self._parts)
        return None if dealt is None else tuple(map(encode_batch, dealt))

    def _put(self, parts: tuple[memoryview, ...] | None, state: dict[str, Any]) -> bool:
        """Keeps what was made; whether the run goes on."""
        with self._changed:
            if self._closed:
                return False
            if parts is None:  # rows for some of the ranks only: nobody gets them
                return True
            moved = {name: state[name] for name in MOVES if name in state}
            size = _OWN + sum(part.nbytes for part in parts)
            self._kept.append(Kept(parts, moved, self._place, size, self._made_bytes))
            self._bytes += size
            self._made_bytes += size
            self._place = key_of(moved)
            self._numbers[self._place] = self.made
            self._changed.notify_all()
            return True

    def _may_go_on(self) -> bool:
        """Waits until something more is wanted, and makes room for it; False at the end."""
        with self._changed:
            while not self._closed:
                wait = self._to_wait()
                if wait is None:
                    return True
                self._changed.wait(wait)
            return False

    def _to_wait(self) -> float | None:
        """Seconds to wait before the next batch is made, unless something changes; None for now."""
        now = time.monotonic()
        for name in [n for n, r in self._readers.items() if now - r.heard > self._idle]:
            if self._readers[name].waits_since is None:
                del self._readers[name]
        if not self._readers:
            return self._idle
        places = [reader.place for reader in self._readers.values()]
        room = self._room()
        ahead = self._bytes_from(max(places))
        if ahead >= min(_AHEAD_BYTES, room // 2) or self.made - max(places) >= _AHEAD:
            return self._idle
        self._drop(room, before=min(places))
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
        """Of all that is kept from this number on."""
        at = number - self._first
        return self._made_bytes - self._kept[at].start if at < len(self._kept) else 0

    def _drop(self, room: int, before: int) -> None:
        """Lets the oldest go until there is room, but none from number `before` on."""
        while self._bytes >= room and self._kept and self._first < before:
            oldest = self._kept.popleft()
            self._bytes -= oldest.nbytes
            self._numbers.pop(oldest.key, None)
            self._first += 1

    # Looking, and the end.

    def is_idle(self, now: float) -> bool:
        with self._changed:
            waiting = any(r.waits_since is not None for r in self._readers.values())
            return self._closed or (not waiting and now - self._asked > self._idle)

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
        self._thread.join(_ENDING)
        if self._thread.is_alive():  # in a step that takes long
            self._loader.close()
            self._thread.join(_ENDING)
        self._kept.clear()
