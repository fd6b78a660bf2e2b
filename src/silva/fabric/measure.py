"""Measures the links between the ranks of a torch process group, all ranks busy.

Messages of five sizes are sent between each pair of ranks, and reduced and gathered by the whole
group. What a message takes is fitted by `latency + bytes / bandwidth` with weights 1 / seconds²:
the error of a measurement grows with its length, and two sizes alone give nonsense. In each round
of a round-robin tournament every rank talks to one other, so that links are measured as busy as a
job makes them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.fabric.here import local_device
from silva.fabric.topology import Collective, Device, Link, Topology

_SIZES = tuple(4**power for power in range(6, 11))
"""Bytes of the messages, 4 KiB to 1 MiB."""
_REPEATS = 7
"""Messages of each size, of which the median counts."""


def measure(group: Any = None) -> Topology:
    """The devices of the ranks, their links, and the collectives of the whole group."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise PlanError("Topology.measure needs torch: pip install 'silva[train]'") from None
    if not dist.is_initialized():
        raise PlanError(
            "Topology.measure(group) is called by all ranks of a torch process group: call "
            "torch.distributed.init_process_group first, or start the script with torchrun"
        )
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    place = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    hosts: list[Any] = [None] * ranks
    dist.all_gather_object(hosts, local_device(1).host, group=group)
    dist.barrier(group)
    own = local_device(hosts.count(hosts[rank]))
    devices: list[Device | None] = [None] * ranks
    dist.all_gather_object(devices, own, group=group)
    named = tuple(
        Device(f"rank{i}", d.host, d.site, d.kind, d.memory, d.flops)
        for i, d in enumerate(devices)
        if d is not None
    )

    def sync() -> None:
        if place == "cuda":
            torch.cuda.synchronize()

    def median(act: Callable[[Any], object], nbytes: int) -> float:
        data = torch.zeros(nbytes // 4, device=place)
        took = []
        for _ in range(_REPEATS):
            sync()
            began = time.perf_counter()
            act(data)
            sync()
            took.append(time.perf_counter() - began)
        return statistics.median(took[1:])

    def talk(data: Any, other: int) -> None:
        """There and back, which needs no common clock."""
        there = dist.get_global_rank(group, other) if group is not None else other
        if rank < other:
            dist.send(data, there, group=group)
            dist.recv(data, there, group=group)
        else:
            dist.recv(data, there, group=group)
            dist.send(data, there, group=group)

    found: dict[tuple[int, int], tuple[float, float]] = {}
    for partners in tournament(ranks):
        dist.barrier(group)
        other = partners[rank]
        if other is None:
            continue
        times = [median(partial(talk, other=other), size) / 2 for size in _SIZES]
        found[rank, other] = fit(_SIZES, times)
    everyone: list[Any] = [None] * ranks
    dist.all_gather_object(everyone, found, group=group)
    links = tuple(
        Link(f"rank{a}", f"rank{b}", latency, bandwidth)
        for one in everyone
        for (a, b), (latency, bandwidth) in one.items()
    )
    collectives = []
    for kind, act in _collectives(dist, group, ranks):
        dist.barrier(group)
        times = [median(act, size * ranks) for size in _SIZES]
        slowest: list[Any] = [None] * ranks
        dist.all_gather_object(slowest, times, group=group)
        worst = [max(by_rank) for by_rank in zip(*slowest, strict=True)]
        collectives.append(Collective(kind, ranks, *fit([s * ranks for s in _SIZES], worst)))
    source = f"measured on {ranks} ranks with {dist.get_backend(group)}"
    return Topology(named, links, (), tuple(collectives) if ranks > 1 else (), source)


def _collectives(
    dist: Any, group: Any, ranks: int
) -> Iterator[tuple[str, Callable[[Any], object]]]:
    yield "all_reduce", lambda data: dist.all_reduce(data, group=group)
    yield "broadcast", lambda data: dist.broadcast(data, group=group, group_src=0)
    yield (
        "all_gather",
        lambda data: dist.all_gather_into_tensor(
            data.new_empty(data.numel()), data[: data.numel() // ranks], group=group
        ),
    )
    yield (
        "reduce_scatter",
        lambda data: dist.reduce_scatter_tensor(
            data.new_empty(data.numel() // ranks), data, group=group
        ),
    )


def tournament(ranks: int) -> Iterator[list[int | None]]:
    """Rounds in which each rank meets one other, until all have met; None where one has to wait.

    >>> [[(i, j) for i, j in enumerate(one) if j is not None and i < j] for one in tournament(4)]
    [[(0, 3), (1, 2)], [(0, 2), (1, 3)], [(0, 1), (2, 3)]]
    """
    seats: list[int | None] = [*range(ranks), *([None] if ranks % 2 else [])]
    for _ in range(len(seats) - 1):
        partners: list[int | None] = [None] * ranks
        for a, b in zip(seats[: len(seats) // 2], seats[::-1], strict=False):
            if a is not None and b is not None:
                partners[a], partners[b] = b, a
        yield partners
        seats = [seats[0], seats[-1], *seats[1:-1]]


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Latency and bandwidth by least squares, each measurement weighted by 1 / seconds².

    >>> fit([1000, 10_000, 100_000], [0.002, 0.011, 0.101])
    (0.001, 1000000.0)
    """
    x, y = np.asarray(sizes, float), np.asarray(seconds, float)
    rows = np.stack([np.ones_like(x), x], axis=1) / y[:, None]
    (latency, slope), *_ = np.linalg.lstsq(rows, np.ones_like(y), rcond=None)
    if latency < 0:  # less than can be seen: the line goes through 0
        latency, slope = 0.0, (x / y).sum() / ((x / y) ** 2).sum()
    if slope <= 0:  # larger messages took no longer
        latency, slope = float(y.mean()), 1.0 / (x.max() / y.min())
    return round(float(latency), 9), round(float(1.0 / slope), 3)
