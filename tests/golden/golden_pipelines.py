"""Pipelines of every verb, operator and source. Silva 0.1 wrote down their fingerprints and states,
and every later silva must find the same: they name caches, states and columns of tables.

Only what is public is used here, in the way in which it was public in 0.1.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import silva as sv
from silva import col

HERE = Path(__file__).parent
DATA = HERE / "data"
_SCRATCH = tempfile.TemporaryDirectory(prefix="silva-golden-")
OFFSET = 3
HELD = col("x") + 1


def rows(count: int = 24) -> sv.Pipeline:
    x = np.arange(count)
    return sv.from_columns({"x": x, "f": x / 7, "w": [f"Word {i % 5} " for i in x]})


@functools.cache
def table() -> Path:
    """A copy of the golden table: reading one is noted in it."""
    return Path(shutil.copytree(HERE / "table-0.1", Path(_SCRATCH.name) / "table"))


def lists() -> sv.Pipeline:
    return sv.from_items([{"x": i, "t": list(range(i % 4 + 1))} for i in range(18)])


def photos() -> sv.Pipeline:
    return sv.read_files(f"{DATA}/*.png")


def pixels() -> Any:
    return sv.image("bytes").decode()


def tones() -> sv.Pipeline:
    return sv.read_files(f"{DATA}/*.wav")


def tone() -> Any:
    return sv.audio("bytes").decode().mono()


def plus_offset(x: int) -> int:
    return x + OFFSET


def noisy(x: int, rng: np.random.Generator) -> int:
    return x + int(rng.integers(1000))


@sv.batched
def scaled(x: np.ndarray) -> np.ndarray:
    return x * 2.5


@sv.batched(size=4)
def centred(x: np.ndarray) -> np.ndarray:
    return x - x.min()


@sv.stateful
class Adder:
    def __init__(self, amount: int) -> None:
        self.amount = amount

    def __call__(self, x: int) -> int:
        return x + self.amount


class Sign:
    """A callable object."""

    def __init__(self, sign: int) -> None:
        self.sign = sign

    def __call__(self, x: int) -> int:
        return x * self.sign


def collated(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"first": np.array([rows[0]["x"]] * len(rows))}


def letters(text: str) -> list[int]:
    return list(text.encode())


def closed_over(amount: int) -> Callable[[int], int]:
    return lambda x: x + amount


def derived(**steps: Any) -> Callable[[], sv.Pipeline]:
    return lambda: rows().derive(**steps).batch(5)


def imaged(step: Callable[[], Any]) -> Callable[[], sv.Pipeline]:
    return lambda: photos().derive(y=step()).drop("bytes").batch(2)


def heard(step: Callable[[], Any]) -> Callable[[], sv.Pipeline]:
    return lambda: tones().derive(y=step()).drop("bytes").batch(1)


def listed(**steps: Any) -> Callable[[], sv.Pipeline]:
    return lambda: lists().derive(**steps).drop("t").batch(5, pad=0)


EXPRESSIONS: dict[str, Callable[[], sv.Pipeline]] = {
    "source": lambda: rows().batch(5),
    "arithmetic": derived(y=(col("x") * 2 - 1) / 3 + col("f") ** 2),
    "division": derived(y=col("x") // 4, z=col("x") % 4, n=-col("x")),
    "comparison": lambda: (
        rows().filter((col("x") > 3) & ~(col("f") >= 3.0) | (col("x") == 1)).batch(5)
    ),
    "absolute": derived(y=abs(col("x") - 9)),
    "other conditions": lambda: (
        rows().filter((col("x") != 3) ^ (col("f") <= 2.0)).filter(col("x") < 20).batch(5)
    ),
    "membership": lambda: rows().filter(col("x").is_in([1, 5, 7])).batch(2),
    "nulls": derived(y=col("f").is_null()),
    "cast": derived(y=col("x").cast("float32")),
    "num hash": derived(y=sv.num("x").hash(7, seed=3)),
    "num modulo": derived(y=sv.num("x").modulo(5)),
    "num clip": derived(y=sv.num("f").clip(0.5, 2)),
    "num log1p": derived(y=sv.num("f").log1p()),
    "num bucketize": derived(y=sv.num("f").bucketize([0.5, 1, 2])),
    "num standardize": derived(y=sv.num("f").standardize(1.0, 2.0)),
    "num one_hot": derived(y=sv.num("x").modulo(3).one_hot(3)),
    "num fill_null": derived(y=sv.num("f").fill_null(0.0, nan=True)),
    "list hash": listed(y=sv.list("t").hash(10)),
    "list modulo": listed(y=sv.list("t").modulo(2)),
    "list clip": listed(y=sv.list("t").clip(1, 2)),
    "list log1p": listed(y=sv.list("t").log1p()),
    "list bucketize": listed(y=sv.list("t").bucketize([1, 2])),
    "list fill_null": listed(y=sv.list("t").fill_null(0)),
    "list truncate": listed(y=sv.list("t").truncate(2, side="left")),
    "list unique": listed(y=sv.list("t").unique()),
    "list length": listed(y=sv.list("t").length()),
    "list pad": listed(y=sv.list("t").truncate(3).pad(3, -1)),
    "list embed": listed(y=sv.list("t").embed(np.arange(12.0).reshape(4, 3)).length()),
    "text lower": derived(y=sv.text("w").lower().strip()),
    "text upper": derived(y=sv.text("w").upper()),
    "text normalize": derived(y=sv.text("w").normalize("NFKC")),
    "text replace": derived(y=sv.text("w").replace("o+", "0", regex=True)),
    "text split": derived(y=sv.text("w").split().length()),
    "text to_ids": derived(
        y=sv.text("w")
        .split()
        .to_ids({"Word": 0, "1": 1, "2": 2}, unknown=9)
        .add_tokens([7])
        .length()
    ),
    "text length": derived(y=sv.text("w").length()),
    "text decode": lambda: (
        sv.read_files(f"{DATA}/*.txt").derive(y=sv.text("bytes").decode()).select("y").batch(1)
    ),
    "image decode": imaged(pixels),
    "image gray decode": imaged(lambda: sv.image("bytes").decode("gray")),
    "image info": imaged(lambda: sv.image("bytes").info()),
    "image resize": imaged(lambda: pixels().resize(8, 6)),
    "image resize_shorter": imaged(lambda: pixels().resize_shorter(8).center_crop(8)),
    "image crop": imaged(lambda: pixels().crop(1, 2, 6, 5)),
    "image random_crop": imaged(lambda: pixels().random_crop(6)),
    "image random_resized_crop": imaged(lambda: pixels().random_resized_crop(8)),
    "image random_zoom_out": imaged(lambda: pixels().random_zoom_out().resize(8, 8)),
    "image pad": imaged(lambda: pixels().pad(2, fill=7)),
    "image pad_to": imaged(lambda: pixels().pad_to((24, 24))),
    "image rotate": imaged(lambda: pixels().rotate(30)),
    "image color_jitter": imaged(lambda: pixels().color_jitter(0.3, 0.2, 0.1, 0.05)),
    "image gaussian_blur": imaged(lambda: pixels().gaussian_blur(3)),
    "image fixed blur": imaged(lambda: pixels().gaussian_blur(3, sigma=1.5)),
    "image random rotate": imaged(lambda: pixels().rotate((-10, 10))),
    "image random_erasing": imaged(lambda: pixels().random_erasing()),
    "image flip": imaged(lambda: pixels().flip("vertical")),
    "image random_flip": imaged(lambda: pixels().random_flip(0.4)),
    "image grayscale": imaged(lambda: pixels().grayscale(3)),
    "image normalize": imaged(lambda: pixels().normalize(0.5, 0.25)),
    "image to_float": imaged(lambda: pixels().to_float()),
    "image to_chw": imaged(lambda: pixels().to_float().to_chw()),
    "image encode": imaged(lambda: pixels().resize(8, 6).encode("png")),
    "image training": imaged(
        lambda: (
            pixels()
            .random_resized_crop(8)
            .random_flip()
            .to_float()
            .normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])
            .to_chw()
        )
    ),
    "audio duration": heard(lambda: sv.audio("bytes").duration()),
    "audio rate": heard(lambda: sv.audio("bytes").rate()),
    "audio mono": heard(tone),
    "audio resample": heard(lambda: tone().resample(8000, 4000)),
    "audio pad": heard(lambda: tone().pad(900, truncate=True)),
    "audio spectrogram": heard(lambda: tone().spectrogram(64, hop=32)),
    "audio mel": heard(lambda: tone().spectrogram(128).mel(8000, 8).log()),
    "audio decibels": heard(lambda: tone().spectrogram(128).mel(8000, 8).decibels()),
    "audio stretch": heard(lambda: tone().time_stretch(1.2, n_fft=128)),
    "audio random stretch": heard(lambda: tone().random_time_stretch(0.8, 1.2, n_fft=128)),
    "audio masks": heard(
        lambda: tone().spectrogram(128).mel(8000, 8).mask_time(3).mask_frequency(2)
    ),
    "select": lambda: rows().select("w", "x").batch(5),
    "rename": lambda: rows().rename(x="z").filter(col("z") > 2).batch(5),
    "take and skip": lambda: rows().skip(2).take(9).batch(4),
    "shuffle": lambda: rows().shuffle(seed=3).batch(5),
    "window": lambda: rows().shuffle(seed=3, kind="window", window=6).batch(5),
    "shuffle by": lambda: sv.read_table(table()).shuffle(seed=1, by="group").batch(4),
    "sample": lambda: rows().sample(weights=np.arange(24), size=12, seed=2).batch(5),
    "balanced": lambda: rows().sample(balance="w", size=12).batch(5),
    "split": lambda: rows().split(train=0.7, test=0.3, by="x", salt=1)[0].batch(5),
    "explode": lambda: lists().explode("t").batch(5),
    "pack": lambda: lists().pack("t", 8, window=5).batch(2),
    "bucket": lambda: lists().bucket("t", {2: 3, 4: 2}, pad=0),
    "tokens": lambda: lists().batch(tokens=8, by="t", pad=0),
    "per rank": lambda: rows().batch(per_rank=3, drop_last=True),
    "grouped": lambda: rows().batch(6, grouped="w"),
    "pads": lambda: lists().batch(4, pad={"t": -1}),
    "cached": lambda: rows().derive(y=col("x") + 1).cache().batch(5),
    "options": lambda: rows().shuffle().options(seed=4, shards=2, optimize=False).batch(6),
    "close": lambda: (
        photos().derive(y=pixels().resize(4, 4)).select("y").options(fidelity="close").batch(2)
    ),
    "join": lambda: (
        rows().derive(k=col("x") % 5).join({"k": np.arange(4), "v": [1, 2, 3, 4]}, on="k").batch(5)
    ),
    "inner join": lambda: (
        rows().join(sv.from_columns({"x": [1, 4], "v": [2, 3]}), on="x", how="inner").batch(2)
    ),
    "as-of join": lambda: (
        rows()
        .derive(k=col("x") * 0)
        .asof_join({"k": [0, 0], "at": [2, 9], "v": [1, 2]}, by="k", on={"x": "at"}, ttl=20, lag=1)
        .batch(5)
    ),
    "concat": lambda: sv.concat([rows(7), rows(5).shuffle(seed=2)]).batch(4),
    "zip": lambda: sv.zip([rows().select("x"), rows().select("f")]).batch(5),
    "mix": lambda: sv.mix([rows(9), rows(6)], weights=[2, 1], seed=5).batch(4),
    "mix by schedule": lambda: sv.mix(
        [rows(9), rows(6)], weights={0: [2, 1], 5: [1, 1]}, stop="repeat"
    ).batch(4),
    "parquet": lambda: sv.read_parquet(f"{DATA}/numbers.parquet").shuffle(seed=1).batch(7),
    "parquet filtered": lambda: (
        sv.read_parquet(f"{DATA}/numbers.parquet").filter(col("x") > 9).select("y").batch(7)
    ),
    "csv": lambda: sv.read_csv(f"{DATA}/words.csv").batch(3),
    "json": lambda: sv.read_json(f"{DATA}/rows.jsonl").batch(3),
    "lines": lambda: sv.read_lines(f"{DATA}/words.txt").batch(3),
    "npy": lambda: sv.read_npy(f"{DATA}/array.npy").batch(3),
    "arrow": lambda: sv.read_arrow(f"{DATA}/numbers.arrow").batch(7),
    "tar": lambda: sv.read_tar(f"{DATA}/photos.tar").batch(1),
    "table": lambda: sv.read_table(table()).batch(4),
}
"""Their fingerprints are the same with every version of Python and of libraries."""

FUNCTIONS: dict[str, Callable[[], sv.Pipeline]] = {
    "lambda": derived(y=lambda x: x * 2 + 1),
    "several": lambda: rows().derive(lambda x: (x, -x), into=("a", "b")).batch(5),
    "reads": lambda: rows().derive(lambda v: v + 1, into="y", reads="x").batch(5),
    "global": derived(y=plus_offset),
    "random": derived(y=noisy),
    "closure": derived(y=closed_over(4)),
    "numpy": derived(y=lambda f: np.float32(f) * np.pi),
    "batched": derived(y=scaled),
    "chunks": derived(y=centred),
    "stateful": derived(y=Adder(5)),
    "object": derived(y=Sign(-1)),
    "mentions silva": derived(y=lambda x: x if sv.__name__ else 0),
    "mentions a class of silva": derived(y=lambda x: x if sv.Pipeline or col else 0),
    "raises an error of silva": derived(y=lambda x, error=sv.StateError: x if error else 0),
    "map_rows": lambda: rows().map_rows(lambda row: {"a": row["x"]}, into=["a"]).batch(5),
    "filter": lambda: rows().filter(lambda x: x % 3 > 0).batch(5),
    "collate": lambda: rows().batch(5, collate=collated),
    "image random_iou_crop": lambda: (
        photos()
        .derive(boxes=lambda path: np.array([[2.0, 2.0, 9.0, 9.0]]))
        .derive(
            sv.image("bytes", boxes="boxes").decode().random_iou_crop().resize(8, 8),
            into=("y", "found"),
        )
        .select("y")
        .batch(2)
    ),
    "holds an expression": derived(y=lambda x: x if HELD is not None else 0),
    "tokenize by a function": derived(y=sv.text("w").tokenize(letters).length()),
    "tokenize": derived(y=sv.text("w").tokenize(f"{DATA}/tokenizer.json").length()),
    "two columns": derived(y=lambda x, f: x + f),
    "after batch": lambda: rows().batch(6).derive(z=lambda x: x[::-1]),
}
"""Their fingerprints also hold the byte code of a version of Python, and versions of libraries."""

PIPELINES = {**EXPRESSIONS, **FUNCTIONS}


def contents(batch: Any) -> Any:
    """What a batch holds, as plain text."""
    if isinstance(batch, dict):
        return {name: contents(value) for name, value in batch.items()}
    if isinstance(batch, np.ndarray):
        return f"{batch.dtype.str} {batch.shape} {batch.tolist()}"
    if isinstance(batch, sv.Ragged):
        return f"ragged {contents(batch.values)} {contents(batch.offsets)}"
    if isinstance(batch, sv.Grouped):
        return f"grouped {contents(batch.values)} {contents(batch.inverse)}"
    return f"{type(batch).__name__} {batch!r}"
