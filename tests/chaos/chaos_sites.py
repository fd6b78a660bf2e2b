"""Where trainers are disturbed: worker processes of one machine, and a Ray cluster of three nodes.

A site knows its workers, gives each trainer what it needs, and says what is left of one that ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from chaos_trainer import Broken, Trainer, Undisturbed, wait_for

DEADLINE = 15.0
"""Of every loader: seconds without a result after which it must give up."""
SETTLED = 90.0
"""Seconds that a site has to be as it was before a fault."""


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def signalled(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


class Site:
    """What all sites have: a folder of orders, a small disk for the cache, a trainer."""

    name = ""
    workers = 2
    loader: dict[str, Any]

    def __init__(self, folder: Path, expected: Undisturbed) -> None:
        self.folder, self._expected = folder, expected
        self.orders, self.disk = folder / "orders", folder / "disk"
        for made in (self.orders, self.disk):
            made.mkdir()
        os.environ["CHAOS_ORDERS"] = str(self.orders)  # for all that is started from here on
        self.has_disk = mounted(self.disk, "8m")
        self.trainer: Trainer | None = None
        self._streams = 0
        self.doomed: list[psutil.Process] = []
        """Processes that have no right to live any more."""

    def actors(self) -> list[psutil.Process]:
        """The processes that do the work, as far as they have started."""
        raise NotImplementedError

    def begin(self) -> Trainer:
        """A new stream, once all its workers are there."""
        self._streams += 1
        folder = self.folder / f"stream-{self._streams}"
        folder.mkdir()
        told = {"cache": str(self.disk / "rows"), "deadline": DEADLINE, "loader": self.loader}
        self.trainer = Trainer(folder, self._expected, told)
        self.settle()
        return self.trainer

    def settle(self) -> None:
        """Waits until the stream goes on, with all workers, and nothing is left of what was."""
        assert self.trainer is not None
        self.trainer.goes_on(20, SETTLED)
        self._wait(lambda: len(self.actors()) == self.workers, f"{self.workers} workers")
        self._wait(lambda: not any(map(alive, self.doomed)), "the end of what was doomed")
        self.doomed.clear()

    def _wait(self, holds: Any, what: str) -> None:
        trainer = self.trainer
        assert trainer is not None

        def looked() -> Any:
            trainer.check()
            if trainer.process.poll() is not None:
                trainer.again()
            return holds()

        wait_for(looked, SETTLED, what)

    def end(self) -> None:
        """Ends the stream; nothing may be left of it."""
        assert self.trainer is not None
        mine = psutil.Process(self.trainer.process.pid).children(recursive=True)
        self.trainer.finish(SETTLED)
        wait_for(lambda: not any(map(alive, mine)), SETTLED, "no process of the trainer's")
        wait_for(lambda: not self.actors(), SETTLED, "no worker without a trainer")
        if left := list(self.disk.rglob("*.tmp")):
            raise Broken(f"files that somebody began to write: {left}")
        shutil.rmtree(self.disk / "rows", ignore_errors=True)
        self.trainer = None

    def close(self) -> None:
        if self.trainer is not None:
            self.trainer.give_up()
        del os.environ["CHAOS_ORDERS"]
        if self.has_disk:
            subprocess.run(["umount", str(self.disk)], check=True)


class Local(Site):
    """Worker processes of the trainer's machine."""

    name = "processes"
    loader = {"backend": "processes", "workers": 2}  # noqa: RUF012  read only

    def actors(self) -> list[psutil.Process]:
        if self.trainer is None or self.trainer.process.poll() is not None:
            return []
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self.trainer.process.pid).children()
            return [p for p in children if alive(p) and "worker.py" in " ".join(p.cmdline())]
        return []


class OnRay(Site):
    """A head with the trainer's node, and two nodes more, all on this machine."""

    name = "ray"
    workers = 3

    def __init__(self, folder: Path, expected: Undisturbed) -> None:
        super().__init__(folder, expected)
        self.session = Path(tempfile.mkdtemp(prefix="cha"))  # sockets cannot have long names
        mounted(self.session, "64m")
        self.start()

    def start(self) -> None:
        from ray.cluster_utils import Cluster

        head = {
            "num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 << 20,
            "temp_dir": str(self.session), "ray_client_server_port": free_port(),
        }  # fmt: skip
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        os.environ["RAY_ADDRESS"] = self.cluster.address
        for _ in range(2):
            self.add_node()

    @property
    def loader(self) -> dict[str, Any]:  # type: ignore[override]
        return {"backend": "ray", "cluster": "auto", "workers": self.workers}

    @property
    def nodes(self) -> list[Any]:
        """Without the trainer's, in an order that does not change."""
        return sorted(self.cluster.worker_nodes, key=lambda node: node.node_id)

    def add_node(self) -> None:
        self.cluster.add_node(num_cpus=1, object_store_memory=100 << 20)

    def processes_of(self, node: Any) -> list[psutil.Process]:
        """All processes of a node, but for those that Ray forgets to end with it."""
        found: list[psutil.Process] = []
        for infos in node.all_processes.values():
            for info in infos:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process = psutil.Process(info.process.pid)
                    found += [process, *process.children(recursive=True)]
        return found

    def raylet_of(self, node: Any) -> psutil.Process:
        (info,) = node.all_processes["raylet"]
        return psutil.Process(info.process.pid)

    def actors_on(self, node: Any) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = self.raylet_of(node).children()
            return [p for p in children if alive(p) and _title(p).startswith("ray::Actor")]
        return []

    def actors(self) -> list[psutil.Process]:
        return [a for node in (self.cluster.head_node, *self.nodes) for a in self.actors_on(node)]

    def replace(self, node: Any) -> None:
        """Clears up after a node that is gone, and adds another."""
        self.cluster.remove_node(node, allow_graceful=False)
        self.add_node()

    def restart(self) -> None:
        """Another cluster in the place of one whose head is gone."""
        os.environ.pop("RAY_ADDRESS")
        self.cluster.shutdown()
        self.start()

    def end(self) -> None:
        super().end()
        table = self.cluster.global_state.actor_table
        wait_for(lambda: not any(_lives(a) for a in table(None).values()), SETTLED, "no actors")
        wait_for(lambda: not any(self.objects()), SETTLED, "no objects")

    def objects(self) -> list[int]:
        """Bytes in the store of each node, the head's first, that Ray may not use for others. (What
        an actor wrote and was ended before it could tell belongs to nobody, and gives way.)"""
        from ray._private.internal_api import node_stats

        nodes = (self.cluster.head_node, *self.nodes)
        stats = [node_stats(n.node_ip_address, n.node_manager_port, False) for n in nodes]
        return [found.store_stats.object_store_bytes_primary_copy for found in stats]

    def close(self) -> None:
        super().close()
        os.environ.pop("RAY_ADDRESS", None)
        self.cluster.shutdown()
        if self.has_disk:
            subprocess.run(["umount", "--lazy", str(self.session)], check=True)
        shutil.rmtree(self.session)


class ByClient(OnRay):
    """The same cluster, over a connection that can be cut: `ray://`."""

    name = "ray client"
    workers = 2

    def __init__(self, folder: Path, expected: Undisturbed) -> None:
        super().__init__(folder, expected)
        self.relay = Relay(self.cluster.head_node._ray_params.ray_client_server_port)

    @property
    def loader(self) -> dict[str, Any]:  # type: ignore[override]
        return {**super().loader, "cluster": f"ray://127.0.0.1:{self.relay.port}"}

    def close(self) -> None:
        self.relay.close()
        super().close()


def mounted(folder: Path, size: str) -> bool:
    """Whether the folder is a small disk now."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _title(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def _lives(actor: dict[str, Any]) -> bool:
    return actor["State"] not in ("DEAD", 4)


class Relay:
    """A line between a trainer and its cluster that can be cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lines: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.broken = False
        """No new line is to be had."""
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.broken:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            self._lines |= {near, far}
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            self._lines.discard(end)

    def cut(self) -> None:
        for line in list(self._lines):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()


@contextlib.contextmanager
def stopped(processes: list[psutil.Process]) -> Iterator[None]:
    """The processes stand still for as long as this lasts."""
    try:
        for process in processes:
            signalled(process, signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            signalled(process, signal.SIGCONT)


class Slowed(threading.Thread):
    """Lets processes run a tenth of the time."""

    def __init__(self, processes: list[psutil.Process]) -> None:
        super().__init__(daemon=True)
        self._processes = processes
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            with stopped(self._processes):
                time.sleep(0.18)
            time.sleep(0.02)

    def end(self) -> None:
        self._over.set()
        self.join()
