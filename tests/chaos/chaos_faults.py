"""The faults: what is done to a site at a random moment. Each is over when its function returns."""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil
from chaos_sites import SETTLED, ByClient, Local, OnRay, Site, Slowed, alive, signalled, stopped
from chaos_trainer import wait_for

Fault = Callable[[Any, Random], None]


@dataclass(frozen=True)
class Kind:
    name: str
    do: Fault
    sites: tuple[type[Site], ...]
    """Those that it makes sense for."""
    weight: int
    needs_disk: bool = False


def kill_worker(site: Site, chance: Random) -> None:
    victim = chance.choice(site.actors())
    signalled(victim, signal.SIGKILL)
    site.doomed.append(victim)


def kill_all_workers(site: Site, chance: Random) -> None:
    for victim in site.actors():
        signalled(victim, signal.SIGKILL)
        site.doomed.append(victim)


def pause_worker(site: Site, chance: Random) -> None:
    """Until the stream has gone on for a while without it."""
    assert site.trainer is not None
    with stopped([chance.choice(site.actors())]):
        site.trainer.goes_on(40, SETTLED)


def pause_all_workers(site: Site, chance: Random) -> None:
    """Until the stream has gone on for a while without them, after an error or not."""
    assert site.trainer is not None
    with stopped(site.actors()):
        site.trainer.goes_on(40, SETTLED)


def slow_worker(site: Site, chance: Random) -> None:
    slowly(site, [chance.choice(site.actors())])


def slowly(site: Site, processes: list[psutil.Process]) -> None:
    assert site.trainer is not None
    slowed = Slowed(processes)
    slowed.start()
    try:
        site.trainer.goes_on(40, SETTLED)
    finally:
        slowed.end()


def exhaust_memory(site: Site, chance: Random) -> None:
    obeyed(site, "exhaust")


def out_of_memory(site: Site, chance: Random) -> None:
    obeyed(site, "killed")


def obeyed(site: Site, order: str) -> None:
    """Leaves an order; some row takes it."""
    (site.orders / order).touch()
    wait_for(lambda: not (site.orders / order).exists(), SETTLED, f"a row that is {order}")


def fill_disk(site: Site, chance: Random) -> None:
    full(site, site.disk)


def fill_disk_of_ray(site: OnRay, chance: Random) -> None:
    """The one that all nodes write their logs to, and what their stores cannot hold."""
    full(site, site.session)


def full(site: Site, disk: Path) -> None:
    """Until the stream has gone on for a while without it."""
    assert site.trainer is not None
    ballast = disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        site.trainer.goes_on(40, SETTLED)
    finally:
        ballast.unlink()


def kill_trainer(site: Site, chance: Random) -> None:
    assert site.trainer is not None
    site.doomed += [*site.actors(), *site.trainer.kill()]
    site.trainer.again()


def kill_starting_trainer(site: Site, chance: Random) -> None:
    """Once more before it has all that it needs."""
    assert site.trainer is not None
    kill_trainer(site, chance)
    time.sleep(chance.uniform(0.5, 4))
    kill_trainer(site, chance)


def kill_raylet(site: OnRay, chance: Random) -> None:
    node = chance.choice(site.nodes)
    site.doomed += site.actors_on(node)
    signalled(site.raylet_of(node), signal.SIGKILL)
    assert site.trainer is not None
    site.trainer.goes_on(20, SETTLED)
    site.replace(node)


def kill_node(site: OnRay, chance: Random) -> None:
    node = chance.choice(site.nodes)
    site.doomed += site.actors_on(node)
    for process in site.processes_of(node):
        signalled(process, signal.SIGKILL)
    site.replace(node)


def kill_node_and_worker(site: OnRay, chance: Random) -> None:
    kill_worker(site, chance)
    kill_node(site, chance)


def drain_node(site: OnRay, chance: Random) -> None:
    """Ray is told that a node will end; it does once nobody works there."""
    node = chance.choice(site.nodes)
    before = site.actors_on(node)
    drain(site.cluster.address, node.node_id)
    site.add_node()
    wait_for(lambda: not any(map(alive, before)), SETTLED, "actors leave a node that is drained")
    site.cluster.remove_node(node)


def drain(address: str, node: str, seconds: float = 60.0) -> None:
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2

    until = int((time.time() + seconds) * 1000)
    reason = autoscaler_pb2.DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION
    accepted, why = GcsClient(address=address).drain_node(node, reason, "chaos", until)
    assert accepted, why


def pause_node(site: OnRay, chance: Random) -> None:
    with stopped(site.processes_of(chance.choice(site.nodes))):
        time.sleep(chance.uniform(0.5, 3))


def slow_node(site: OnRay, chance: Random) -> None:
    slowly(site, site.processes_of(chance.choice(site.nodes)))


def pause_head(site: OnRay, chance: Random) -> None:
    """The server that knows of all nodes and actors does not answer for a while."""
    (info,) = site.cluster.head_node.all_processes["gcs_server"]
    with stopped([psutil.Process(info.process.pid)]):
        time.sleep(chance.uniform(0.5, 3))


def lose_head(site: OnRay, chance: Random) -> None:
    """With it the cluster is gone; Ray ends the trainer, which goes on at another cluster."""
    assert site.trainer is not None
    site.doomed += site.actors()
    signalled(site.raylet_of(site.cluster.head_node), signal.SIGKILL)
    trainer = site.trainer
    wait_for(lambda: trainer.process.poll() is not None, SETTLED, "the trainer ends")
    site.restart()


def cut_connection(site: ByClient, chance: Random) -> None:
    """For a moment: Ray connects again."""
    site.relay.cut()


def lose_connection(site: ByClient, chance: Random) -> None:
    """For longer than Ray tries."""
    assert site.trainer is not None
    errors = len(site.trainer.errors)
    site.relay.broken = True
    site.relay.cut()
    trainer = site.trainer
    try:
        wait_for(
            lambda: len(trainer.errors) > errors or trainer.process.poll() is not None,
            SETTLED,
            "an error of the trainer's",
        )
    finally:
        site.relay.broken = False


# Over a client, only what may differ there: to start again takes half a minute.
ALL = (Local, OnRay, ByClient)
BOTH = (Local, OnRay)
RAY = (OnRay, ByClient)
KINDS = (
    Kind("a worker is killed", kill_worker, ALL, 6),
    Kind("all workers are killed", kill_all_workers, BOTH, 3),
    Kind("a worker is paused", pause_worker, ALL, 4),
    Kind("all workers are paused", pause_all_workers, BOTH, 1),
    Kind("a worker is slow", slow_worker, BOTH, 2),
    Kind("a step exhausts memory", exhaust_memory, ALL, 3),
    Kind("a worker is killed for its memory", out_of_memory, BOTH, 3),
    Kind("the disk is full", fill_disk, BOTH, 3, needs_disk=True),
    Kind("the trainer is killed", kill_trainer, ALL, 4),
    Kind("the trainer is killed as it starts", kill_starting_trainer, BOTH, 1),
    Kind("the disk of Ray is full", fill_disk_of_ray, (OnRay,), 2, needs_disk=True),
    Kind("a raylet is killed", kill_raylet, (OnRay,), 4),
    Kind("a node is killed", kill_node, RAY, 4),
    Kind("a node and a worker are killed", kill_node_and_worker, (OnRay,), 2),
    Kind("a node is drained", drain_node, RAY, 3),
    Kind("a node is paused", pause_node, (OnRay,), 2),
    Kind("a node is ten times as slow", slow_node, (OnRay,), 3),
    Kind("the head is paused", pause_head, (OnRay,), 2),
    Kind("the head is lost", lose_head, (OnRay,), 1),
    Kind("the connection is cut", cut_connection, (ByClient,), 6),
    Kind("the connection is lost", lose_connection, (ByClient,), 2),
)
