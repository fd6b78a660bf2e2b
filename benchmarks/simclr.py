"""SimCLR's views: a random part, mirrored, its colours changed, gray, blurred, normalised.

The pipeline of cedar's evaluation, with the colour jitter of SimCLR itself. The limit does the same
steps in the same, random, order. All give (32, 1, 244, 244) float32.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import hand_images as hand
from benchmarks import peers
from benchmarks.by_hand import on_threads
from benchmarks.data import put_photos
from benchmarks.peers import mapping, shards, torchvision_cpu
from benchmarks.workload import BATCH, Contestant, Open, Target, Workload

SIZE = 244
JITTER, HUE = 0.8, 0.2
KERNEL = 11
SIGMA = (0.1, 2.0)
MEAN, STD = 0.5, 0.25


@contextmanager
def setting(quick: bool) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        data = put_photos(Path(folder), 128 if quick else 1024)
        yield {"folder": folder, "data": data}


def paths_in(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob("*.jpg"))


def silva_auto(folder: str) -> Open:
    import cv2  # noqa: F401  what others import before the clock starts, silva may too
    import simplejpeg  # noqa: F401

    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    view = sv.image("bytes").decode().random_resized_crop(SIZE).random_flip()
    view = view.color_jitter(JITTER, JITTER, JITTER, HUE).grayscale().gaussian_blur(KERNEL, SIGMA)
    photos = sv.read_files(f"{folder}/*.jpg").derive(image=view.normalize(MEAN, STD).to_chw())
    return lambda: photos.select("image").batch(BATCH).loader()


def two_threads(folder: str) -> Open:
    import cv2

    cv2.setNumThreads(1)
    paths = paths_in(folder)
    table: Any = hand.normal_table(MEAN, STD)

    def view(index: int, out: np.ndarray) -> None:
        rng = np.random.default_rng((0, index))
        photo = hand.read(paths[index])
        photo = hand.resized(photo, hand.draw_box(rng, *photo.shape[:2]), SIZE)
        if rng.random() < 0.5:
            photo = hand.flipped(photo)
        photo = hand.gray(hand.jittered(photo, rng, (JITTER, JITTER, JITTER), HUE))
        # normalised first: the blur of floats takes less than half the time of that of bytes
        cv2.GaussianBlur(cv2.LUT(photo, table), (KERNEL, KERNEL), rng.uniform(*SIGMA), dst=out[0])

    def batch(rows: range) -> np.ndarray:
        made = np.empty((len(rows), 1, SIZE, SIZE), np.float32)
        for index, out in zip(rows, made, strict=True):
            view(index, out)
        return made

    return on_threads(len(paths), BATCH, batch)


class View(torchvision_cpu.Transform):
    """torchvision's transforms v2, on uint8 up to the blur, as its documentation advises."""

    def steps(self, v2: Any) -> list[Any]:
        import torch

        return [
            v2.RandomResizedCrop(SIZE, antialias=False),  # as silva and the limit
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(JITTER, JITTER, JITTER, HUE),
            v2.Grayscale(1),
            v2.GaussianBlur(KERNEL, SIGMA),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([MEAN], [STD]),
        ]


def job(folder: str) -> mapping.Job:
    torchvision_cpu.load()
    return mapping.Job(paths_in(folder), View(), BATCH)


def dataloader(folder: str) -> Open:
    return mapping.dataloader(job(folder))


def torchdata_threads(folder: str) -> Open:
    return mapping.torchdata_threads(job(folder))


def torchdata_processes(folder: str) -> Open:
    return mapping.torchdata_processes(job(folder))


def grain_threads(folder: str) -> Open:
    return mapping.grain_threads(job(folder))


def grain_processes(folder: str) -> Open:
    return mapping.grain_processes(job(folder))


def ray_data(folder: str) -> Open:
    return mapping.ray_data(job(folder))


def spdl(folder: str) -> Open:
    return mapping.spdl_threads(job(folder))


def huggingface(folder: str) -> Open:
    return mapping.huggingface(job(folder))


def webdataset(folder: str) -> Open:
    return shards.webdataset(job(folder))


def mosaicml(folder: str) -> Open:
    return shards.mosaicml(job(folder))


def litdata(folder: str) -> Open:
    return shards.litdata(job(folder))


def tensorflow_data(folder: str) -> Open:
    """Only the part that is wanted is decoded: the best that TensorFlow's documentation knows."""
    import tensorflow as tf

    from benchmarks.peers import tensorflow_images as ops

    def view(path: Any) -> Any:
        photo = ops.decode_and_crop(tf.io.read_file(path), SIZE)
        photo = ops.random_flip(photo)
        photo = ops.color_jitter(photo, (JITTER, JITTER, JITTER), HUE)
        photo = tf.image.rgb_to_grayscale(photo)
        photo = (ops.gaussian_blur(photo, KERNEL, SIGMA) / 255.0 - MEAN) / STD
        return tf.transpose(photo, (2, 0, 1))

    return ops.batches(paths_in(folder), view, BATCH)


def brightness(batch: Any) -> float:
    """Draws differ, so only the light of all photos together can agree (every 16th pixel)."""
    numbers = np.asarray(batch)[:, :, ::4, ::4]
    return float((numbers.mean(axis=(1, 2, 3), dtype=np.float64) * STD + MEAN).sum())


_TORCH = "torch"
_SLOW = (
    "DataLoader, 2 workers",
    "torchdata.nodes, threads",
    "torchdata.nodes, processes",
    "Grain, threads",
    "Grain, processes",
    "Ray Data",
)

WORKLOAD = Workload(
    name="simclr",
    title="SimCLR: JPEG, random resized crop 244, flip, jitter, gray, blur 11, batches of 32",
    setting=setting,
    contestants=(
        Contestant("two threads by hand", two_threads, limit=True),
        Contestant("silva auto", silva_auto, key="image"),
        Contestant("tf.data, decode and crop", tensorflow_data, environment="tensorflow"),
        Contestant("DataLoader, 2 workers", dataloader, environment=_TORCH),
        Contestant("torchdata.nodes, threads", torchdata_threads, environment=_TORCH, long=True),
        Contestant(
            "torchdata.nodes, processes", torchdata_processes, environment=_TORCH, long=True
        ),
        Contestant("Grain, threads", grain_threads, environment=_TORCH),
        Contestant("Grain, processes", grain_processes, environment=_TORCH, long=True),
        Contestant("Ray Data", ray_data, key="made", environment="ray", long=True),
        Contestant("SPDL, threads", spdl, environment="spdl"),
        Contestant("HF datasets", huggingface, environment=_TORCH, long=True),
        Contestant("WebDataset", webdataset, environment=_TORCH, long=True),
        Contestant("MosaicML streaming", mosaicml, environment="mosaicml", long=True),
        Contestant("LitData", litdata, environment="litdata", long=True),
    ),
    targets=(
        Target("silva auto", at_least=0.9, of="two threads by hand"),
        Target("silva auto", at_least=5, of=_SLOW),
        Target("silva auto", at_least=1.6, of="tf.data, decode and crop"),
        Target("silva auto", at_most=1.15, of="two threads by hand", metric="cpu_row"),
        Target("silva auto", at_most=1, of="DataLoader, 2 workers", metric="peak"),
    ),
    checksum=brightness,
    tolerance=0.2,
    shape=(1, SIZE, SIZE),
    rounds=3,
    remarks=peers.IMAGES,
)
