"""The pipelines of the demo: all that a user would write."""

from __future__ import annotations

from pathlib import Path

import silva as sv
from silva.demo.photos import CLASSES
from silva.pipeline import Pipeline

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = 64
BATCH = 50


def training(folder: Path) -> tuple[Pipeline, Pipeline]:
    """Returns the pipelines for training and for validation, split by the names of the photos."""
    photos = sv.read_files(f"{folder}/*/*.jpg").derive(
        name=lambda path: Path(path).name,
        label=lambda path: CLASSES.index(Path(path).parent.name),
    )
    train, val = photos.split(train=0.9, val=0.1, by="name")
    decoded = sv.image("bytes").decode()
    train = (
        train.shuffle(seed=0)
        .derive(image=decoded.random_resized_crop(SIZE).random_flip().normalize(MEAN, STD).to_chw())
        .select("image", "label")
        .batch(BATCH, drop_last=True)
    )
    val = (
        val.derive(image=decoded.resize(SIZE, SIZE, "area").normalize(MEAN, STD).to_chw())
        .select("image", "label")
        .batch(BATCH)
    )
    return train, val
