"""A loader whose batches a service makes."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silva.columns.serial_batch import decode_batch
from silva.errors import LoaderError, PlanError
from silva.loader import check_reader
from silva.profile.machine import parse_bytes
from silva.service.connection import Connection
from silva.service.wire import Next, Open, Stream

if TYPE_CHECKING:
    from silva.feed.torch import TorchFeed

_MEMORY = 256 << 20
_DEADLINE = 600.0
_LOOK = 0.5
"""Seconds after which a trainer that waits looks for Ctrl-C: one that comes just before a wait
begins does not end it."""
_ANSWER = 8 << 20
"""Bytes of an answer after which no further batch is added to it."""


def connect(address: str, pipeline: str, **arguments: Any) -> Served:
    """Reads a pipeline of a service by its name; see `Served` for the arguments.

    >>> import silva as sv
    >>> numbers = sv.from_columns({"x": range(4)}).batch(2)
    >>> with sv.Service({"numbers": numbers}, workers=0) as service:
    ...     loader = sv.connect(service.address, "numbers", token=service.token)
    ...     [batch["x"].tolist() for batch in loader]
    [[0, 1], [2, 3]]
    """
    return Served(address, pipeline, **arguments)


class Served:
    """Made by `pipeline.loader(service=address, …)` or `sv.connect(address, name, …)`. Each
    `for batch in loader` is one epoch; states are those of any other loader of the pipeline.

    Each of `world` ranks gets its own shards; with `aligned=True`, its rows of one batch of the
    whole job, so that all have like lengths in every step. With `exact=False` the first epoch may
    begin in the middle of a run that other jobs share, which then costs nothing to join.
    """

    def __init__(
        self,
        address: str,
        pipeline: str,
        *,
        token: str | None = None,
        certificate: str | Path | None = None,
        rank: int = 0,
        world: int = 1,
        aligned: bool = False,
        exact: bool = True,
        seed: int | None = None,
        eval: bool = False,
        epochs: int | None = None,
        steps: int | None = None,
        memory: int | str = _MEMORY,
        deadline: float = _DEADLINE,
    ) -> None:
        check_reader(rank, world, epochs, steps, deadline)
        own = {"parts": world} if aligned else {"rank": rank, "world": world}
        self._stream = Stream(pipeline, seed=seed, eval=eval, steps=steps, **own)
        self._part = rank if aligned else 0
        self._exact, self._epochs = exact, epochs
        self._memory = parse_bytes(memory)
        self._connect: Callable[[], Connection] = lambda: Connection(
            address, token, certificate, deadline
        )
        self._reader = uuid.uuid4().hex
        with _closing(self._connect()) as connection:
            opened = connection.open(Open(self._stream))
        self._state, self._length = opened.state, opened.length
        """The state after the batch that was handed out last."""
        self._fresh = True
        """The next loop begins at that state; otherwise with the next epoch."""
        self._live: _Ahead | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._live is not None:
            raise LoaderError(
                "this loader is already being iterated; make a second loader, or finish (or close) "
                "the first loop"
            )
        return self._iterate()

    def _iterate(self) -> Iterator[dict[str, Any]]:
        if self._live is not None:
            raise LoaderError("this loader is already being iterated")
        if not self._fresh:
            self.set_epoch(self.epoch + 1)
        if self._epochs is not None and self.epoch >= self._epochs:
            raise LoaderError(f"all {self._epochs} epochs of this loader are done")
        self._fresh = False
        ahead = self._live = _Ahead(self._connect(), self._asked(), self._memory)
        closer = weakref.finalize(self, ahead.close)
        try:
            for data, moved in ahead:
                if data is None:
                    self._state, self._fresh = self._state | moved, True
                    return
                batch = decode_batch(memoryview(data))
                self._state = self._state | moved
                yield batch
        finally:
            self._live = None
            closer()

    def _asked(self) -> Next:
        return Next(self._stream, self._reader, self._part, self._state, self._exact, _ANSWER)

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands, after the batch that was handed out last; plain JSON."""
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`: the next loop hands out what came after it."""
        if self._live is not None:
            raise LoaderError("a loader cannot be moved while it is being iterated")
        with _closing(self._connect()) as connection:
            self._state = connection.open(Open(self._stream, state=dict(state))).state
        self._fresh = True

    def set_epoch(self, epoch: int) -> None:
        """The next loop reads this epoch from its start."""
        if self._live is not None:
            raise LoaderError("set_epoch comes before the loop, not inside it")
        if epoch < 0:
            raise PlanError(f"epochs count from 0, not {epoch}")
        with _closing(self._connect()) as connection:
            self._state = connection.open(Open(self._stream, epoch)).state
        self._fresh = True

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or comes next."""
        return int(self._state["epoch"])

    def __len__(self) -> int:
        """Batches in an epoch, where that is known without running it."""
        if self._length is None:
            raise TypeError("the length of this loader is not known before it has run")
        return self._length

    def stats(self) -> dict[str, Any]:
        """What the service says about its runs."""
        with _closing(self._connect()) as connection:
            return connection.stats()

    # Feeds.

    def to_torch(self, device: Any = None, pin_memory: bool = False) -> TorchFeed:
        """Batches as torch tensors, without a copy where possible."""
        from silva.feed.torch import torch_feed

        return torch_feed(self, device, pin_memory)

    def to_jax(self, device: Any = None) -> Iterator[dict[str, Any]]:
        """Batches as jax arrays."""
        from silva.feed.jax import jax_batches

        return jax_batches(self, device)

    def close(self) -> None:
        """Hangs up."""
        if self._live is not None:
            self._live.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class _Ahead:
    """Batches of one epoch, asked for before they are needed, by a thread."""

    def __init__(self, connection: Connection, asked: Next, room: int) -> None:
        self._connection, self._asked, self._room = connection, asked, room
        self._changed = threading.Condition()
        self._found: deque[tuple[Any, dict[str, Any]]] = deque()
        self._bytes = 0
        self._error: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="silva-served", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        while True:
            with self._changed:
                while not self._found and self._error is None and not self._closed:
                    self._changed.wait(_LOOK)
                if not self._found:
                    raise self._error or LoaderError("this loader has been closed")
                data, moved = self._found.popleft()
                self._bytes -= 0 if data is None else data.nbytes
                self._changed.notify_all()
            yield data, moved
            if data is None:
                return

    def _work(self) -> None:
        try:
            while self._has_room():
                for data, moved in self._connection.next(self._asked):
                    self._asked.state = self._asked.state | moved
                    with self._changed:
                        self._found.append((data, moved))
                        self._bytes += 0 if data is None else data.nbytes
                        self._changed.notify_all()
                    if data is None:
                        return
        except BaseException as error:  # noqa: BLE001  raised where batches are waited for
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            self._connection.close()

    def _has_room(self) -> bool:
        """Waits for it; False when nothing more is wanted."""
        with self._changed:
            while self._bytes >= self._room and not self._closed:
                self._changed.wait()
            return not self._closed

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._connection.close()


class _closing:
    """A connection for one question."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> Connection:
        return self._connection

    def __exit__(self, *details: object) -> None:
        self._connection.close()
