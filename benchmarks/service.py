"""`python -m benchmarks.service`: batches from a service beside those of loaders.

`one`: a trainer that reads photos, from a service and by a loader of its own, in turns. `four`:
four trainers on the same photos, with a service and with a loader each; all in processes of their
own. `wire`: bytes a second of batches that cost nothing to make, to a reader in another process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import silva as sv
from benchmarks.classification import photos
from benchmarks.data import put_photos

_ROUNDS = 5
_PHOTOS = 2000


def pipeline(folder: str) -> sv.Pipeline:
    made: sv.Pipeline = photos(folder).batch(32)
    return made


def read(loader: Any) -> dict[str, float]:
    """What one trainer got, in how long, for which CPU seconds."""
    began, spent = time.perf_counter(), time.process_time()
    rows = size = 0
    for batch in loader:
        rows += len(batch["image"])
        size += batch["image"].nbytes
    seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    return {"rows": rows, "bytes": size, "seconds": seconds, "cpu": cpu}


def trainer(how: dict[str, Any]) -> None:
    """In a process of its own."""
    if "folder" in how:
        loader: Any = pipeline(how["folder"]).loader(epochs=1, cache="off", backend="threads")
    else:
        loader = sv.connect(**how)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(read(loader)), flush=True)
    os._exit(0)


def trainers(count: int, how: dict[str, Any]) -> list[dict[str, float]]:
    """All begin at once."""
    command = [sys.executable, "-m", "benchmarks.service", "trainer", json.dumps(how)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for _ in range(count)]
    for one in started:
        assert one.stdout is not None
        one.stdout.readline()
    for one in started:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    found = [json.loads(one.stdout.readline()) for one in started if one.stdout is not None]
    for one in started:
        one.communicate()
    return found


def own(folder: str, count: int) -> tuple[float, float]:
    """Rows a second of all, and CPU seconds a row."""
    found = trainers(count, {"folder": folder})
    rows = sum(one["rows"] for one in found)
    return rows / max(one["seconds"] for one in found), sum(one["cpu"] for one in found) / rows


def served(folder: str, count: int) -> tuple[float, float]:
    made = pipeline(folder)
    with sv.Service({"it": made}, epochs=1, cache="off", backend="threads") as service:
        how = {"address": service.address, "pipeline": "it", "token": service.token}
        before = time.process_time()
        found = trainers(count, how)
        cpu = time.process_time() - before + sum(one["cpu"] for one in found)
    rows = sum(one["rows"] for one in found)
    return rows / max(one["seconds"] for one in found), cpu / rows


def compare(count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        put_photos(Path(folder), _PHOTOS)
        found: dict[str, list[tuple[float, float]]] = {"loaders": [], "a service": []}
        for turn in range(_ROUNDS):
            for name, run in [("loaders", own), ("a service", served)][:: 1 - 2 * (turn % 2)]:
                found[name].append(run(folder, count))
    rates = {name: median(rate for rate, _ in runs) for name, runs in found.items()}
    spent = {name: median(cpu for _, cpu in runs) for name, runs in found.items()}
    shown = {name: sorted(round(rate) for rate, _ in runs) for name, runs in found.items()}
    print(
        f"{count} trainer(s) on photos: a service {rates['a service']:.0f} rows/s, loaders "
        f"{rates['loaders']:.0f}: {rates['a service'] / rates['loaders']:.2f}× "
        f"({shown}); CPU seconds a row {spent['a service'] / spent['loaders']:.2f}×",
        flush=True,
    )


def wire() -> None:
    image = np.zeros((256, 3, 224, 224), np.uint8)
    made = sv.from_columns({"x": range(100)}).batch(1).derive(image=lambda x: image).select("image")
    rates = []
    for _ in range(_ROUNDS):
        with sv.Service({"it": made}, workers=0) as service:
            how = {"address": service.address, "pipeline": "it", "token": service.token}
            (found,) = trainers(1, how)
            rates.append(found["bytes"] / found["seconds"])
    print(f"wire: {median(rates) / 1e9:.2f} GB/s in batches of {image.nbytes / 1e6:.0f} MB")


PARTS: dict[str, Callable[[], None]] = {
    "one": lambda: compare(1),
    "four": lambda: compare(4),
    "wire": wire,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["trainer"]:
        trainer(json.loads(sys.argv[2]))
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
