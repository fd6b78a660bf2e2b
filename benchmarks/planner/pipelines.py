"""The pipelines that claims are about, each in the forms that are compared."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import silva as sv

BATCH = 32
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def one_in_ten(path: str) -> bool:
    """A filter that keeps a tenth."""
    return zlib.crc32(path.encode()) % 10 == 0


def filter_last(folder: str) -> sv.Pipeline:
    """A selective filter, written after all the work that it spares."""
    image = sv.image("bytes").decode().resize(224, 224).normalize(MEAN, STD).to_chw()
    photos = sv.read_files(f"{folder}/*.jpg").derive(image=image)
    return photos.filter(lambda path: one_in_ten(path)).select("image").batch(BATCH)


def random_after_decode(folder: str) -> sv.Pipeline:
    """Decoding and resizing are the same in every epoch; the crop is not."""
    image = sv.image("bytes").decode().resize(256, 256).random_crop(224).random_flip()
    image = image.normalize(MEAN, STD).to_chw()
    photos = sv.read_files(f"{folder}/*.jpg").shuffle(seed=0).derive(image=image)
    return photos.select("image").batch(BATCH)


def three_of_forty(file: str) -> sv.Pipeline:
    """Three columns of forty, and the rows of a narrow range."""
    rows = sv.read_parquet(file).filter((sv.col("c00") >= 400_000) & (sv.col("c00") < 460_000))
    return rows.select("c00", "c07", "c31").batch(4096)


# Pipelines whose every plan is tried: the steps, in the order in which somebody may write them.

Steps = dict[str, Callable[[sv.Pipeline], sv.Pipeline]]


def _images(folder: str) -> tuple[sv.Pipeline, Steps, tuple[str, ...]]:
    image = sv.image("bytes").decode().resize(224, 224).to_chw()
    return (
        sv.read_files(f"{folder}/*.jpg"),
        {
            "image": lambda p: p.derive(image=image),
            "few": lambda p: p.filter(lambda path: zlib.crc32(path.encode()) % 3 == 0),
            "large": lambda p: p.filter(lambda bytes: len(bytes) > 30_000),
        },
        ("image",),
    )


def _text(lines: str) -> tuple[sv.Pipeline, Steps, tuple[str, ...]]:
    words = sv.text("text").lower().split()
    return (
        sv.read_lines(lines),
        {
            "words": lambda p: p.derive(words=words),
            "long": lambda p: p.filter(lambda text: len(text) > 60),
            "spread": lambda p: p.filter(lambda text: len(set(text)) > 24),
        },
        ("words",),
    )


def _speech(folder: str) -> tuple[sv.Pipeline, Steps, tuple[str, ...]]:
    mel = sv.audio("bytes").decode(rate=8000).resample(8000, 16000).spectrogram(512)
    return (
        sv.read_files(f"{folder}/*.wav"),
        {
            "mel": lambda p: p.derive(mel=mel.mel(16000, 64).log()),
            "half": lambda p: p.filter(lambda path: zlib.crc32(path.encode()) % 2 == 0),
            "short": lambda p: p.filter(lambda bytes: len(bytes) < 40_000),
        },
        ("mel",),
    )


def _busy(x: int, loops: int) -> int:
    for i in range(loops):
        x = (x * 31 + i) % 1_000_003
    return x


def _locked(rows: int) -> tuple[sv.Pipeline, Steps, tuple[str, ...]]:
    return (
        sv.from_columns({"x": range(int(rows)), "z": range(int(rows))}),
        {
            "y": lambda p: p.derive(y=lambda x: _busy(x, 4000)),
            "third": lambda p: p.filter(lambda z: _busy(z, 1000) % 3 == 0),
            "fifth": lambda p: p.filter(lambda x: _busy(x, 300) % 5 != 0),
        },
        ("y",),
    )


SPACES: dict[str, Callable[[Any], tuple[sv.Pipeline, Steps, tuple[str, ...]]]] = {
    "image": _images,
    "text": _text,
    "audio": _speech,
    "locked": _locked,
}


def orders(space: str, data: Any) -> Iterator[str]:
    """All orders of the steps, as words: `image few large`."""
    _, steps, _ = SPACES[space](data)
    return (" ".join(order) for order in itertools.permutations(steps))


def ordered(space: str, data: Any, order: str) -> sv.Pipeline:
    """The pipeline with its steps in one order."""
    pipeline, steps, kept = SPACES[space](data)
    for name in order.split():
        pipeline = steps[name](pipeline)
    return pipeline.select(*kept).batch(BATCH, pad=0 if space == "audio" else None)


def write_forty(path: Path, rows: int) -> None:
    """A Parquet file of forty columns, sorted by the first, in forty row groups."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    columns = {"c00": np.arange(rows, dtype=np.int64)}
    columns |= {f"c{i:02}": rng.integers(0, 1 << 40, rows) for i in range(1, 40)}
    pq.write_table(pa.table(columns), path, row_group_size=rows // 40)
