"""One measurement in a process of its own: `python -m benchmarks.planner.child NAME JSON`."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

import silva as sv
from benchmarks.planner import bad_orders, pipelines, resources, rewrites

_SETTLING = 0.5
"""Of a run at less than full demand: the rest is measured."""


def cpu() -> float:
    """CPU seconds of this process and of all that it has started, at work or waited for."""
    own, others = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    spent = own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            spent += times.user + times.system
    return spent


def read_bytes() -> int:
    """Bytes that this process has asked the system for."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


def epoch(pipeline: sv.Pipeline, epochs: int = 1, **arguments: Any) -> dict[str, Any]:
    """Reads epochs; seconds of each, to the first batch, CPU seconds, and what was decided."""
    _ = sv.Loader
    began, cpu_began = time.perf_counter(), cpu()
    seconds, cpus, first, rows = [], [], None, 0
    with pipeline.loader(epochs=epochs, **arguments) as loader:
        for _ in range(epochs):
            start, cpu_start = time.perf_counter(), cpu()
            for batch in loader:
                rows += len(next(iter(batch.values())))
                if first is None:
                    first = time.perf_counter() - began
            seconds.append(time.perf_counter() - start)
            cpus.append(cpu() - cpu_start)
        facts = loader.explain(analyze=True).to_dict()
        choices = [
            "; ".join(choice.notes)
            for choice in loader.facts().decisions
            if choice.kind == "choice"
        ]
        lanes = list(loader._executor.lanes.values())
        errors = [error for lane in lanes for error in _errors(lane)]
    return {
        "epochs": seconds,
        "cpus": cpus,
        "wall": time.perf_counter() - began,
        "first": first,
        "cpu": cpu() - cpu_began,
        "rows": rows,
        "choices": choices,
        "errors": errors,
        "stages": facts["stages"],
    }


def _errors(lane: Any) -> list[float]:
    """How far off each prediction was that was made during the run, and judged by what came then;
    the one by which the stage was given its place only where there was no other."""
    made = lane.forecasts.made
    judged = [forecast.error(lane.counters) for forecast in made[1:] or made]
    return [error for error in judged if error is not None]


def filter_last(folder: str, optimize: bool) -> dict[str, Any]:
    return epoch(pipelines.filter_last(folder).options(optimize=optimize), epochs=2, cache="off")


def caching(folder: str, epochs: int, **arguments: Any) -> dict[str, Any]:
    return epoch(pipelines.random_after_decode(folder), epochs=epochs, **arguments)


def as_written(folder: str, optimize: bool, epochs: int) -> dict[str, Any]:
    """A pipeline of which there is nothing to gain: what planning itself costs."""
    pipeline = pipelines.random_after_decode(folder).options(optimize=optimize)
    return epoch(pipeline, epochs=epochs, cache="off")


def first_batch(folder: str, optimize: bool, again: bool) -> dict[str, Any]:
    """The same; with `again`, after an epoch that has measured what its steps cost."""
    if again:
        as_written(folder, optimize, epochs=1)
    pipeline = pipelines.random_after_decode(folder).options(optimize=optimize)
    _ = sv.Loader
    began = time.perf_counter()
    with pipeline.loader(cache="off") as loader:
        batches = iter(loader)  # kept: where a loop ends, measurements are written down
        next(batches)
        return {"first": time.perf_counter() - began}


def projection(file: str, by: str) -> dict[str, Any]:
    """Bytes read for the same query, by silva and by pyarrow."""
    with tempfile.TemporaryDirectory() as folder:  # what Python reads of its modules is not counted
        small = Path(folder) / "small.parquet"
        pipelines.write_forty(small, 80)
        _query(str(small), by)
    before = read_bytes()
    rows = _query(file, by)
    return {"bytes": read_bytes() - before, "rows": rows}


def _query(file: str, by: str) -> int:
    import pyarrow.dataset as ds

    if by == "silva":
        return sum(len(b["c00"]) for b in pipelines.three_of_forty(file).loader(workers=2))
    where = (ds.field("c00") >= 400_000) & (ds.field("c00") < 460_000)
    found = ds.dataset(file).to_table(columns=["c00", "c07", "c31"], filter=where)
    return int(found.num_rows)


def trial(space: str, data: Any, order: str, **arguments: Any) -> dict[str, Any]:
    """One plan of a pipeline, forced; or, without `backend`, the one that silva chooses."""
    forced = "backend" in arguments
    pipeline = pipelines.ordered(space, data, order).options(optimize=not forced)
    epochs = arguments.pop("epochs", 1)
    return epoch(pipeline, epochs=epochs, cache="off", **arguments)


def shared(resource: str, where: Any) -> dict[str, Any]:
    """A pipeline that ends at what all workers share: what the model says of it."""
    epochs = 8 if resource == "memory" else 3
    pipeline = resources.pipeline(resource, where)
    with pipeline.loader(epochs=epochs, cache="off") as loader:
        for _ in range(epochs):
            resources.prepare(resource, where)
            for _ in loader:
                pass
        more = loader.what_if(workers=16)
        errors = [error for lane in loader._executor.lanes.values() for error in _errors(lane)]
    return {"errors": errors, "limit": more.limit, "more": more.gain}


def demand(folder: str, rate: float, seconds: float, workers: int = 0) -> dict[str, Any]:
    """A trainer that asks for `rate` rows a second, or for as many as come (0): what it waits and
    what that costs. `workers`: threads, if not chosen by silva (0)."""
    pipeline = pipelines.random_after_decode(folder)
    step = pipelines.BATCH / rate if rate else 0.0
    forced = {"backend": "threads", "workers": workers} if workers else {}
    with pipeline.loader(epochs=1000, cache="off", **forced) as loader:
        began = time.perf_counter()
        settled = began + _SETTLING * seconds
        waits: list[float] = []
        rows = 0.0
        since: tuple[float, float] | None = None
        asked = began
        while True:
            for batch in loader:
                now = time.perf_counter()
                if since is not None:
                    waits.append(now - asked)
                    rows += len(batch["image"])
                elif now > settled:
                    since = now, cpu()
                if now - began > seconds:
                    break
                if step:
                    _train(now + step)
                asked = time.perf_counter()
            if time.perf_counter() - began > seconds:
                break
        assert since is not None
        spent = time.perf_counter() - since[0]
        (lane,) = loader._executor.lanes.values()
        width, backend = lane.width.now, lane.backend
        used = cpu() - since[1]
    return {
        "rate": rows / spent,
        "wait": sum(waits) / spent,
        "batch": statistics.median(waits),
        "longest": max(waits),
        "cpu": used / rows,
        "width": width,
        "backend": backend,
    }


_SPUN = 1000
"""Rounds of a loop for a cost of 1: about 8 microseconds."""


def bad_order(seed: int, rows: int, by_hand: bool) -> dict[str, Any]:
    """A generated pipeline as written, planned; or in its best order, run as it is."""
    case = bad_orders.draw(seed, rows)
    order = bad_orders.best(bad_orders.draw(seed))[1] if by_hand else case.steps
    pipeline = bad_orders.build(case, order, _SPUN).pipeline
    return epoch(pipeline.options(optimize=not by_hand), epochs=4, cache="off", backend="inline")


def rewrite(pair: str, rows: int, by_hand: bool) -> dict[str, Any]:
    """A pipeline as it is often written, or as it is written with care."""
    pipeline = rewrites.REWRITES[pair][by_hand](rows)
    return epoch(pipeline, epochs=2, cache="off", backend="inline")


def _train(until: float) -> None:
    """A trainer on another device: this process only waits for it."""
    left = until - time.perf_counter()
    if left > 0:
        time.sleep(left)


MEASUREMENTS = {
    f.__name__: f
    for f in (
        filter_last,
        caching,
        as_written,
        first_batch,
        projection,
        trial,
        shared,
        demand,
        bad_order,
        rewrite,
    )
}


def main() -> None:
    found = MEASUREMENTS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
