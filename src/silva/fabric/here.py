"""The devices of this machine, and how fast they multiply matrices."""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from silva.cost.machine import Machine
from silva.cost.memory_bandwidth import memory_seconds
from silva.errors import PlanError
from silva.fabric.topology import Device, Link, Topology

_SIDE = 512
"""Rows of the matrices that are multiplied: more than a CPU cache line, less than a second."""
_SECONDS = 0.1
"""How long products are timed, for each dtype."""
_MESSAGE = 1 << 24
"""Bytes of the copies that a link within a machine is estimated by."""
_COPIES = 4
"""Times that a message is read or written on its way: into and out of the memory between two
processes."""
_SWITCH = 1e-4
"""Seconds that the operating system takes to wake another process up. `measure` finds the true
one."""


def here(ranks: int | None = None) -> Topology:
    """The GPUs of this machine, or its cores as so many devices."""
    if ranks is not None and (not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1):
        raise PlanError(f"Topology.here(ranks=…) takes a whole number from 1 on, not {ranks!r}")
    host = socket.gethostname()
    torch = _torch()
    gpus = torch.cuda.device_count() if torch is not None and torch.cuda.is_available() else 0
    if gpus:
        devices = tuple(_gpu(torch, number, host) for number in range(min(gpus, ranks or gpus)))
    else:
        devices = _cores(torch, host, ranks)
    rate = _MESSAGE / (_COPIES * memory_seconds(_MESSAGE, _MESSAGE, within=0.0) or 1e-3)
    links = (Link(host, host, _SWITCH, rate),) if len(devices) > 1 else ()
    return Topology(
        devices, links, source="Topology.here(): FLOP/s measured, links estimated by copies"
    )


def local_device(ranks_here: int) -> Device:
    """The device of one of the ranks of this machine, measured while all of them call this."""
    host = socket.gethostname()
    torch = _torch()
    if torch is not None and torch.cuda.is_available():
        return _gpu(torch, torch.cuda.current_device(), host)
    machine = Machine.here()
    flops = _flops(torch, "cpu")
    return Device(f"{host}/{os.getpid()}", host, "", "cpu", machine.memory // ranks_here, flops)


@functools.cache
def flops_here() -> float:
    """FLOP/s of one core of this machine in float32."""
    return _flops(_torch(), "cpu")["float32"]


def _cores(torch: Any, host: str, ranks: int | None) -> tuple[Device, ...]:
    machine = Machine.here()
    count = ranks or machine.cpus
    share = min(1.0, machine.cpus / count)
    measured = {name: share * rate for name, rate in _flops(torch, "cpu").items()}
    memory = machine.memory // count
    return tuple(Device(f"cpu{i}", host, "", "cpu", memory, measured) for i in range(count))


def _gpu(torch: Any, number: int, host: str) -> Device:
    found = torch.cuda.get_device_properties(number)
    name = f"{host}/gpu{number}"
    flops = _flops(torch, f"cuda:{number}")
    return Device(name, host, "", str(found.name), int(found.total_memory), flops)


def _flops(torch: Any, device: str) -> dict[str, float]:
    """FLOP/s of one thread on the CPU, or of a GPU, by dtype."""
    if torch is None:
        a = np.ones((_SIDE, _SIDE), np.float32)
        return {"float32": _rate(lambda: a @ a)}
    threads = torch.get_num_threads()
    found = {}
    try:
        torch.set_num_threads(1)
        for dtype in (torch.float32, torch.bfloat16):
            b = torch.ones(_SIDE, _SIDE, dtype=dtype, device=device)

            def multiply(b: Any = b) -> None:
                b @ b
                if b.is_cuda:
                    torch.cuda.synchronize(b.device)

            found[str(dtype).removeprefix("torch.")] = _rate(multiply)
    finally:
        torch.set_num_threads(threads)
    return found


def _rate(multiply: Callable[[], object]) -> float:
    """FLOP/s of the fastest of the products made within a while."""
    multiply()
    best, until = float("inf"), time.perf_counter() + _SECONDS
    while time.perf_counter() < until:
        began = time.perf_counter()
        multiply()
        best = min(best, time.perf_counter() - began)
    return 2.0 * _SIDE**3 / best


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch
