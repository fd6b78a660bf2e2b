"""`python -m benchmarks.cut_stage [seconds]`: a stage in one piece and cut in two.

A parser in plain Python, which holds the lock, beside operators whose arrays are large. The same
rows go through all of it on threads, all of it in processes, and cut in two with the parser in
processes and the operators on threads; in turns, so that a machine that is busy with other things
is so for all of them. CPU seconds are those of all processes, and tell more than the clock on such
a machine: what is copied between processes shows there. Where cores are few and either the lock or
what comes over is small, there is nothing to gain: with a shorter parser, threads do as well.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import psutil

import silva as sv
from silva.loader import Loader
from silva.physical.cut import cut
from silva.run.cutting import ChosenCut

ROWS = 400
_SIZE = 1024
"""Pixels of a side: 12 MiB of floats."""
_ROUNDS = 3
_WARM_SECONDS = 2.5


def parse(x: int) -> int:
    """About ten milliseconds of plain Python."""
    found = 0
    for i in range(200_000):
        found += i ^ x
    return found % 1000


def pipeline() -> sv.Pipeline:
    """Labels from Python, and large float images."""
    small = (ROWS, _SIZE // 4, _SIZE // 4, 3)
    photos = np.random.default_rng(0).integers(0, 255, small, dtype=np.uint8)
    return (
        sv.from_columns({"x": np.arange(ROWS), "photo": photos})
        .derive(tag=parse)
        .derive(image=sv.image("photo").resize(_SIZE, _SIZE).to_float())
        .select("image", "tag")
        .batch(8)
    )


def in_one_piece(backend: Any) -> Callable[[sv.Pipeline], Loader]:
    return lambda made: made.options(disable=["cut"]).loader(backend=backend, workers=2)


def in_two(made: sv.Pipeline) -> Loader:
    """Cut after the parser, as the planner does once it has seen the steps."""
    loader = made.loader(backend="threads", workers=2)
    chosen: list[ChosenCut] = []

    def cutting(lane: Any) -> ChosenCut:
        if not chosen:
            chosen.append(ChosenCut(cut(lane.stage, 1), ("processes", "threads")))
        return chosen[0]

    loader._executor.cutting = cutting
    return loader


WAYS: dict[str, Callable[[sv.Pipeline], Loader]] = {
    "threads": in_one_piece("threads"),
    "processes": in_one_piece("processes"),
    "processes, then threads": in_two,
}


def cpu_seconds() -> float:
    """Of this process and its workers, so far."""
    mine = psutil.Process()
    spent = [p.cpu_times() for p in (mine, *mine.children(recursive=True))]
    return sum(times.user + times.system for times in spent)


def measured(
    make: Callable[[sv.Pipeline], Loader], made: sv.Pipeline, seconds: float
) -> tuple[float, float]:
    """Rows a second, and CPU seconds a row, once the workers run."""
    with make(made) as loader:
        batches = (batch for _ in itertools.count() for batch in loader)
        began = time.perf_counter()
        for _ in batches:
            if time.perf_counter() - began > _WARM_SECONDS:
                break
        began, cpu, rows = time.perf_counter(), cpu_seconds(), 0
        for batch in batches:
            rows += len(batch["tag"])
            if time.perf_counter() - began > seconds:
                break
        spent = time.perf_counter() - began
        found = rows / spent, (cpu_seconds() - cpu) / rows
        batches.close()
        return found


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    made = pipeline()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for _ in range(_ROUNDS):
        for name, make in WAYS.items():
            found[name].append(measured(make, made, seconds))
    for name, rounds in found.items():
        rate, cpu = (median(column) for column in zip(*rounds, strict=True))
        print(f"{name:<24} {rate:7.0f} rows/s   {cpu * 1e3:6.1f} ms CPU a row")
    cut_rates = [rate for rate, _ in found["processes, then threads"]]
    for name in ("threads", "processes"):
        times = [two / one for two, (one, _) in zip(cut_rates, found[name], strict=True)]
        shown = ", ".join(f"{gain:.2f}" for gain in sorted(times))
        print(f"in two, of {name}: {median(times):.2f}× ({shown})")


if __name__ == "__main__":
    main()
