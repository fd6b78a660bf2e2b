"""What tasks use of a topology in the simulator: devices, directed links, capacities, memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

from silva.cost.simulate import Hold, Resource
from silva.fabric.topology import Device, Topology


class Routes:
    """Turns work on a topology into uses of resources, and lists the resources that were used.

    A device computes one thing at a time. A directed link carries one message at a time, first in,
    first out; a capacity that links share is divided among the messages that pass it. A memory
    holds bytes, and what does not fit waits: a simulation in which nothing else gives them back is
    a `PlanError` that names the device.

    >>> from silva.cost.simulate import Task, simulate
    >>> routes = Routes(Topology.preset("dgx-1v"))
    >>> tasks = [
    ...     Task("forward", [routes.compute("gpu0", 0.01)]),
    ...     Task("send", [routes.send("gpu0", "gpu1", 5e8)], after=["forward"]),
    ... ]
    >>> round(simulate(routes.resources, tasks).makespan, 4)
    0.02
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._used: dict[str, Resource] = {}
        self._capacities = {one.name: one for one in topology.capacities}

    @property
    def resources(self) -> list[Resource]:
        """The resources that were used so far, by name."""
        return [self._used[name] for name in sorted(self._used)]

    def compute(self, device: str, seconds: float) -> Mapping[str, float]:
        """Seconds of a device."""
        name = self.topology.device(device).name
        self._used.setdefault(name, Resource(name))
        return {name: seconds}

    def send(self, source: str, target: str, nbytes: float) -> Mapping[str, float]:
        """Bytes from one device to another; nothing between a device and itself."""
        if source == target:
            return {}
        link = self.topology.link(source, target)
        name = f"{source} → {target}"
        self._used.setdefault(name, Resource(name, rate=link.bandwidth, latency=link.latency))
        for shared in link.through:
            rate = self._capacities[shared].bandwidth
            self._used.setdefault(shared, Resource(shared, rate=rate, policy="fair"))
        return {name: nbytes, **dict.fromkeys(link.through, nbytes)}

    def hold(self, device: str, nbytes: float, until: str | None = None) -> Hold:
        """Bytes in the memory of a device, until a task ends."""
        found = self.topology.device(device)
        name = memory_of(found)
        self._used.setdefault(name, Resource(name, capacity=found.memory or math.inf))
        return Hold(name, nbytes, until)


def memory_of(device: Device) -> str:
    """The name of a device's memory in a simulation."""
    return f"memory of {device.name}"
