"""Photos for a classifier: decode, random resized crop, flip, normalise, channels first.

The limit is two threads that call simplejpeg and OpenCV by hand, in the same order; DataLoader
runs the same lines in two processes. No target here: image operators have benchmarks of their own.
The photos are cut from the two that scikit-learn brings along, or taken from the folder
`SILVA_BENCH_DATA`.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workload import BATCH, Contestant, Open, Workload

_SIZE = 224
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_ENDINGS = (".jpg", ".jpeg", ".JPG", ".JPEG")
_THREADS = 2


@contextmanager
def setting(quick: bool) -> Iterator[dict[str, Any]]:
    count = 128 if quick else 1024
    given = os.environ.get("SILVA_BENCH_DATA")
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as made:
        if given:
            found = sorted(str(p) for p in Path(given).rglob("*") if p.suffix in _ENDINGS)[:count]
            if not found:
                raise SystemExit("SILVA_BENCH_DATA is a folder without JPEG files")
            for number, path in enumerate(found):
                os.symlink(os.path.abspath(path), f"{made}/{number:05}.jpg")
        else:
            cut_photos(Path(made), count)
        yield {"folder": made}


def cut_photos(folder: Path, count: int) -> None:
    """Varied parts of real photos, about 500 × 375, as most of ImageNet."""
    import simplejpeg
    from sklearn.datasets import load_sample_images

    photos = load_sample_images().images
    rng = np.random.default_rng(0)
    for number in range(count):
        photo = photos[number % len(photos)]
        height, width = int(rng.integers(300, 427)), int(rng.integers(400, 640))
        top = int(rng.integers(0, photo.shape[0] - height + 1))
        left = int(rng.integers(0, photo.shape[1] - width + 1))
        part = np.ascontiguousarray(photo[top : top + height, left : left + width])
        data = simplejpeg.encode_jpeg(part, quality=92, colorspace="RGB")
        (folder / f"{number:05}.jpg").write_bytes(data)


def silva_auto(folder: str) -> Open:
    import cv2  # noqa: F401  what others import before the clock starts, silva may too
    import simplejpeg  # noqa: F401

    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    image = sv.image("bytes").decode().random_resized_crop(_SIZE).random_flip()
    photos = sv.read_files(f"{folder}/*.jpg").derive(image=image.normalize(_MEAN, _STD).to_chw())
    return lambda: photos.select("image").batch(BATCH).loader()


class ByHand:
    """What a person would write: one photo, from its file to float32 channels."""

    def __init__(self, folder: str) -> None:
        import cv2

        cv2.setNumThreads(1)
        self.paths = sorted(str(p) for p in Path(folder).glob("*.jpg"))
        levels = np.arange(256, dtype=np.float32)[:, None] / np.float32(255)
        self._table: Any = ((levels - np.array(_MEAN, np.float32)) / np.array(_STD, np.float32))[
            None
        ]

    def read(self, index: int, out: np.ndarray) -> None:
        import cv2
        import simplejpeg

        rng = np.random.default_rng((0, index))
        photo = simplejpeg.decode_jpeg(Path(self.paths[index]).read_bytes(), "RGB")
        top, left, height, width = draw_box(rng, *photo.shape[:2])
        part = cv2.resize(photo[top : top + height, left : left + width], (_SIZE, _SIZE))
        if rng.random() < 0.5:
            part = cv2.flip(part, 1)
        np.copyto(out, cv2.LUT(part, self._table).transpose(2, 0, 1))


def draw_box(rng: np.random.Generator, height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height, width of a random resized crop, by torchvision's rules."""
    for _ in range(10):
        area = height * width * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top, left = rng.integers(0, height - h + 1), rng.integers(0, width - w + 1)
            return int(top), int(left), h, w
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (height - h) // 2, (width - w) // 2, h, w


def two_threads(folder: str) -> Open:
    hand = ByHand(folder)
    count = len(hand.paths)

    def make(start: int) -> np.ndarray:
        rows = range(start, min(start + BATCH, count))
        batch = np.empty((len(rows), 3, _SIZE, _SIZE), np.float32)
        for out, index in zip(batch, rows, strict=True):
            hand.read(index, out)
        return batch

    def batches() -> Iterator[np.ndarray]:
        waiting: deque[Future[np.ndarray]] = deque()
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(0, count, BATCH):
                waiting.append(pool.submit(make, start))
                if len(waiting) > 2 * _THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    return batches


def dataloader(folder: str) -> Open:
    import torch
    import torch.utils.data as data

    hand = ByHand(folder)

    class Photos(data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return len(hand.paths)

        def __getitem__(self, index: int) -> torch.Tensor:
            out = np.empty((3, _SIZE, _SIZE), np.float32)
            hand.read(index, out)
            return torch.from_numpy(out)

    return lambda: data.DataLoader(Photos(), batch_size=BATCH, num_workers=2)


def brightness(batch: Any) -> float:
    """Draws differ, so only the light of all photos together can agree (every 16th pixel)."""
    numbers = np.asarray(batch)
    assert numbers.dtype == np.float32
    assert numbers.shape[1:] == (3, _SIZE, _SIZE)
    channels = numbers[:, :, ::4, ::4].mean(axis=(2, 3), dtype=np.float64)
    return float((channels * _STD + _MEAN).sum())


WORKLOAD = Workload(
    name="images",
    title="JPEG photos: decode, random resized crop 224, flip, normalise, batches of 32",
    setting=setting,
    contestants=(
        Contestant("two threads by hand", two_threads, limit=True),
        Contestant("silva auto", silva_auto, key="image"),
        Contestant("DataLoader, 2 workers", dataloader),
    ),
    checksum=brightness,
    tolerance=0.05,
)
