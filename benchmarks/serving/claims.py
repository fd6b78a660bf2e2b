"""The claims, one function each: what is wanted, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.claims import Finding
from benchmarks.serving.client import Load, closed_loop, open_loop
from benchmarks.serving.servers import Process, served

_LIMIT_MS = 0.5
_RAY_SHARE = 20
_SLO = 5.0
"""The objective for the slowest, in median service times of a lone request."""
_LOAD = 0.8
"""Arrivals, of the capacity that was measured in the same run."""
_CONNECTIONS = 200


@dataclass(frozen=True)
class Sizes:
    rounds: int
    requests: int
    """Of one measurement."""


FULL = Sizes(rounds=5, requests=8000)
QUICK = Sizes(rounds=1, requests=800)


def _loaded(server: Process, clients: int, requests: int) -> tuple[Load, float]:
    """What clients see once the server is warm, and its CPU microseconds per request."""
    closed_loop(server.port, clients, max(requests // 10, clients))
    before = server.cpu()
    load = closed_loop(server.port, clients, requests)
    return load, 1e6 * (server.cpu() - before) / len(load.latencies)


def _in_turns(
    sizes: Sizes, names: tuple[str, ...], clients: int, figure: Callable[[Load, float], float]
) -> tuple[float, ...]:
    """The median figure of each server."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(sizes.rounds):
        for name in names:
            with served(name) as server:
                found[name].append(figure(*_loaded(server, clients, sizes.requests)))
    return tuple(median(found[name]) for name in names)


def latency(sizes: Sizes) -> Iterator[Finding]:
    def p50(load: Load, cpu: float) -> float:
        return 1e3 * load.quantile(0.5)

    bare, own = _in_turns(sizes, ("starlette", "silva"), 1, p50)
    yield Finding(
        "one client: milliseconds that silva's median lies above that of a bare starlette echo",
        f"≤ {_LIMIT_MS}",
        f"{own - bare:.3f} ({own:.3f} and {bare:.3f})",
        own - bare,
        own - bare <= _LIMIT_MS,
    )


def cpu(sizes: Sizes) -> Iterator[Finding]:
    for clients in (16, _CONNECTIONS):
        peer, own = _in_turns(sizes, ("fastapi", "silva"), clients, lambda load, cpu: cpu)
        yield Finding(
            f"{clients} clients: CPU of the server per request, of FastAPI's with pydantic",
            "≤ 1",
            f"{own / peer:.2f} ({own:.0f} of {peer:.0f} µs)",
            own / peer,
            own <= peer,
        )


def ray(sizes: Sizes) -> Iterator[Finding]:
    peer, own = _in_turns(sizes, ("ray_serve", "silva"), 16, lambda load, cpu: cpu)
    yield Finding(
        "16 clients: CPU of Ray Serve's proxy and replica per request, times silva's",
        f"≥ {_RAY_SHARE}",
        f"{peer / own:.1f} ({peer:.0f} and {own:.0f} µs)",
        peer / own,
        peer >= _RAY_SHARE * own,
    )


def tail(sizes: Sizes) -> Iterator[Finding]:
    """The objective is five times the median of a lone request, fixed before the load begins; the
    control runs at the same arrivals with one row in a batch."""
    shares: dict[str, list[float]] = {"": [], "1": []}
    shown: list[tuple[float, float, float]] = []
    for _ in range(sizes.rounds):
        with served("silva", "accelerator") as server:
            slo = _SLO * closed_loop(server.port, 1, 40).quantile(0.5)
        with served("silva", "accelerator", slo) as server:
            closed_loop(server.port, _CONNECTIONS, sizes.requests // 2)
            capacity = closed_loop(server.port, _CONNECTIONS, sizes.requests).rate
        for most_rows, found in shares.items():
            with served("silva", "accelerator", slo, most_rows) as server:
                closed_loop(server.port, _CONNECTIONS, 20 if most_rows else sizes.requests // 4)
                load = open_loop(
                    server.port, _CONNECTIONS, _LOAD * capacity, sizes.requests, 2 * slo
                )
            found.append(load.quantile(0.99) / slo)
            if not most_rows:
                shown.append((slo, capacity, load.quantile(0.99)))
    own, control = median(shares[""]), median(shares["1"])
    slo, capacity, p99 = sorted(shown, key=lambda one: one[2] / one[0])[len(shown) // 2]
    yield Finding(
        "Poisson arrivals at 80 % of the capacity over 200 connections: p99 latency, of 5 median "
        "service times",
        "≤ 1",
        f"{own:.2f} ({1e3 * p99:.0f} of {1e3 * slo:.0f} ms at {_LOAD * capacity:.0f} per second)",
        own,
        own <= 1,
    )
    yield Finding(
        "the same with one row in a batch (control: missed)",
        "> 1",
        f"{control:.2f}",
        control,
        control > 1,
    )


CLAIMS: dict[str, Callable[[Sizes], Iterator[Finding]]] = {
    "latency": latency,
    "cpu": cpu,
    "ray": ray,
    "tail": tail,
}
SHORT = ("latency", "cpu")
