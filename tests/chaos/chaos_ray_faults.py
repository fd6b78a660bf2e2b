"""What is done to a Ray cluster, and to the connection with one."""

from __future__ import annotations

import signal
import time
from random import Random

import psutil
from chaos_child import wait_for
from chaos_faults import (
    Kind,
    exhaust_memory,
    fill_disk,
    full,
    interrupt,
    kill_all_workers,
    kill_child,
    kill_starting,
    kill_worker,
    out_of_memory,
    pause_all_workers,
    pause_worker,
    slow_worker,
    slowly,
)
from chaos_ray import ByClient, OnRay
from chaos_site import SETTLED, alive, signalled, stopped


def fill_disk_of_ray(site: OnRay, chance: Random) -> None:
    """The one that all nodes write their logs to, and what their stores cannot hold."""
    full(site, site.session)


def kill_raylet(site: OnRay, chance: Random) -> None:
    node = chance.choice(site.nodes)
    site.doomed += site.actors_on(node)
    signalled(site.raylet_of(node), signal.SIGKILL)
    site.go_on(20)
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
BOTH = (OnRay, ByClient)
KINDS = (
    Kind("a worker is killed", kill_worker, BOTH, 6),
    Kind("all workers are killed", kill_all_workers, (OnRay,), 3),
    Kind("a worker is paused", pause_worker, BOTH, 4),
    Kind("all workers are paused", pause_all_workers, (OnRay,), 1),
    Kind("a worker is slow", slow_worker, (OnRay,), 2),
    Kind("a step exhausts memory", exhaust_memory, BOTH, 3),
    Kind("a worker is killed for its memory", out_of_memory, (OnRay,), 3),
    Kind("the disk is full", fill_disk, (OnRay,), 3, needs_disk=True),
    Kind("the trainer is killed", kill_child, BOTH, 4),
    Kind("the trainer is killed as it starts", kill_starting, (OnRay,), 1),
    Kind("Ctrl-C at the trainer", interrupt, (OnRay,), 2),
    Kind("the disk of Ray is full", fill_disk_of_ray, (OnRay,), 2, needs_disk=True),
    Kind("a raylet is killed", kill_raylet, (OnRay,), 4),
    Kind("a node is killed", kill_node, BOTH, 4),
    Kind("a node and a worker are killed", kill_node_and_worker, (OnRay,), 2),
    Kind("a node is drained", drain_node, BOTH, 3),
    Kind("a node is paused", pause_node, (OnRay,), 2),
    Kind("a node is ten times as slow", slow_node, (OnRay,), 3),
    Kind("the head is paused", pause_head, (OnRay,), 2),
    Kind("the head is lost", lose_head, (OnRay,), 1),
    Kind("the connection is cut", cut_connection, (ByClient,), 6),
    Kind("the connection is lost", lose_connection, (ByClient,), 2),
)
