"""Makes a dataset from two photographs: crops of many sizes, flipped, brightened and compressed.

A crop depends on its number alone, so an unfinished folder can be completed, and a second run
reuses the files of the first.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from silva.errors import SilvaError

CLASSES = ("china", "flower")
_NEEDS = "silva demo needs scikit-learn (for its photos) and torch: pip install scikit-learn torch"


def make_photos(folder: Path, count: int) -> None:
    """Writes `count` JPEG files, half of each class, into `folder`/china and `folder`/flower."""
    photos = _originals()
    for name in CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        name = CLASSES[number % len(CLASSES)]
        path = folder / name / f"{number:05d}.jpg"
        if not path.exists():
            path.write_bytes(_variant(photos[name], number))


def _originals() -> dict[str, np.ndarray]:
    try:
        from sklearn.datasets import load_sample_image
    except ImportError:
        raise SilvaError(_NEEDS) from None
    return {name: load_sample_image(f"{name}.jpg") for name in CLASSES}


def _variant(photo: np.ndarray, number: int) -> bytes:
    import cv2

    rng = np.random.default_rng(number)
    height, width = photo.shape[:2]
    side = int(rng.integers(120, 320))
    top, left = int(rng.integers(0, height - side)), int(rng.integers(0, width - side))
    crop = photo[top : top + side, left : left + side]
    edge = int(rng.integers(96, 200))
    crop = cv2.resize(crop, (edge, edge), interpolation=cv2.INTER_AREA)
    if rng.random() < 0.5:
        crop = crop[:, ::-1]
    lit = np.clip(crop * rng.uniform(0.7, 1.3), 0, 255).astype(np.uint8)
    quality = int(rng.integers(60, 95))
    _, data = cv2.imencode(".jpg", lit[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    return bytes(data)
