"""A topology as text and as a picture: its devices, and the latency and bandwidth of each pair."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from silva.errors import PlanError
from silva.fabric.topology import Device, Link, Topology
from silva.facts.formatting import plural, seconds
from silva.plan.arguments import path_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 16
"""Rows of a table: more devices are shown by host, and more hosts by site."""
_INCHES = 0.45
"""Width of a cell of a heat map."""


@dataclass(frozen=True)
class Pairs:
    """The links between devices, or between groups of them."""

    level: str
    names: tuple[str, ...]
    links: tuple[tuple[tuple[Link, ...], ...], ...]
    """By source and target: the different links between their devices; none where no link goes."""


def pairs(topology: Topology) -> Pairs:
    """The links between all pairs of devices, hosts or sites, as fit into a table."""
    groups: dict[str, list[Device]] = {}
    for level in ("device", "host", "site"):
        key: Callable[[Device], str] = {
            "device": lambda device: device.name,
            "host": lambda device: device.host,
            "site": lambda device: device.site,
        }[level]
        groups = {}
        for device in topology.devices:
            groups.setdefault(key(device), []).append(device)
        if len(groups) <= _MOST:
            break
    links = tuple(tuple(_between(topology, groups[a], groups[b]) for b in groups) for a in groups)
    return Pairs(level, tuple(name or "-" for name in groups), links)


def _between(
    topology: Topology, sources: Sequence[Device], targets: Sequence[Device]
) -> tuple[Link, ...]:
    """The different links from some devices to others, of one device of each host at most twice."""
    found: dict[Link, None] = {}
    for a in _samples(sources):
        for b in _samples(targets):
            if a.name != b.name:
                try:
                    found[topology.link(a.name, b.name)] = None
                except PlanError:
                    continue
    return tuple(found)


def _samples(devices: Sequence[Device]) -> list[Device]:
    """Two devices of each of at most `_MOST` hosts: others have the same links between hosts."""
    seen: dict[str, list[Device]] = {}
    for device in devices:
        if len(seen) < _MOST or device.host in seen:
            seen.setdefault(device.host, []).append(device)
    return [device for some in seen.values() for device in some[:_MOST]]


def bandwidth(bytes_per_second: float) -> str:
    """Bytes per second with their unit.

    >>> bandwidth(1.4e8), bandwidth(5e10)
    ('140 MB/s', '50 GB/s')
    """
    for factor, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bytes_per_second >= factor:
            return f"{bytes_per_second / factor:.3g} {unit}"
    return f"{bytes_per_second:.3g} B/s"


def explain(topology: Topology) -> str:
    """The devices, and tables of the links between them."""
    lines = [f"Topology: {plural(len(topology), 'device')}"]
    if topology.source:
        lines.append(f"  from: {topology.source}")
    kinds: dict[tuple[str, int | None, tuple[tuple[str, float], ...]], int] = {}
    for device in topology.devices:
        kind = device.kind, device.memory, tuple(device.flops.items())
        kinds[kind] = kinds.get(kind, 0) + 1
    for (name, memory, flops), count in kinds.items():
        held = f", {memory / 1e9:.3g} GB" if memory else ""
        fast = "".join(f", {rate / 1e12:.3g} TFLOP/s in {dtype}" for dtype, rate in flops)
        lines.append(f"  {count} × {name}{held}{fast}")
    found = pairs(topology)
    for title, show in (
        ("Bandwidth", lambda link: (link.bandwidth, bandwidth(link.bandwidth))),
        ("Latency", lambda link: (link.latency, seconds(link.latency))),
    ):
        lines += ["", f"{title} from each {found.level} (row) to each other (column)"]
        lines += _table(found, show)
    for capacity in topology.capacities:
        shared = sum(capacity.name in link.through for link in topology.links)
        lines.append(
            f"  {capacity.name}: {bandwidth(capacity.bandwidth)} for {plural(shared, 'link')}"
        )
    for one in topology.collectives:
        lines.append(
            f"  {one.kind} of {plural(one.ranks, 'rank')}: {seconds(one.latency)}, "
            f"then {bandwidth(one.bandwidth)}"
        )
    return "\n".join(lines)


def _table(found: Pairs, show: Callable[[Link], tuple[float, str]]) -> list[str]:
    cells = [["", *found.names]]
    for name, row in zip(found.names, found.links, strict=True):
        cells.append([name, *(_cell(links, show) for links in row)])
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [
        "  " + "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]  # fmt: skip


def _cell(links: tuple[Link, ...], show: Callable[[Link], tuple[float, str]]) -> str:
    shown = dict(sorted(show(link) for link in links))
    return " – ".join(dict.fromkeys([*shown.values()][:: max(len(shown) - 1, 1)])) or "·"


def plot(topology: Topology, path: str | Path | None) -> Figure:
    """Heat maps of bandwidth and latency."""
    try:
        from matplotlib.colors import LogNorm
        from matplotlib.figure import Figure
    except ImportError:
        raise PlanError("plot needs matplotlib: pip install matplotlib") from None
    found = pairs(topology)
    size = max(3.0, _INCHES * len(found.names) + 1.5)
    figure = Figure(figsize=(2 * size + 1.5, size + 0.6), layout="constrained")
    for axes, (title, unit, value) in zip(
        figure.subplots(1, 2),
        (
            ("Bandwidth", "GB/s", lambda link: link.bandwidth / 1e9),
            ("Latency", "ms", lambda link: link.latency * 1e3),
        ),
        strict=True,
    ):
        values = [
            [statistics.median(map(value, links)) if links else float("nan") for links in row]
            for row in found.links
        ]
        known = [one for row in values for one in row if one > 0]
        norm = LogNorm(min(known), max(known)) if known and min(known) < max(known) else None
        image = axes.imshow(values, norm=norm, cmap="viridis" if unit == "GB/s" else "magma_r")
        axes.set_title(f"{title} from row to column, {unit}")
        axes.set_xticks(range(len(found.names)), found.names, rotation=60, ha="right")
        axes.set_yticks(range(len(found.names)), found.names)
        figure.colorbar(image, ax=axes, shrink=0.8)
    if path is not None:
        figure.savefig(path_of("plot(…)", path), dpi=150)
    return figure
