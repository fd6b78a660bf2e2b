"""Detection as SSD trains it: photos with boxes, colours changed, a part kept, mirrored, 300 × 300.

COCO-like: the photos are those of the other workloads, with one to eight boxes drawn for each.
They move along with every geometric step, are clipped, and go when their centre is cut off. A batch
is images, boxes and labels, padded.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import hand_images as hand
from benchmarks import peers
from benchmarks.by_hand import on_threads
from benchmarks.data import put_photos
from benchmarks.peers import mapping, torchvision_cpu
from benchmarks.workload import BATCH, Contestant, Open, Target, Workload

SIZE = 300
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
JITTER, HUE = (0.125, 0.5, 0.5), 0.05
OVERLAPS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
SCALE, RATIO = (0.3, 1.0), (0.5, 2.0)
_TRIALS = 40
_MOST = 8
_NO_LABEL = -1
Marked = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Pixels (channels first), boxes (left, top, right, bottom), labels."""


@contextmanager
def setting(quick: bool) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        data = put_photos(Path(folder), 96 if quick else 1024)
        draw_boxes(folder)
        yield {"folder": folder, "data": data}


def draw_boxes(folder: str) -> None:
    """Writes `boxes.json`: for each photo its boxes in pixels and their labels."""
    import simplejpeg

    found = {}
    for number, path in enumerate(paths_in(folder)):
        rng = np.random.default_rng(number)
        height, width, *_ = simplejpeg.decode_jpeg_header(Path(path).read_bytes())
        count = int(rng.integers(1, _MOST + 1))
        corner = rng.uniform(0, 0.7, (count, 2))
        extent = rng.uniform(0.1, 0.3, (count, 2))
        boxes = np.hstack([corner, corner + extent]) * [width, height, width, height]
        labels = rng.integers(0, 80, count)
        found[Path(path).name] = (boxes.round(1).tolist(), labels.tolist())
    Path(folder, "boxes.json").write_text(json.dumps(found))


def boxes_in(folder: str) -> dict[str, tuple[list[list[float]], list[int]]]:
    found: dict[str, Any] = json.loads(Path(folder, "boxes.json").read_text())
    return found


def paths_in(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob("*.jpg"))


def silva_auto(folder: str) -> Open:
    import cv2  # noqa: F401  what others import before the clock starts, silva may too
    import simplejpeg  # noqa: F401

    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    known = boxes_in(folder)
    scene = sv.image("bytes", boxes="boxes", labels="labels").decode().color_jitter(*JITTER, HUE)
    scene = scene.random_iou_crop(SCALE, RATIO, OVERLAPS).random_flip().resize(SIZE, SIZE)
    photos = (
        sv.read_files(f"{folder}/*.jpg")
        .derive(
            boxes=lambda path: known[path.rpartition("/")[2]][0],
            labels=lambda path: known[path.rpartition("/")[2]][1],
        )
        .derive(scene.normalize(MEAN, STD).to_chw(), into=("image", "boxes", "labels"))
        .select("image", "boxes", "labels")
    )
    return lambda: photos.batch(BATCH, pad={"boxes": 0, "labels": _NO_LABEL}).loader()


def two_threads(folder: str) -> Open:
    import cv2

    cv2.setNumThreads(1)
    table: Any = hand.normal_table(MEAN, STD)
    paths, known = paths_in(folder), boxes_in(folder)

    def make(rows: range) -> dict[str, np.ndarray]:
        batch = blank(len(rows))
        for place, index in enumerate(rows):
            rng = np.random.default_rng((0, index))
            photo = hand.jittered(hand.read(paths[index]), rng, JITTER, HUE)
            boxes, labels = map(np.array, known[Path(paths[index]).name])
            part = iou_crop(rng, *photo.shape[:2], boxes)
            boxes, kept = moved(boxes, part)
            photo = hand.resized(photo, part, SIZE)
            if rng.random() < 0.5:
                photo = hand.flipped(photo)
                boxes = mirrored(boxes)
            np.copyto(batch["image"][place], cv2.LUT(photo, table).transpose(2, 0, 1))
            batch["boxes"][place, : len(boxes)] = boxes
            batch["labels"][place, : len(boxes)] = labels[kept]
        return batch

    return on_threads(len(paths), BATCH, make)


def blank(rows: int) -> dict[str, np.ndarray]:
    return {
        "image": np.empty((rows, 3, SIZE, SIZE), np.float32),
        "boxes": np.zeros((rows, _MOST, 4), np.float32),
        "labels": np.full((rows, _MOST), _NO_LABEL, np.int64),
    }


def iou_crop(
    rng: np.random.Generator, height: int, width: int, boxes: np.ndarray
) -> tuple[int, int, int, int]:
    """Top, left, height, width, by torchvision's rules; all trials of an overlap at once."""
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    while (least := OVERLAPS[rng.integers(len(OVERLAPS))]) < 1:
        draws = rng.random((_TRIALS, 4))
        sizes = ((SCALE[0] + (SCALE[1] - SCALE[0]) * draws[:, :2]) * (width, height)).astype(int)
        starts = (((width, height) - sizes) * draws[:, 2:]).astype(int)
        ends = starts + sizes
        ratio = sizes[:, 0] / sizes[:, 1]
        good = (ratio >= RATIO[0]) & (ratio <= RATIO[1])
        inside = ((centres > starts[:, None]) & (centres < ends[:, None])).all(axis=2)
        low, high = (
            np.maximum(boxes[:, :2], starts[:, None]),
            np.minimum(boxes[:, 2:], ends[:, None]),
        )
        common = (high - low).clip(0).prod(axis=2)
        union = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) + sizes.prod(axis=1)[:, None] - common
        good &= inside.any(axis=1) & (np.where(inside, common / union, 0).max(axis=1) >= least)
        if good.any():
            first = int(good.argmax())
            (left, top), (across, down) = starts[first].tolist(), sizes[first].tolist()
            return top, left, down, across
    return 0, 0, height, width


def moved(boxes: np.ndarray, part: tuple[int, int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Boxes in the part, in pixels of the result; and which they are."""
    top, left, height, width = part
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2 - (left, top)
    kept = ((centres > 0) & (centres < (width, height))).all(axis=1)
    shifted = (boxes[kept] - (left, top, left, top)).clip(0, (width, height, width, height))
    across, down = SIZE / width, SIZE / height
    return shifted * (across, down, across, down), kept


def mirrored(boxes: np.ndarray) -> np.ndarray:
    return np.stack([SIZE - boxes[:, 2], boxes[:, 1], SIZE - boxes[:, 0], boxes[:, 3]], axis=1)


class Scene:
    """torchvision's transforms v2, on uint8 as long as possible, with its bounding boxes."""

    def __init__(self, folder: str) -> None:
        self._known = boxes_in(folder)
        self._compose: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_known": self._known, "_compose": None}  # steps are made anew in each worker

    def __call__(self, path: str) -> Marked:
        v2 = torchvision_cpu.load()
        import torch
        from torchvision import tv_tensors

        if self._compose is None:
            self._compose = v2.Compose(
                [
                    v2.ColorJitter(*JITTER, HUE),
                    v2.RandomIoUCrop(*SCALE, *RATIO, list(OVERLAPS), _TRIALS),
                    v2.SanitizeBoundingBoxes(),
                    v2.RandomHorizontalFlip(),
                    v2.Resize((SIZE, SIZE), antialias=False),  # as silva and the limit
                    v2.ToDtype(torch.float32, scale=True),
                    v2.Normalize(MEAN, STD),
                ]
            )
        pixels = torchvision_cpu.decode(Path(path).read_bytes())
        boxes, labels = self._known[Path(path).name]
        marked = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=pixels.shape[-2:])
        given = {
            "image": tv_tensors.Image(pixels),
            "boxes": marked,
            "labels": torch.tensor(labels),
        }
        made = self._compose(given)
        return made["image"].numpy(), made["boxes"].numpy(), made["labels"].numpy()


def together(rows: Sequence[Marked]) -> dict[str, np.ndarray]:
    batch = blank(len(rows))
    for place, (pixels, boxes, labels) in enumerate(rows):
        batch["image"][place] = pixels
        batch["boxes"][place, : len(boxes)] = boxes
        batch["labels"][place, : len(boxes)] = labels
    return batch


def job(folder: str) -> mapping.Job:
    torchvision_cpu.load()
    return mapping.Job(paths_in(folder), Scene(folder), BATCH, together)


def dataloader(folder: str) -> Open:
    return mapping.dataloader(job(folder))


def torchdata(folder: str) -> Open:
    return mapping.torchdata_processes(job(folder))


def grain(folder: str) -> Open:
    return mapping.grain_threads(job(folder))


def ray_data(folder: str) -> Open:
    return mapping.ray_data(job(folder))


def tensorflow_data(folder: str) -> Open:
    """TensorFlow's own sampler keeps a share of a box inside, where others ask for an overlap."""
    import tensorflow as tf

    from benchmarks.peers import tensorflow_images as ops

    paths, known = paths_in(folder), boxes_in(folder)
    boxes = tf.ragged.constant([known[Path(p).name][0] for p in paths], ragged_rank=1)
    labels = tf.ragged.constant([known[Path(p).name][1] for p in paths], dtype=tf.int64)

    def scene(path: Any, boxes: Any, labels: Any) -> dict[str, Any]:
        pixels = tf.cast(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), tf.float32)
        pixels = ops.color_jitter(pixels, JITTER, HUE)
        pixels, boxes, labels = ops.iou_crop(pixels, boxes, labels, OVERLAPS, SCALE, RATIO)
        pixels = tf.image.resize(pixels, (SIZE, SIZE))
        pixels, boxes = ops.flip_with_boxes(pixels, boxes)
        missing = _MOST - tf.shape(boxes)[0]
        pixels = tf.transpose(ops.normalize(pixels, MEAN, STD), (2, 0, 1))
        return {
            "image": tf.ensure_shape(pixels, (3, SIZE, SIZE)),
            "boxes": tf.pad(boxes * SIZE, [[0, missing], [0, 0]]),
            "labels": tf.pad(labels, [[0, missing]], constant_values=_NO_LABEL),
        }

    return ops.batches((paths, boxes, labels), scene, BATCH)


def brightness(batch: Any) -> float:
    """Draws differ, so only the light of all photos together can agree (every 16th pixel)."""
    channels = np.asarray(batch)[:, :, ::4, ::4].mean(axis=(2, 3), dtype=np.float64)
    return float((channels * STD + MEAN).sum())


_HAND, _TORCH = "two threads by hand", "torch"

WORKLOAD = Workload(
    name="ssd",
    title="Detection: JPEG, jitter, part by overlap, flip, resize 300, with boxes, batches of 32",
    setting=setting,
    contestants=(
        Contestant(_HAND, two_threads, limit=True, key="image"),
        Contestant("silva auto", silva_auto, key="image"),
        Contestant("tf.data", tensorflow_data, key="image", environment="tensorflow"),
        Contestant("DataLoader, 2 workers", dataloader, key="image", environment=_TORCH),
        Contestant(
            "torchdata.nodes, processes", torchdata, key="image", environment=_TORCH, long=True
        ),
        Contestant("Grain, threads", grain, key="image", environment=_TORCH, long=True),
        Contestant("Ray Data", ray_data, key="image", environment="ray", long=True),
    ),
    targets=(
        Target("silva auto", at_least=0.9, of=_HAND),
        Target("silva auto", at_most=1.15, of=_HAND, metric="cpu_row"),
        Target("silva auto", at_most=1, of="DataLoader, 2 workers", metric="peak"),
    ),
    checksum=brightness,
    tolerance=0.15,
    shape=(3, SIZE, SIZE),
    rounds=3,
    remarks=peers.IMAGES,
)
