"""Photos on a Ray of two CPUs: silva's actors, silva's threads, and Ray Data in two forms.

All read the same files and give batches of the same shape and type, and of the same light: random
parts differ. Ray Data maps whole batches over two CPUs, with torchvision's transforms as its
documentation has it, and with the lines that a person would write by hand with simplejpeg and
OpenCV, which are the kernels that silva's operators call. They take turns on one cluster.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import ray

from benchmarks import classification as photos
from benchmarks.data import put_photos
from benchmarks.peers import mapping
from benchmarks.ray_cluster.clusters import actors, joined, rate
from benchmarks.workload import BATCH

_ROUNDS = 3
_PHOTOS = 512
_LONG = 64
"""Times that Ray Data is given all photos, so that its epochs do not end while it is measured."""
_STORE = 4 << 30
"""Ray Data makes blocks of 128 MiB, some of them ahead, and writes to disk what does not fit."""
_SAME_LIGHT = 0.05

Epoch = Callable[[], Iterable[dict[str, Any]]]


def ray_data(job: mapping.Job) -> Epoch:
    """`map_batches` over the CPUs that there are, which hands over whole batches."""
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)

    def epoch() -> Iterator[dict[str, Any]]:
        dataset = ray.data.from_items([{"item": item} for item in job.items])
        made = dataset.map_batches(mapping.RayBatch(job), batch_size=job.batch)
        batches = made.iter_batches(batch_size=job.batch, batch_format="numpy")
        try:
            yield from ({"image": batch["made"]} for batch in batches)
        finally:  # what is left of an epoch must not be made while somebody else is measured
            made._synchronize_progress_bar()

    return epoch


def light(epoch: Epoch) -> float:
    """Of all photos together; the batches are looked at on the way."""
    total = 0.0
    for batch in epoch():
        image = batch["image"]
        assert image.dtype == np.float32
        assert image.shape[1:] == (3, photos.SIZE, photos.SIZE)
        total += photos.brightness(image)
    return total


def images() -> None:
    found: dict[str, list[tuple[float, float]]] = {}
    lights: dict[str, float] = {}

    def measure(name: str, epoch: Epoch, *more: Any) -> None:
        found.setdefault(name, []).append(rate(epoch, *more))

    with joined(2, _STORE), tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        print(put_photos(Path(folder), _PHOTOS))
        paths = photos.paths_in(folder)
        forms = {"torchvision": photos.job(folder).make, "by hand": photos.ByHand()}
        rows = photos.photos(folder).batch(BATCH)
        lights["silva"] = light(lambda: rows.loader())
        for form, make in forms.items():
            lights[form] = light(ray_data(mapping.Job(paths, make, BATCH)))
        for _ in range(_ROUNDS):
            with rows.loader(backend="threads", workers=2) as loader:
                measure("silva, threads", lambda: loader)
            with rows.loader(backend="ray", cluster="auto", workers=2) as loader:
                measure("silva, Ray", lambda: loader, lambda: actors(loader) == 2)
            for form, make in forms.items():
                job = mapping.Job(paths * _LONG, make, BATCH)
                measure(f"Ray Data, {form}", ray_data(job))
        show(lights, found)  # before Ray is ended, which may end this process


def show(lights: dict[str, float], found: dict[str, list[tuple[float, float]]]) -> None:
    for name, sum_of_light in lights.items():
        assert abs(sum_of_light / lights["silva"] - 1) < _SAME_LIGHT, name
    for name, rounds in found.items():
        speed, cpu = (median(column) for column in zip(*rounds, strict=True))
        print(f"images, {name:<22} {speed:6.0f} rows/s   {cpu * 1e3:5.2f} ms CPU a row")
    wanted = {"silva, threads": 0.85, "Ray Data, torchvision": 3, "Ray Data, by hand": None}
    for other, least in wanted.items():
        pairs = list(zip(found["silva, Ray"], found[other], strict=True))
        clock = median(ours / theirs for (ours, _), (theirs, _) in pairs)
        cpu = median(theirs / ours for (_, ours), (_, theirs) in pairs)
        told = "" if least is None else f" (wanted: {least})"
        print(
            f"silva on Ray, of {other}: {clock:.2f}× by the clock, {cpu:.2f}× by CPU{told}",
            flush=True,
        )
