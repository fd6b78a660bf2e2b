"""Devices and directed links as data: immutable, compared by value, readable without torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silva.errors import PlanError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Device:
    """Something that computes, with a memory of its own: a GPU, or the cores of one process."""

    name: str
    host: str
    """The machine that it is in."""
    site: str = ""
    """Where the machine stands: a data centre, or a region."""
    kind: str = "cpu"
    """`cpu`, or the name of a GPU."""
    memory: int | None = None
    """Bytes; None where that is not known."""
    flops: Mapping[str, float] = field(default_factory=dict)
    """Floating-point operations per second by dtype, for matrix products."""

    def __hash__(self) -> int:
        return hash((self.name, self.host, self.site, self.kind, self.memory))


@dataclass(frozen=True)
class Capacity:
    """Bytes per second that several links share: a network card, an uplink."""

    name: str
    bandwidth: float


@dataclass(frozen=True)
class Link:
    """The way from one end to another, in one direction.

    An end is a device, a host or a site. A link between hosts or sites stands for the pairs of
    devices in them that have no closer one: first device to device is looked for, then host to
    host, then site to site. A host or a site may be linked to itself: that is the link between two
    devices in it.
    """

    source: str
    target: str
    latency: float
    """Seconds before the first byte arrives."""
    bandwidth: float
    """Bytes per second."""
    through: tuple[str, ...] = ()
    """The shared capacities that it passes."""

    def seconds(self, nbytes: float) -> float:
        """Seconds to send so many bytes, if nobody else is on the way.

        >>> Link("a", "b", latency=0.001, bandwidth=1e9).seconds(1e6)
        0.002
        """
        return self.latency + nbytes / self.bandwidth


@dataclass(frozen=True)
class Collective:
    """What a collective operation takes on a group of devices: `latency` + bytes / `bandwidth`."""

    kind: str
    """`all_reduce`, `all_gather`, `reduce_scatter` or `broadcast`."""
    ranks: int
    latency: float
    bandwidth: float
    """Bytes of the whole tensor per second."""


@dataclass(frozen=True)
class Topology:
    """Devices, the links between them, and the capacities that these share.

    >>> from silva.fabric.topology import Device, Link, Topology
    >>> devices = Device("a", "here"), Device("b", "here")
    >>> two = Topology(devices, (Link("here", "here", 1e-4, 1e9),))
    >>> two.link("a", "b").seconds(1e6)
    0.0011
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    capacities: tuple[Capacity, ...] = ()
    collectives: tuple[Collective, ...] = ()
    """What was measured of whole groups; without it, the simulator sends over the links."""
    source: str = ""
    """Where the numbers come from."""

    def __post_init__(self) -> None:
        _check(self)

    def __len__(self) -> int:
        return len(self.devices)

    def __repr__(self) -> str:
        hosts = len({device.host for device in self.devices})
        named = f", {self.source}" if self.source else ""
        return f"Topology({len(self.devices)} devices on {hosts} hosts{named})"

    def __str__(self) -> str:
        return self.explain()

    def device(self, name: str) -> Device:
        """The device of a name."""
        found = self._by_name.get(name)
        if found is None:
            raise PlanError(f"there is no device {name!r}; there are {_some(self._by_name)}")
        return found

    def link(self, source: str, target: str) -> Link:
        """The link from one device to another.

        Raises a `PlanError` if there is none.
        """
        ends = self._ends(source), self._ends(target)
        for pair in zip(*ends, strict=True):
            found = self._links.get(pair)
            if found is not None:
                return found
        raise PlanError(
            f"no link goes from {source!r} to {target!r}: add one between these devices, "
            f"their hosts {ends[0][1]!r} and {ends[1][1]!r}, or their sites"
        )

    def take(self, devices: Iterable[str]) -> Topology:
        """The same links between some of the devices, in the order given."""
        return replace(self, devices=tuple(self.device(name) for name in devices))

    def explain(self) -> str:
        """The devices, and the latency and bandwidth of each pair, as text."""
        from silva.fabric.show import explain

        return explain(self)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draws the bandwidth and the latency of each pair as heat maps; `path` is a PNG, SVG or
        PDF to write. Needs matplotlib."""
        from silva.fabric.show import plot

        return plot(self, path)

    def save(self, path: str | Path) -> Path:
        """Writes it as YAML, or as JSON where the name ends in `.json`."""
        from silva.fabric.files import save

        return save(self, path)

    @staticmethod
    def load(path: str | Path) -> Topology:
        """Reads a topology from a YAML or JSON file.

        A `PlanError` names the file and the line of what is wrong.
        """
        from silva.fabric.files import load

        return load(path)

    @staticmethod
    def preset(name: str) -> Topology:
        """A topology that comes with silva.

        >>> Topology.preset("dgx-1v").link("gpu0", "gpu1").bandwidth
        50000000000.0
        """
        from silva.fabric.files import preset

        return preset(name)

    @staticmethod
    def here(ranks: int | None = None) -> Topology:
        """This machine: its GPUs, or its cores as `ranks` devices (one for each core by default).

        FLOP/s and the copy of memory between processes are measured, which takes about a second.
        `measure` says what messages between processes really take.
        """
        from silva.fabric.here import here

        return here(ranks)

    @staticmethod
    def measure(group: Any = None) -> Topology:
        """The devices of the ranks of a torch process group, and the links between them, measured.

        Every rank calls it and gets the same topology. Needs torch.
        """
        from silva.fabric.measure import measure

        return measure(group)

    def _ends(self, name: str) -> tuple[str, str, str]:
        device = self.device(name)
        return device.name, device.host, device.site

    @functools.cached_property
    def _by_name(self) -> dict[str, Device]:
        return {device.name: device for device in self.devices}

    @functools.cached_property
    def _links(self) -> dict[tuple[str, str], Link]:
        return {(link.source, link.target): link for link in self.links}


def _check(topology: Topology) -> None:
    """Raises a `PlanError` for what does not fit together."""
    if not topology.devices:
        raise PlanError("a topology has at least one device")
    _check_names("device", [device.name for device in topology.devices])
    _check_names("capacity", [capacity.name for capacity in topology.capacities])
    _check_names("link", [f"{link.source} to {link.target}" for link in topology.links])
    for device in topology.devices:
        _check_amounts(f"device {device.name!r}", {"memory": device.memory}, above=0)
        _check_amounts(f"device {device.name!r}, flops", device.flops, above=0)
    for capacity in topology.capacities:
        _check_amounts(f"capacity {capacity.name!r}", {"bandwidth": capacity.bandwidth}, above=0)
    named = {capacity.name for capacity in topology.capacities}
    for what, link in _measured(topology):
        _check_amounts(what, {"bandwidth": link.bandwidth}, above=0)
        _check_amounts(what, {"latency": link.latency})
    for link in topology.links:
        for name in link.through:
            if name not in named:
                raise PlanError(
                    f"link {link.source!r} to {link.target!r} goes through {name!r}, which is not "
                    f"among the capacities: {_some(named)}"
                )


def _measured(topology: Topology) -> Iterator[tuple[str, Link | Collective]]:
    for link in topology.links:
        yield f"link {link.source!r} to {link.target!r}", link
    for one in topology.collectives:
        yield f"{one.kind} of {one.ranks} ranks", one


def _check_names(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name:
            raise PlanError(f"a {what} needs a name, not {name!r}")
        if name in seen:
            raise PlanError(f"there are two of {what} {name!r}")
        seen.add(name)


def _check_amounts(
    what: str, amounts: Mapping[str, float | None], above: float | None = None
) -> None:
    for name, amount in amounts.items():
        if amount is None:
            continue
        number = isinstance(amount, int | float) and not isinstance(amount, bool)
        low = number and (amount <= above if above is not None else amount < 0)
        if not number or low or not math.isfinite(amount):
            least = "a finite number above 0" if above is not None else "a finite number from 0 on"
            raise PlanError(f"{what}: {name} is {amount!r}, and must be {least}")


def _some(names: Iterable[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    return ", ".join(shown[:8]) + more if shown else "none"
