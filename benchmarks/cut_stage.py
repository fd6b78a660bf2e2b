"""`python -m benchmarks.cut_stage [seconds]`: a stage in one piece and cut in two.

A parser in plain Python, which holds the lock, beside a decoder whose arrays are large. The same
rows go through all of it on threads, all of it in processes, and cut in two with the parser in
processes and the decoder on threads; in turns, so that a machine that is busy with other things is
so for all of them. CPU seconds are those of all processes: what is copied between them shows there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
import psutil

import silva as sv
from silva.loader import Loader
from silva.physical.cut import cut
from silva.run.cutting import ChosenCut

ROWS = 2000
_SIZE = 512
_ROUNDS = 3
_WARM_BATCHES = 4


def parse(x: int) -> int:
    """Some milliseconds of plain Python."""
    found = 0
    for i in range(60_000):
        found += i ^ x
    return found % 1000


def pipeline() -> sv.Pipeline:
    """Labels from Python, and large float images from JPEGs."""
    noise = np.random.default_rng(0).integers(0, 255, (8, _SIZE, _SIZE, 3), dtype=np.uint8)
    encoded = sv.from_columns({"image": noise}).derive(bytes=sv.image("image").encode("jpeg"))
    (photos,) = encoded.select("bytes").batch(8)
    names = np.arange(ROWS)
    data = [photos["bytes"][i % 8] for i in range(ROWS)]
    return (
        sv.from_columns({"x": names, "bytes": data})
        .derive(tag=parse)
        .derive(image=sv.image("bytes").decode().to_float())
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


@contextmanager
def reading(loader: Loader) -> Iterator[Iterator[dict[str, Any]]]:
    with loader:
        batches = iter(loader)
        try:
            yield batches
        finally:
            batches.close()  # type: ignore[attr-defined]


def measured(make: Callable[[sv.Pipeline], Loader], made: sv.Pipeline, seconds: float) -> Any:
    """Rows a second, and CPU seconds a row, once the workers run."""
    with reading(make(made)) as batches:
        until = time.perf_counter() + 2.0
        for count, _ in enumerate(batches):
            if count >= _WARM_BATCHES and time.perf_counter() > until:
                break
        began, cpu, rows = time.perf_counter(), cpu_seconds(), 0
        for batch in batches:
            rows += len(batch["tag"])
            if time.perf_counter() - began > seconds:
                break
        spent = time.perf_counter() - began
        return rows / spent, (cpu_seconds() - cpu) / rows


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    made = pipeline()
    found: dict[str, list[Any]] = {name: [] for name in WAYS}
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
