"""A Ray cluster of three nodes, all on this machine, and what can be done to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psutil
from chaos_child import Child, wait_for
from chaos_relay import Relay
from chaos_site import SETTLED, alive, free_port, mounted
from chaos_streams import Streaming
from chaos_trainer import Undisturbed


class OnRay(Streaming):
    """A head with the trainer's node, and two nodes more, all on this machine."""

    name = "ray"
    workers = 3
    has_scratch = False  # sockets cannot have long names

    def __init__(self, folder: Path, expected: Undisturbed) -> None:
        super().__init__(folder, expected)
        self.session = Path(tempfile.mkdtemp(prefix="cha"))
        mounted(self.session, "64m")
        os.environ["RAY_TMPDIR"] = str(self.session)  # Ray notes there which cluster is the current
        (self.session / "ray").mkdir()
        self.start_cluster()

    def start_cluster(self) -> None:
        from ray.cluster_utils import Cluster

        head = {
            "num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 << 20,
            "temp_dir": str(self.session), "ray_client_server_port": free_port(),
        }  # fmt: skip
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        os.environ["RAY_ADDRESS"] = self.cluster.address
        for _ in range(2):
            self.add_node()

    def start(self, folder: Path) -> None:
        super().start(folder)
        self.trainer.any_end = True  # Ray ends processes that it cannot do anything for

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

    def belongings(self, child: Child) -> list[psutil.Process]:
        return [*self.actors(), *super().belongings(child)]

    def replace(self, node: Any) -> None:
        """Clears up after a node that is gone, and adds another."""
        self.cluster.remove_node(node, allow_graceful=False)
        self.add_node()

    def restart(self) -> None:
        """Another cluster in the place of one whose head is gone."""
        os.environ.pop("RAY_ADDRESS")
        self.cluster.shutdown()
        self.start_cluster()

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
        for name in ("RAY_ADDRESS", "RAY_TMPDIR"):
            os.environ.pop(name, None)
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


def _title(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def _lives(actor: dict[str, Any]) -> bool:
    return actor["State"] not in ("DEAD", 4)
