"""Pipelines of every shape that a cursor can have. The golden states were written of the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import silva as sv

N = 60
Step = Callable[..., int]


def fine(x, rng):
    return x + int(rng.integers(1 << 30))


def fragile(x, rng):
    if x % 17 == 5:
        raise ValueError(f"row {x} is bad")
    return x + int(rng.integers(1 << 30))


@sv.batched(size=7)
def centred(y):
    return y - y.min()


def rows(start: int = 0, count: int = N) -> sv.Pipeline:
    return sv.from_columns({"x": np.arange(start, start + count)})


def listed(start: int = 0, count: int = N) -> sv.Pipeline:
    """Rows with lists of 0 to 4 items."""
    return rows(start, count).derive(t=lambda x: [x * 10 + i for i in range(x % 5)])


def parquet(folder: Path, start: int = 0) -> sv.Pipeline:
    file = folder / f"{start}.parquet"
    if not file.exists():
        pq.write_table(pa.table({"x": np.arange(start, start + N)}), file, row_group_size=8)
    return sv.read_parquet(str(file))


def lines(folder: Path) -> sv.Pipeline:
    for part in range(4):
        file = folder / f"{part}.jsonl"
        if not file.exists():
            numbers = range(part * 15, part * 15 + 15)
            file.write_text("".join(json.dumps({"x": x}) + "\n" for x in numbers))
    return sv.read_json(str(folder / "*.jsonl"))


def length(x):
    return x % 4 + 1


def mixed(step: Step, stop: str = "all") -> sv.Pipeline:
    parts = [rows(0, 30), rows(1000, 12).shuffle(seed=2)]
    return sv.mix([part.derive(y=step) for part in parts], weights=[2, 1], seed=5, stop=stop)


def bucketed(pipeline: sv.Pipeline) -> sv.Pipeline:
    return pipeline.derive(n=length).bucket("n", {1: 3, 2: 4, 4: 5})


def in_shards(pipeline: sv.Pipeline, shards: int) -> sv.Pipeline:
    """Buckets of several shards: of 1, 2 and 3 rows of each."""
    sizes = {1: shards, 2: 2 * shards, 4: 3 * shards}
    return pipeline.derive(n=length).bucket("n", sizes).options(shards=shards)


def packed(step: Step) -> sv.Pipeline:
    return listed().derive(y=step).filter(sv.col("y") >= 0).pack("t", 16, window=12)


def nested(step: Step) -> sv.Pipeline:
    """A mix in a mix, both repeating."""
    inner = sv.mix([rows(0, 7).derive(y=step), rows(100, 4).derive(y=step)], stop="repeat", seed=1)
    return sv.mix([inner, rows(1000, 40).derive(y=step)], weights=[1, 1], seed=3, stop="repeat")


def shapes(folder: Path, step: Step = fine) -> dict[str, Callable[[], sv.Pipeline]]:
    """By name; each makes batches."""
    small = {"k": np.arange(5), "v": np.arange(5) * 100}
    return {
        "plain": lambda: rows().derive(y=step).batch(4),
        "filter, shuffle": lambda: (
            rows().shuffle(seed=1).filter(lambda x: x % 3 > 0).derive(y=step).batch(4)
        ),
        "take, skip": lambda: rows().skip(3).shuffle(seed=1).take(40).derive(y=step).batch(4),
        "sample": lambda: rows().sample(weights=np.arange(N), seed=1).derive(y=step).batch(4),
        "explode": lambda: listed().derive(y=step).explode("t").batch(4),
        "explode twice": lambda: (
            listed()
            .derive(y=step)
            .explode("t")
            .derive(u=lambda t: [t, t + 1])
            .explode("u")
            .batch(5)
        ),
        "explode a cache twice": lambda: (
            listed().explode("t").cache().derive(u=lambda t: [t, -t]).explode("u").batch(5)
        ),
        "fails within a row": lambda: (
            listed().explode("t").derive(z=lambda t, rng: step(t, rng)).batch(4)
        ),
        "window": lambda: listed().derive(y=step).explode("t").shuffle(seed=1, window=10).batch(4),
        "chunks": lambda: rows().derive(y=step).derive(z=centred).batch(4),
        "parquet": lambda: parquet(folder).derive(y=step).batch(4),
        "parquet, shuffled": lambda: (
            parquet(folder).shuffle(seed=1, window=16).derive(y=step).batch(4)
        ),
        "parquet, taken": lambda: (
            parquet(folder).filter(lambda x: x % 4 > 0).skip(5).take(30).derive(y=step).batch(4)
        ),
        "lines": lambda: lines(folder).derive(y=step).batch(4),
        "lines, shuffled": lambda: lines(folder).shuffle(seed=1, window=9).derive(y=step).batch(4),
        "cache": lambda: rows().derive(w=lambda x: x * 2).cache().derive(y=step).batch(4),
        "join": lambda: rows().derive(k=lambda x: x % 5, y=step).join(small, on="k").batch(4),
        "concat": lambda: sv.concat(
            [rows().derive(y=step), parquet(folder, 100).derive(y=step)]
        ).batch(4),
        "zip": lambda: sv.zip(
            [rows().derive(y=fine), listed(0).shuffle(seed=1).rename(x="z")]
        ).batch(4),
        "mix": lambda: mixed(step).batch(4),
        "mix, repeating": lambda: mixed(step, "repeat").batch(4),
        "mix, nested": lambda: nested(step).batch(4),
        "pack": lambda: packed(step).batch(3),
        "tokens": lambda: rows().shuffle(seed=1).derive(y=step, n=length).batch(tokens=12, by="n"),
        "bucket": lambda: bucketed(rows().shuffle(seed=1).derive(y=step)),
        "bucket, exploded": lambda: bucketed(listed().derive(y=step).explode("t")),
        "bucket, mix": lambda: bucketed(mixed(step)),
        "bucket, parquet": lambda: bucketed(
            parquet(folder).shuffle(seed=1, window=16).derive(y=step)
        ),
        "bucket, lines": lambda: bucketed(lines(folder).derive(y=step)),
        "bucket, concat": lambda: bucketed(sv.concat([mixed(step), mixed(step)])),
        "bucket, cache": lambda: bucketed(rows().derive(w=lambda x: x * 2).cache().derive(y=step)),
        "batches taken": lambda: rows().derive(y=step).batch(4).take(9),
        "batches filtered": lambda: (
            rows()
            .derive(y=step)
            .batch(4)
            .filter(lambda x: x[0] % 3 > 0)
            .derive(s=lambda x: x.sum())
        ),
        "sharded": lambda: rows().shuffle(seed=1).derive(y=step).options(shards=3).batch(6),
        "mix, sharded": lambda: mixed(step).options(shards=2).batch(6),
        "parquet, sharded": lambda: parquet(folder).derive(y=step).options(shards=3).batch(6),
        "lines, sharded": lambda: lines(folder).derive(y=step).options(shards=6).batch(6),
        "bucket, sharded": lambda: in_shards(rows().derive(y=step), 2),
    }


def new_shapes(folder: Path, step: Step = fine) -> dict[str, Callable[[], sv.Pipeline]]:
    """Shapes whose states silva 0.1 could not go on from."""
    return {
        "bucket, mix, repeating": lambda: bucketed(mixed(step, "repeat")),
        "bucket, mix, nested": lambda: bucketed(nested(step)),
        "bucket, concat of mixes": lambda: bucketed(
            sv.concat([mixed(step, "repeat"), mixed(step, "repeat")])
        ),
        "bucket, zip of mixes": lambda: bucketed(
            sv.zip(
                [mixed(step, "repeat"), mixed(fine, "repeat").rename(x="x2", y="y2")],
                stop="shortest",
            )
        ),
        "bucket, window, mix": lambda: bucketed(
            mixed(step, "repeat").shuffle(seed=4, window=11).derive(z=fine)
        ),
        "bucket, exploded mix": lambda: bucketed(
            mixed(step, "repeat").derive(t=lambda x: [x] * (x % 3)).explode("t").derive(z=fine)
        ),
        "bucket, mix of parquet": lambda: bucketed(
            sv.mix(
                [
                    parquet(folder).take(20).shuffle(seed=1, window=16).derive(y=step),
                    rows(500, 45).derive(y=step),
                ],
                seed=2,
                stop="repeat",
            )
        ),
        "bucket, chunks": lambda: bucketed(rows().derive(y=step).derive(z=centred)),
        "bucket, chunks of a mix": lambda: bucketed(mixed(step, "repeat").derive(z=centred)),
        "bucket, pack": lambda: (
            packed(step).derive(n=lambda t: int(t[0]) % 4 + 1).bucket("n", {1: 3, 2: 4, 4: 5})
        ),
        "bucket, sharded unevenly": lambda: in_shards(
            rows(0, 50).filter(lambda x: x < 17 or x % 9 == 0).derive(y=step), 3
        ),
    }
