"""One run of one contestant, in a process of its own: `python -m benchmarks.child '{…}'`.

Prints one line of JSON. The memory is watched from outside, so that no thread of ours competes
with the contestant for Python's lock.
"""

from __future__ import annotations

import gc
import json
import resource
import statistics
import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import psutil

from benchmarks.notes import notes_on
from benchmarks.workload import Contestant, Open, Workload
from benchmarks.workloads import WORKLOADS


def main() -> None:
    order = json.loads(sys.argv[1])
    workload = WORKLOADS[order["workload"]]
    contestant = workload.contestant(order["contestant"])
    open_batches = contestant.prepare(**order["parameters"])
    checked: dict[str, Any] = {}
    if workload.warm:
        checked = read_epoch(workload, contestant, open_batches, check=True)
    runs = [
        read_epoch(workload, contestant, open_batches, check=not workload.warm)
        for _ in range(workload.epochs)
    ]
    result = {
        name: statistics.median(run[name] for run in runs) for name in ("wall", "first", "cpu")
    }
    result["rows"] = runs[0]["rows"]
    result["form"] = runs[0]["form"]
    result["steady"] = statistics.median(run["steady"] for run in runs)
    result["checksum"] = (checked or runs[0])["checksum"]
    result["notes"] = runs[-1]["notes"]
    print(json.dumps(result))


def read_epoch(
    workload: Workload, contestant: Contestant, open_batches: Open, check: bool
) -> dict[str, Any]:
    gc.collect()
    key, checksum, whole = contestant.key, workload.checksum, workload.whole
    rows, total = 0, 0.0
    cpu = cpu_seconds()
    began = perf_counter()
    opened = open_batches()
    batches = iter(opened)
    batch = next(batches)
    first = perf_counter() - began
    values = batch if key is None else batch[key]
    form = None if workload.shape is None else form_of(values)
    rows += (early := len(values))
    if check:
        total += checksum(batch if whole else values)
    rest: Iterator[Any] = iter(()) if workload.first_only else batches
    if check:
        for batch in rest:
            values = batch if key is None else batch[key]
            rows += len(values)
            total += checksum(batch if whole else values)
    elif key is None:
        for batch in rest:
            rows += len(batch)
    else:
        for batch in rest:
            rows += len(batch[key])
    wall = perf_counter() - began
    cpu = cpu_seconds() - cpu
    notes = notes_on(opened)
    del batch, values
    for ended in (batches, opened):
        close = getattr(ended, "close", None)
        if close is not None:
            close()
    return {
        "wall": wall,
        "first": first,
        "cpu": cpu,
        "rows": rows,
        "steady": (rows - early) / (wall - first) if rows > early else 0.0,
        "form": form,
        "checksum": total,
        "notes": notes,
    }


def form_of(values: Any) -> list[Any]:
    """Type and shape of a batch: `["float32", [32, 1, 244, 244]]`, of whatever library."""
    return [str(values.dtype).removeprefix("torch."), list(values.shape)]


def cpu_seconds() -> float:
    """Of this process, of children that have ended, and of those that still live."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])  # its own, and its ended children's
        except psutil.Error:  # it ended just now
            continue
    return total


if __name__ == "__main__":
    main()
