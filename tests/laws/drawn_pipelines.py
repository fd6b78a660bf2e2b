"""Pipelines drawn by hypothesis from all verbs."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import silva as sv


def base(n: int) -> sv.Pipeline:
    return sv.from_columns(
        {
            "x": np.arange(n),
            "w": np.linspace(0, 1, n, dtype=np.float32),
            "s": [f"s{i}" for i in range(n)],
        }
    )


def mixed_types(x):
    return x if x % 3 else float(x)


def listy(x):
    return list(range(x % 4))


def arrays(x):
    return np.full((2, 3), x, dtype=np.int16)


def maybe_none(x):
    return None if x % 5 == 0 else x


def with_rng(x, rng):
    return x + rng.integers(1000)


@sv.batched
def doubled(x):
    return x * 2


@sv.batched(size=7)
def centred(x):
    return x - x.mean()


PRICES = sv.from_columns(
    {
        "k": np.arange(0, 30, 3),
        "price": np.linspace(0, 1, 10, dtype=np.float32),
        "tags": [[i] * (i % 3) for i in range(10)],
        "name": [f"item {i}" for i in range(10)],
    }
).filter(sv.col("k") != 9)
HISTORY = {
    "s": [f"s{i % 12}" for i in range(60)],
    "at": np.random.default_rng(5).random(60).astype(np.float32),
    "seen": np.random.default_rng(6).random(60) * 1.3,
    "score": [None if i % 7 == 0 else i for i in range(60)],
}


def row_step(name: str):
    def apply(p: sv.Pipeline) -> sv.Pipeline:
        match name:
            case "mixed":
                return p.derive(m=mixed_types)
            case "list":
                return p.derive(l=listy)
            case "array":
                return p.derive(a=arrays)
            case "none":
                return p.derive(n=maybe_none)
            case "rng":
                return p.derive(r=with_rng)
            case "expr":
                return p.derive(e=(sv.col("x") * 3 + 1) % 7)
            case "batched":
                return p.derive(d=doubled)
            case "chunks":
                return p.derive(c=centred)
            case "filter":
                return p.filter(lambda x: x % 4 != 1)
            case "filter_expr":
                return p.filter((sv.col("x") % 5 != 2) & (sv.col("w") >= 0))
            case "filter_random":
                return p.filter(lambda x, rng: rng.random() < 0.7)
            case "explode":
                # Once: rows of five in a row would be 243 times as many, each restored from.
                return p.derive(part=listy).explode("part") if "part" not in p.columns else p
            case "rename":
                return p.rename(w="v").rename(v="w")
            case "shuffle":
                return p.shuffle(seed=3)
            case "window":
                return p.shuffle(seed=4, kind="window", window=6)
            case "take":
                return p.take(23)
            case "skip":
                return p.skip(3)
            case "map_rows":
                return p.map_rows(lambda row: {**row, "x": row["x"] + 1})
            case "select":
                return p.select("x", "w", "s")
            case "join":
                return p.join(PRICES, on={"x": "k"}) if "price" not in p.columns else p
            case "join_inner":
                names = {"price": "p2", "tags": "t2", "name": "n2"}
                other = PRICES.rename(names).select("k", "p2")
                return p.join(other, on={"x": "k"}, how="inner") if "p2" not in p.columns else p
            case "asof":
                if "score" in p.columns:
                    return p
                on = {"w": "at"}
                return p.asof_join(HISTORY, by="s", on=on, ttl=0.6, lag=0.01, available="seen")
            case "split":
                return p.split(a=0.8, by="x")[0]
        raise AssertionError(name)

    return apply


STEPS = [
    "mixed", "list", "array", "none", "rng", "expr", "batched", "chunks", "filter", "filter_expr",
    "filter_random", "explode", "rename", "shuffle", "window", "take", "skip", "map_rows",
    "select", "split", "join", "join_inner", "asof",
]  # fmt: skip

steps = st.lists(st.sampled_from(STEPS), max_size=5)


@st.composite
def rows(draw, depth: int = 1):
    p = base(draw(st.integers(0, 40)))
    for name in draw(steps):
        p = row_step(name)(p)
    if depth and draw(st.booleans()):
        other = base(draw(st.integers(0, 30)))
        for name in draw(
            st.lists(st.sampled_from(["filter", "shuffle", "take", "skip"]), max_size=2)
        ):
            other = row_step(name)(other)
        kind = draw(st.sampled_from(["concat", "mix", "mix_first", "mix_repeat", "zip"]))
        p = p.select("x", "w", "s")
        if kind == "concat":
            p = sv.concat([p, other])
        elif kind == "zip":
            p = sv.zip([p, other.select("x").rename(x="z")], stop="shortest")
        else:
            stop = {"mix": "all", "mix_first": "first", "mix_repeat": "repeat"}[kind]
            weights = draw(st.sampled_from([[1, 1], [3, 1], [0, 1], {0: [1, 0], 10: [1, 3]}]))
            p = sv.mix([p, other], weights, seed=2, stop=stop)
        for name in draw(
            st.lists(st.sampled_from(["rng", "filter", "explode", "take"]), max_size=2)
        ):
            p = row_step(name)(p)
    return p


@st.composite
def pipelines(draw):
    p = draw(rows())
    match draw(
        st.sampled_from(["batch", "drop", "pad", "tokens", "bucket", "pack", "rows", "after"])
    ):
        case "batch":
            return p.batch(draw(st.integers(1, 9)))
        case "drop":
            return p.batch(4, drop_last=True)
        case "pad":
            return p.derive(q=listy).batch(5, pad=0)
        case "tokens":
            return p.derive(q=listy).batch(tokens=9, by="q", pad=0)
        case "bucket":
            return p.derive(q=listy).bucket("q", {1: 3, 2: 2, 4: 4}, pad=-1)
        case "pack":
            return p.derive(q=listy).pack("q", 5, window=8).batch(3)
        case "rows":
            return p
        case "after":
            batched = p.batch(6)
            return batched.derive(total=lambda x, rng: x.sum() + rng.integers(9)).filter(
                lambda total: total % 2 == 0
            )
    raise AssertionError
