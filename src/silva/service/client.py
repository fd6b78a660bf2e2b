"""A loader whose batches a service makes."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from silva.columns.serial.batch_codec import decode_batch
from silva.cost.machine import parse_bytes
from silva.errors import LoaderError, PlanError, ServiceError, SilvaError
from silva.lifetime import Thread, close_at_exit, join_all
from silva.options import ServiceArguments, ServiceOptions, check_known
from silva.service.connection import Connection
from silva.service.wire import BatchRequest, OpenRequest, StreamKey

if TYPE_CHECKING:
    from silva.feed.torch import TorchFeed

_POLL = 0.5
"""Seconds after which a waiting trainer checks for Ctrl-C: one that comes just before a wait does
not interrupt it."""
_RESPONSE_BYTES = 8 << 20
"""Bytes after which no further batch is added to a response."""


def connect(address: str, pipeline: str, **arguments: Unpack[ServiceArguments]) -> Served:
    """Reads a pipeline of a service by its name; `ServiceOptions` says what each argument is.

    >>> import silva as sv
    >>> numbers = sv.from_columns({"x": range(4)}).batch(2)
    >>> with sv.Service({"numbers": numbers}, workers=0) as service:
    ...     loader = sv.connect(service.address, "numbers", token=service.token)
    ...     [batch["x"].tolist() for batch in loader]
    [[0, 1], [2, 3]]
    """
    check_known("connect", arguments, ServiceOptions)
    return Served(address, pipeline, ServiceOptions(**arguments))


class Served:
    """Made by `pipeline.loader(service=address, …)` or `sv.connect(address, name, …)`. Each
    `for batch in loader` is one epoch; states are those of any other loader of the pipeline.
    """

    def __init__(self, address: str, pipeline: str, options: ServiceOptions) -> None:
        rank, world = options.rank or 0, options.world
        own = {"parts": world} if options.aligned else {"rank": rank, "world": world}
        self._stream = StreamKey(
            pipeline, seed=options.seed, eval=options.eval, steps=options.steps, **own
        )
        self._part = rank if options.aligned else 0
        self._exact, self._epochs = options.exact, options.epochs
        self._memory = parse_bytes(options.memory)
        self._address = address
        self._connect: Callable[[], Connection] = lambda: Connection(address, options)
        self._reader = uuid.uuid4().hex
        with _closing(self._connect()) as connection:
            opened = connection.open(OpenRequest(self._stream))
        self._state, self._length = opened.state, opened.length
        """The state after the last batch that the loop yielded."""
        self._local = opened.local
        """The name of the service's Unix socket, if it is on this machine."""
        self._fresh = True
        """Whether the next loop starts at that state, and not with the next epoch."""
        self._live: _Prefetcher | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._live is not None:
            raise LoaderError(
                "this loader is already being iterated: make a second loader, or finish or close "
                "the first loop"
            )
        loop = self._iterate()
        close_at_exit(loop)
        return loop

    def _iterate(self) -> Generator[dict[str, Any]]:
        if self._live is not None:
            raise LoaderError("this loader is already being iterated")
        if not self._fresh:
            self.set_epoch(self.epoch + 1)
        if self._epochs is not None and self.epoch >= self._epochs:
            raise LoaderError(f"all {self._epochs} epochs of this loader are done")
        self._fresh = False
        connection = self._connect()
        connection.local = self._local
        ahead = self._live = _Prefetcher(connection, self._request(), self._memory)
        close_at_exit(ahead)
        closer = weakref.finalize(self, ahead.close)
        closer.atexit = False
        try:
            ahead.start()  # only now: `close` must find it as soon as it sends a request
            for data, moved in ahead:
                if data is None:
                    self._state, self._fresh = self._state | moved, True
                    return
                batch = self._decode(data)
                self._state = self._state | moved
                yield batch
        finally:
            self._live = None
            closer()

    def _decode(self, data: Any) -> dict[str, Any]:
        try:
            return decode_batch(memoryview(data))
        except SilvaError:
            raise
        except Exception as error:
            raise ServiceError(
                f"the service at {self._address} sent a batch that cannot be decoded: "
                f"{error!r:.200}"
            ) from error

    def _request(self) -> BatchRequest:
        return BatchRequest(
            self._stream, self._reader, self._part, self._state, self._exact, _RESPONSE_BYTES
        )

    # State.

    def state_dict(self) -> dict[str, Any]:
        """The state after the last batch that the loop yielded; plain JSON."""
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`: the next loop yields the batches after it."""
        if self._live is not None:
            raise LoaderError("load_state_dict comes before the loop, not inside it")
        with _closing(self._connect()) as connection:
            opened = connection.open(OpenRequest(self._stream, state=dict(state)))
        self._state, self._local, self._fresh = opened.state, opened.local, True

    def set_epoch(self, epoch: int) -> None:
        """The next loop reads this epoch from its start."""
        if self._live is not None:
            raise LoaderError("set_epoch comes before the loop, not inside it")
        if epoch < 0:
            raise PlanError(f"epochs count from 0, not {epoch}")
        with _closing(self._connect()) as connection:
            opened = connection.open(OpenRequest(self._stream, epoch))
        self._state, self._local, self._fresh = opened.state, opened.local, True

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or that comes next."""
        return int(self._state["epoch"])

    def __len__(self) -> int:
        """Batches in an epoch, where that is known without running it."""
        if self._length is None:
            raise TypeError("the length of this loader is not known before it has run")
        return self._length

    def stats(self) -> dict[str, Any]:
        """The statistics of the service: see `Service.stats`."""
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
        """Closes the connection."""
        if self._live is not None:
            self._live.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class _Prefetcher:
    """A thread that requests the batches of one epoch before they are needed."""

    def __init__(self, connection: Connection, request: BatchRequest, room: int) -> None:
        self._connection, self._request, self._room = connection, request, room
        self._changed = threading.Condition()
        self._ready: deque[tuple[Any, dict[str, Any]]] = deque()
        self._bytes = 0
        self._error: BaseException | None = None
        self._closed = False
        self._thread = Thread(self._work, "served")

    def start(self) -> None:
        self._thread.start()

    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        while True:
            with self._changed:
                while not self._ready and self._error is None and not self._closed:
                    self._changed.wait(_POLL)
                if not self._ready:
                    raise self._error or LoaderError("this loader has been closed")
                data, moved = self._ready.popleft()
                if self._bytes >= self._room:  # the thread may be waiting
                    self._changed.notify_all()
                self._bytes -= 0 if data is None else data.nbytes
            yield data, moved
            if data is None:
                return

    def _work(self) -> None:
        try:
            while self._has_room():
                found = self._connection.next(self._request)
                with self._changed:
                    self._changed.notify_all()
                    for data, moved in found:
                        self._add(data, moved)
                        if data is None:
                            return
        except BaseException as error:  # noqa: BLE001  raised in the loop
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            self._connection.close()

    def _add(self, data: Any, moved: dict[str, Any]) -> None:
        before, self._request.state = self._request.state, self._request.state | moved
        if self._request.state == before:
            raise ServiceError("the service sent a batch without progress in its state")
        self._ready.append((data, moved))
        self._bytes += 0 if data is None else data.nbytes

    def _has_room(self) -> bool:
        """Waits for room; False once closed."""
        with self._changed:
            while self._bytes >= self._room and not self._closed:
                self._changed.wait()
            return not self._closed

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._connection.interrupt()
        join_all([self._thread])


class _closing:
    """A connection for one request."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> Connection:
        return self._connection

    def __exit__(self, *details: object) -> None:
        self._connection.close()
