"""Photos for a classifier: decode, random resized crop, flip, normalise, channels first.

The limit is two threads that call simplejpeg and OpenCV by hand; a DataLoader runs the same lines
in two processes, and another one torchvision's. Batches of 32 and of 256. `LARGE` is the same on
photos of 12 megapixels, where a decoder that may shrink has something to gain.
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
from benchmarks.data import put_large_photos, put_photos
from benchmarks.peers import mapping, shards, torchvision_cpu
from benchmarks.workload import BATCH, Contestant, Open, Target, Workload

SIZE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_MANY = 256


@contextmanager
def setting(quick: bool) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        data = put_photos(Path(folder), 256 if quick else 1024)
        yield {"folder": folder, "data": data}


@contextmanager
def large_setting(quick: bool) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        data = put_large_photos(Path(folder), 32 if quick else 192)
        yield {"folder": folder, "data": data}


def paths_in(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob("*.jpg"))


def photos(folder: str, interpolation: Any = "bilinear") -> Any:
    """The pipeline as silva's users write it."""
    import cv2  # noqa: F401  what others import before the clock starts, silva may too
    import simplejpeg  # noqa: F401

    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    image = sv.image("bytes").decode().random_resized_crop(SIZE, interpolation=interpolation)
    image = image.random_flip().normalize(MEAN, STD)
    return sv.read_files(f"{folder}/*.jpg").derive(image=image.to_chw()).select("image")


def silva_auto(folder: str, batch: int = BATCH) -> Open:
    rows = photos(folder)
    return lambda: rows.batch(batch).loader()


def silva_exact(folder: str) -> Open:
    rows = photos(folder, "area")
    return lambda: rows.batch(BATCH).loader()


def silva_close(folder: str) -> Open:
    rows = photos(folder, "area")
    return lambda: rows.batch(BATCH).options(fidelity="close").loader()


class ByHand:
    """What a person would write: one photo, from its file to float32 channels."""

    def __init__(self, area: bool = False) -> None:
        import cv2

        cv2.setNumThreads(1)
        self._table: Any = hand.normal_table(MEAN, STD)
        self._area = area

    def read(self, path: str, out: np.ndarray) -> None:
        import cv2

        rng = np.random.default_rng(int(Path(path).stem))
        photo = hand.read(path)
        part = hand.resized(photo, hand.draw_box(rng, *photo.shape[:2]), SIZE, self._area)
        if rng.random() < 0.5:
            part = hand.flipped(part)
        np.copyto(out, cv2.LUT(part, self._table).transpose(2, 0, 1))

    def __call__(self, path: str) -> np.ndarray:
        out = np.empty((3, SIZE, SIZE), np.float32)
        self.read(path, out)
        return out


def two_threads(folder: str, batch: int = BATCH, area: bool = False) -> Open:
    by_hand, paths = ByHand(area), paths_in(folder)

    def make(rows: range) -> np.ndarray:
        made = np.empty((len(rows), 3, SIZE, SIZE), np.float32)
        for index, out in zip(rows, made, strict=True):
            by_hand.read(paths[index], out)
        return made

    return on_threads(len(paths), batch, make)


def dataloader_by_hand(folder: str, batch: int = BATCH) -> Open:
    return mapping.dataloader(mapping.Job(paths_in(folder), ByHand(), batch))


class Photo(torchvision_cpu.Transform):
    """torchvision's transforms v2, on uint8 as long as possible."""

    def steps(self, v2: Any) -> list[Any]:
        import torch

        return [
            v2.RandomResizedCrop(SIZE, antialias=False),  # as silva and the limit
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]


def job(folder: str, batch: int = BATCH) -> mapping.Job:
    torchvision_cpu.load()
    return mapping.Job(paths_in(folder), Photo(), batch)


def dataloader(folder: str, batch: int = BATCH) -> Open:
    return mapping.dataloader(job(folder, batch))


def torchdata(folder: str, batch: int = BATCH) -> Open:
    return mapping.torchdata_processes(job(folder, batch))


def grain(folder: str, batch: int = BATCH) -> Open:
    return mapping.grain_threads(job(folder, batch))


def ray_data(folder: str) -> Open:
    return mapping.ray_data(job(folder))


def spdl(folder: str) -> Open:
    return mapping.spdl_threads(job(folder))


def webdataset(folder: str) -> Open:
    return shards.webdataset(job(folder))


def mosaicml(folder: str) -> Open:
    return shards.mosaicml(job(folder))


def litdata(folder: str) -> Open:
    return shards.litdata(job(folder))


def tensorflow_data(folder: str, batch: int = BATCH) -> Open:
    """Only the part that is wanted is decoded: the best that TensorFlow's documentation knows."""
    import tensorflow as tf

    from benchmarks.peers import tensorflow_images as ops

    def photo(path: Any) -> Any:
        pixels = ops.random_flip(ops.decode_and_crop(tf.io.read_file(path), SIZE))
        return tf.transpose(ops.normalize(pixels, MEAN, STD), (2, 0, 1))

    return ops.batches(paths_in(folder), photo, batch)


def brightness(batch: Any) -> float:
    """Draws differ, so only the light of all photos together can agree (every 16th pixel)."""
    channels = np.asarray(batch)[:, :, ::4, ::4].mean(axis=(2, 3), dtype=np.float64)
    return float((channels * STD + MEAN).sum())


def of_many(name: str) -> str:
    return f"{name}, {_MANY}"


_HAND, _LOADER, _TF = "two threads by hand", "DataLoader, 2 workers", "tf.data, decode and crop"
_TORCH = "torch"
_BY_HAND_LOADER = "DataLoader, lines by hand"

WORKLOAD = Workload(
    name="classification",
    title="Classification: JPEG, random resized crop 224, flip, normalise, batches of 32 and 256",
    setting=setting,
    contestants=(
        Contestant(_HAND, two_threads, limit=True),
        Contestant("silva auto", silva_auto, key="image"),
        Contestant(_BY_HAND_LOADER, dataloader_by_hand),
        Contestant(_TF, tensorflow_data, environment="tensorflow"),
        Contestant(_LOADER, dataloader, environment=_TORCH),
        Contestant("torchdata.nodes, processes", torchdata, environment=_TORCH, long=True),
        Contestant("Grain, threads", grain, environment=_TORCH, long=True),
        Contestant("Ray Data", ray_data, key="made", environment="ray", long=True),
        Contestant("SPDL, threads", spdl, environment="spdl", long=True),
        Contestant("WebDataset", webdataset, environment=_TORCH, long=True),
        Contestant("MosaicML streaming", mosaicml, environment="mosaicml", long=True),
        Contestant("LitData", litdata, environment="litdata", long=True),
        Contestant(of_many(_HAND), two_threads, limit=True, given={"batch": _MANY}),
        Contestant(of_many("silva auto"), silva_auto, key="image", given={"batch": _MANY}),
        Contestant(
            of_many(_TF),
            tensorflow_data,
            environment="tensorflow",
            given={"batch": _MANY},
            long=True,
        ),
        Contestant(
            of_many(_LOADER), dataloader, environment=_TORCH, given={"batch": _MANY}, long=True
        ),
    ),
    targets=(
        Target("silva auto", at_least=0.9, of=_HAND),
        Target("silva auto", at_least=2, of=_LOADER),
        Target("silva auto", at_least=1.3, of=_TF),
        Target("silva auto", at_most=1.15, of=_HAND, metric="cpu_row"),
        Target("silva auto", at_most=1, of=_LOADER, metric="peak"),
        Target(of_many("silva auto"), at_least=0.9, of=of_many(_HAND)),
        Target(of_many("silva auto"), at_least=2, of=of_many(_LOADER)),
        Target(of_many("silva auto"), at_least=1.3, of=of_many(_TF)),
    ),
    checksum=brightness,
    tolerance=0.05,
    shape=(3, SIZE, SIZE),
    rounds=3,
    remarks=peers.IMAGES,
)

LARGE = Workload(
    name="large",
    title="The same on photos of 12 megapixels, averaged (area), batches of 32",
    setting=large_setting,
    contestants=(
        Contestant(_HAND, two_threads, limit=True, given={"area": True}),
        Contestant("silva, exact", silva_exact, key="image"),
        Contestant("silva, close", silva_close, key="image"),
    ),
    targets=(
        Target("silva, exact", at_least=0.9, of=_HAND),
        Target("silva, close", at_least=2, of="silva, exact"),
    ),
    checksum=brightness,
    tolerance=0.1,
    shape=(3, SIZE, SIZE),
    rounds=3,
)
