"""Connects this process to a Ray cluster, and disconnects it when the last loader has closed.

A process has at most one connection to Ray, so its loaders share it, and silva counts them. silva
closes the connection only if it made it: one that the user made with `ray.init` stays open. A
thread of its own makes the connection and keeps it. A local Ray ends with the thread that started
it, so that must not be the thread that happens to read the first batch.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import ray

from silva.cost.machine import Machine
from silva.errors import LoaderError, WorkerError
from silva.lifetime import Thread, join_all
from silva.run.pools.threads import PAUSE

_START_SECONDS = 60.0
"""Seconds that Ray may take to start or to answer."""
_FAREWELL = 10.0
"""Seconds that leaving waits for a Ray that was started here to end."""


class _Connection:
    """A connection to Ray that silva made, with the number of its users."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.users = 0
        self.error: BaseException | None = None
        self.made = threading.Event()
        self._over = threading.Event()
        self._thread = Thread(self._hold, "cluster")
        self._thread.start()

    def _hold(self) -> None:
        folder = tempfile.mkdtemp(prefix="silva-ray-") if self.address == "local" else None
        try:
            _connect(self.address, folder)
        except BaseException as error:  # noqa: BLE001  raised where somebody waits for it
            self.error = error
        else:
            self.made.set()
            self._over.wait()
        with contextlib.suppress(Exception):  # Ray ends itself when Python does
            ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        self.made.set()

    def end(self) -> None:
        self._over.set()
        join_all([self._thread], _FAREWELL)


def _connect(address: str, folder: str | None) -> None:
    quiet: dict[str, Any] = {"logging_level": logging.ERROR}
    if address == "local":
        cpus = Machine.here().cpus
        ray.init(
            address=address,
            num_cpus=cpus,
            include_dashboard=False,
            _temp_dir=folder,
            **quiet,
        )
        return
    try:
        ray.init(address=address, **quiet)
    except ConnectionError as error:
        raise WorkerError(
            f"no Ray cluster answers at {address!r} ({error}); start one with `ray start --head`, "
            "or use cluster='local'"
        ) from error


_lock = threading.Lock()
_connection: _Connection | None = None
"""The connection in use that silva made; a process has one connection to Ray."""


class Cluster:
    """A Ray cluster that a loader may use.

    `address` is 'local', 'auto' or 'ray://…'; silva uses at most `cpus` of its
    CPUs, or without `cpus` all that are free.
    """

    def __init__(self, address: str, cpus: int | None = None) -> None:
        self.address = address
        self.cpus = cpus
        self._held: _Connection | None = None
        self._owner = os.getpid()

    def join(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Connects this process to Ray; stops waiting once `given_up()` is true."""
        global _connection
        with _lock:
            if given_up():
                return
            if _connection is None and ray.is_initialized():
                self._check_client()
                return  # the user's own
            if _connection is None:
                _connection = _Connection(self.address)
            if _connection.address != self.address:
                raise LoaderError(
                    f"this process is connected to Ray at {_connection.address!r} for another "
                    f"loader, and cannot be at {self.address!r} as well: close that one first"
                )
            if self._held is None:
                _connection.users += 1
            self._held = _connection
        until = time.monotonic() + _START_SECONDS
        while not self._held.made.wait(PAUSE):
            if given_up():
                return
            if time.monotonic() > until:
                raise WorkerError(f"no Ray at {self.address!r} for {_START_SECONDS:.0f} s")
        if self._held.error is not None:
            raise self._held.error

    def _check_client(self) -> None:
        if self.address.startswith("ray://") and not ray.util.client.ray.is_connected():
            raise LoaderError(
                f"this process is connected to another Ray than {self.address!r}: end that with "
                "ray.shutdown(), or use cluster='auto'"
            )

    def leave(self) -> None:
        """Ends the connection if silva made it and no other loader uses it."""
        global _connection
        with _lock:  # until it is gone: nobody may take it for the user's own
            held, self._held = self._held, None
            if held is None or os.getpid() != self._owner:
                return
            held.users -= 1
            if not held.users:
                _connection = None
                held.end()

    @property
    def connected(self) -> bool:
        return bool(ray.is_initialized())

    @property
    def is_remote(self) -> bool:
        """Whether this process is a Ray client, which does not share memory with the object
        store."""
        return bool(ray.util.client.ray.is_connected())

    @functools.cached_property
    def width(self) -> int:
        """The number of actors to use, of one CPU each: `cpus` if given, since the cluster may
        grow; otherwise the CPUs that were free when this was first asked."""
        if self.cpus is not None:
            return self.cpus
        self.join()
        return max(1, int(ray.available_resources().get("CPU", 0)))

    @property
    def node(self) -> str | None:
        """The node of this process; None for a client."""
        return None if self.is_remote else ray.get_runtime_context().get_node_id()

    def lease_bytes(self) -> int:
        """Bytes of the object store that batches may keep in use: a quarter of this node's
        store."""
        sizes = [node["Resources"] for node in ray.nodes() if node["NodeID"] == self.node]
        return int(sum(size.get("object_store_memory", 0) for size in sizes)) // 4

    def describe(self) -> str:
        """The CPUs of the cluster, for error messages."""
        try:
            whole, free = ray.cluster_resources(), ray.available_resources()
        except Exception as error:  # noqa: BLE001  it is for a message about another error
            return f"the cluster does not answer: {error}"
        return f"the cluster has {whole.get('CPU', 0):g} CPUs, {free.get('CPU', 0):g} of them free"
