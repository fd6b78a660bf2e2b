"""Filters move through `rename`, into `concat` and before `explode`: fewer rows are computed, and
the stream and the states stay the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import silva as sv
from silva.testing import assert_same_stream, cut_blocks, digest, replanned

rows = sv.from_columns({"x": range(40), "y": np.arange(40) % 7})
more = sv.from_columns({"x": range(40, 60), "y": np.arange(20) % 5})
x, y, z = sv.col("x"), sv.col("y"), sv.col("z")


def slow(x: int) -> int:
    slow.calls += 1  # type: ignore[attr-defined]  # a global would be part of its fingerprint
    return x * x


def parts(x: int) -> list[int]:
    parts.calls += 1  # type: ignore[attr-defined]
    return list(range(x % 4))


slow.calls = parts.calls = 0  # type: ignore[attr-defined]


def counted(pipeline: sv.Pipeline, **given: Any) -> tuple[list[tuple[str, str]], int]:
    """Each batch as a digest with the state after it, and how often slow steps were called."""
    slow.calls = parts.calls = 0  # type: ignore[attr-defined]
    loader = pipeline.loader(backend="inline", **given)
    found = [(digest(batch), json.dumps(loader.state_dict())) for batch in loader]
    return found, slow.calls + parts.calls  # type: ignore[attr-defined]


def only(*, y: int) -> bool:
    return y == 3


@sv.owns("why")
def owner(why: np.ndarray) -> bool:
    return bool(why == 3)


@sv.batched(size=3)
def chunked(x: np.ndarray) -> np.ndarray:
    return x + len(x)


slowly = rows.derive(z=slow)
branches = sv.concat([slowly, more.derive(z=slow)])
few = branches.filter(y == 3)
renamed = slowly.rename(y="why", x="y")
exploded = rows.derive(z=parts).explode("z")
both_exploded = sv.concat([exploded, more.derive(z=parts).explode("z")])

MOVED: dict[str, tuple[sv.Pipeline, int]] = {
    "rename": (renamed.filter(sv.col("why") == 3), 6),
    "rename, by a function": (renamed.filter(lambda why: why == 3), 6),
    "rename, by keyword": (slowly.rename(y="a", x="y").rename(y="x", a="y").filter(only), 6),
    "rename, of an owned column": (renamed.filter(owner), 6),
    "rename, of swapped names": (slowly.rename(x="y", y="x").filter(x == 3), 6),
    "rename, at random": (renamed.filter(lambda why, rng: rng.random() < 0.2), 12),
    "concat": (branches.filter(y == 3), 6 + 4),
    "concat, all of one branch": (branches.filter(x >= 45), 15),
    "concat, by a function": (branches.filter(lambda y: y == 3), 6 + 4),
    "concat, at random": (branches.filter(lambda y, rng: rng.random() < 0.2), 16),
    "concat, filters within": (sv.concat([slowly.filter(z < 300), slowly]).filter(y == 3), 6 + 6),
    "concat of concat": (sv.concat([branches, slowly]).filter(y == 3), 16),
    "concat, shuffled in windows": (few.shuffle(seed=1, kind="window", window=3), 10),
    "concat, taken": (branches.filter(y == 3).take(8), 10),
    "concat, skipped": (branches.filter(y == 3).skip(3), 10),
    "concat, in fixed chunks": (branches.filter(y == 3).derive(c=chunked), 10),
    "concat, mixed": (sv.mix([few, rows.derive(z=x)], weights=[1, 1], seed=1), 10),
    "explode": (exploded.filter(y == 3), 6),
    "explode, by a function": (exploded.filter(lambda y: y == 3), 6),
    "explode, then another step": (exploded.derive(w=lambda z: z + 1).filter(y == 3), 6),
    "explode twice": (exploded.derive(a=lambda z: [z, z]).explode("a").filter(y == 3), 6),
    "explode, part of a conjunction": (exploded.filter((y == 3) & (z > 0)), 6),
    "explode, selected": (exploded.select("y", "z").filter(y == 3), 6),
    "explode and rename": (exploded.rename(y="why").filter(sv.col("why") == 3), 6),
    "explode within concat": (both_exploded.filter(y == 3), 10),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("batch", [1, 4, 7])
def test_a_filter_spares_what_it_drops(name: str, batch: int) -> None:
    pipeline, most = MOVED[name]
    found, calls = counted(pipeline.batch(batch))
    assert calls <= most
    expected, before = counted(pipeline.batch(batch).options(optimize=False))
    assert found == expected
    assert calls < before


@pytest.mark.parametrize("name", MOVED)
def test_the_stream_resumes_from_each_state(name: str) -> None:
    pipeline, _ = MOVED[name]
    plain = pipeline.batch(3).options(optimize=False)
    whole, _ = counted(plain)
    for number, (_, state) in enumerate(whole):
        loader = pipeline.batch(3).loader(backend="inline")
        loader.load_state_dict(json.loads(state))
        rest = [(digest(batch), json.dumps(loader.state_dict())) for batch in loader]
        assert rest == whole[number + 1 :]


w, v = sv.col("w"), sv.col("v")
WITH_DERIVATIONS: dict[str, sv.Pipeline] = {
    "one": branches.derive(w=x % 4).derive(v=y).filter(w == 3),
    "two": branches.derive(w=x % 4).derive(u=y).derive(v=w + y).filter(v == 3),
    "of a derived column": branches.derive(w=z % 4).filter(w == 1),
    "a column that is written again": branches.derive(y=x % 4).derive(v=y).filter(y == 3),
    "a column that another step reads": branches.derive(v=y + 1).derive(y=x % 4).filter(y == 3),
    "at random": branches.derive(w=lambda x, rng: x + int(rng.integers(9))).filter(w % 2 == 0),
    "two filters": branches.derive(w=x % 4).filter(w > 1).derive(v=y + w).filter(v % 2 == 0),
    "a function": branches.derive(w=lambda x: x % 4).filter(lambda w: w == 3),
    "before a rename": branches.derive(w=x % 4).rename(w="v", x="w").filter(v == 3),
    "concat of concat": sv.concat([branches, slowly]).derive(w=x % 4).filter(w == 3),
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_DERIVATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_a_filter_takes_its_derivations_into_a_concat(name: str, seed: int) -> None:
    pipeline = WITH_DERIVATIONS[name].batch(4)
    assert "filter_into_concat" in str(pipeline.explain())
    expected, _ = counted(pipeline.options(optimize=False))
    assert counted(pipeline)[0] == expected
    loader = replanned(pipeline.loader(backend="inline"), seed)
    assert [(digest(batch), json.dumps(loader.state_dict())) for batch in loader] == expected
    for number, (_, state) in enumerate(expected):
        loader = pipeline.loader(backend="inline")
        loader.load_state_dict(json.loads(state))
        rest = [(digest(batch), json.dumps(loader.state_dict())) for batch in loader]
        assert rest == expected[number + 1 :]


@sv.stateful
class NotZero:
    def __call__(self, x: int) -> bool:
        return x != 0


def test_a_derivation_stays_behind_the_filter_that_guards_it() -> None:
    for guard in (NotZero(), x != 0, lambda x: x != 0):
        for guarded in (
            branches.filter(guard).derive(w=lambda x: 60 // x),
            branches.filter(guard).rename(x="t").derive(w=lambda t: 60 // t),
            sv.concat([slowly.filter(guard)] * 2).derive(w=lambda x: 60 // x),
            slowly.filter(guard).rename(x="t").derive(w=lambda t: 60 // t),
        ):
            late = guarded.filter(lambda w: w > 3).batch(4)
            expected, _ = counted(late.options(optimize=False))
            assert counted(late)[0] == expected
            for seed in range(3):
                loader = replanned(late.loader(backend="inline"), seed)
                found = [(digest(batch), json.dumps(loader.state_dict())) for batch in loader]
                assert found == expected


KEPT: dict[str, sv.Pipeline] = {
    "concat, below an explode": branches.filter(y == 3).derive(p=lambda x: [x, x]).explode("p"),
    "concat, of rows that are counted": sv.concat([slowly.take(20), more.derive(z=slow).skip(3)])
    .filter(y == 3),
    "explode, of its own column": exploded.filter(z > 0),
    "explode, at random": exploded.filter(lambda y, rng: rng.random() < 0.5),
    "mix": sv.mix([slowly, more.derive(z=slow)], weights=[1, 1], seed=0).filter(y == 3),
    "rename of a derived column": slowly.rename(z="w").filter(sv.col("w") > 9),
    "an impure filter": branches.filter(sv.impure(lambda y: y == 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_a_filter_stays_where_another_row_would_be_kept(name: str) -> None:
    found, calls = counted(KEPT[name].batch(4))
    expected, before = counted(KEPT[name].batch(4).options(optimize=False))
    assert found == expected
    assert calls == before


def chance(y: int) -> bool:
    return bool(np.random.random() < 0.5)


@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_a_filter_that_draws_secretly_draws_for_each_part(backend: str) -> None:
    pipeline = exploded.filter(chance).batch(4)
    plain = pipeline.options(optimize=False).loader(backend="inline")
    found = pipeline.loader(backend=backend, workers=1)  # type: ignore[arg-type]
    for _ in range(2):
        assert [digest(b) for b in found] == [digest(b) for b in plain]


def test_a_filter_that_moved_before_an_explode_keeps_its_draws_and_guards_in_any_order() -> None:
    def guarded(y: int) -> bool:
        return 60 // y > 9  # 0 has no parts

    some = sv.from_columns({"y": np.arange(40) % 7, "z": [[0] * (i % 7) for i in range(40)]})
    for condition in (chance, guarded):
        pipeline = (
            some.derive(w=lambda y: y).filter(lambda w: w < 6).explode("z").filter(condition)
        ).batch(4)
        expected, _ = counted(pipeline.options(optimize=False))
        for given in ({}, {"epochs": 3}, {"epochs": 3, "cache": "off"}):
            for seed in range(4):
                loader = replanned(pipeline.loader(backend="inline", **given), seed)
                found = [(digest(batch), json.dumps(loader.state_dict())) for batch in loader]
                assert found == expected


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_row_that_is_dropped_may_be_one_that_no_explode_can_take_apart(size: int) -> None:
    rows = sv.from_columns({"x": range(4)}).derive(part=lambda x: x).explode("part")
    loader = cut_blocks(rows.filter(sv.col("x") >= 2).loader(backend="inline"), (size,))
    with pytest.raises(sv.RowError, match="explode") as failed:
        list(loader)
    assert failed.value.key == "0:2"


@pytest.mark.parametrize("sizes", [(1,), (1, 5), (3,), (8,)])
def test_a_row_that_is_dropped_does_not_hide_one_that_fails_after_it(sizes: tuple[int]) -> None:
    """A block that fails is repeated as written, where a row before the moved filter fails too."""

    def parts(x: int) -> list[int]:
        if x in (3, 4, 5):
            raise ValueError(x)
        return [x]

    rows = sv.from_columns({"x": range(8)}).derive(part=parts).explode("part")
    loader = cut_blocks(rows.filter(sv.col("x") != 3).loader(backend="inline"), sizes)
    found = []
    with pytest.raises(sv.RowError) as failed:
        found.extend(row["x"] for row in loader)
    assert found == [0, 1, 2]
    assert failed.value.key == "0:4"


def test_failures_are_counted_as_written() -> None:
    def picky(x: int) -> list[int]:
        if x % 5 == 0:
            raise ValueError(x)
        return [x] * (x % 3)

    def with_(pipeline: sv.Pipeline) -> tuple[list[str], list[str]]:
        loader = pipeline.batch(4).loader(backend="inline", on_error=sv.Skip(100))
        found = [digest(batch) for batch in loader]
        return found, [failure.key for failure in loader.failures]

    base = rows.derive(z=picky)
    for pipeline in (
        base.explode("z").filter(y == 3),
        base.rename(y="a").filter(sv.col("a") == 3),
        sv.concat([base, more.derive(z=picky)]).filter(y == 3),
    ):
        assert with_(pipeline) == with_(pipeline.options(optimize=False))


def test_an_error_names_a_filter_as_it_was_written() -> None:
    def picky(why: int) -> bool:
        return 10 // (why - 3) > 2

    many = sv.batched(lambda why: 10 // (why - 3) > 2)
    for condition in (picky, many):
        for base in (slowly, branches):
            late = base.rename(y="why", x="y").filter(condition).batch(4)
            named = []
            for pipeline in (late, late.options(optimize=False)):
                with pytest.raises(sv.RowError) as raised, np.errstate(all="raise"):
                    list(pipeline.loader(backend="inline"))
                named.append((str(raised.value), raised.value.key))
            assert named[0] == named[1]
            assert "why" in named[0][0].split("\n")[0]


def test_a_condition_reaches_the_files_through_rename_and_concat(tmp_path: Path) -> None:
    for name in ("a", "b"):
        table = pa.table({"day": np.arange(100) // 10, "size": np.arange(100)})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=10)
    files = [sv.read_parquet(str(tmp_path / f"{name}.parquet")) for name in ("a", "b")]
    pipeline = sv.concat([file.rename(day="when") for file in files])
    late = pipeline.filter(sv.col("when") == 7).batch(4)
    assert [digest(b) for b in late.loader(backend="inline")] == [
        digest(b) for b in late.options(optimize=False).loader(backend="inline")
    ]


def test_the_stream_does_not_depend_on_how_it_is_run() -> None:
    late = (
        both_exploded.rename(y="a")
        .derive(w=lambda z, rng: z + int(rng.integers(9)))
        .filter(sv.col("a") == 3)
    )
    assert_same_stream(late.batch(4), workers=(2,))


def test_batches_of_like_lengths_have_the_same_states() -> None:
    lengths = branches.filter(y > 3).derive(n=lambda x: [0] * (x % 5 + 1))
    for pipeline in (
        lengths.bucket(by="n", sizes={2: 3, 9: 2}),
        lengths.batch(tokens=12, by="n"),
        lengths.pack("n", length=8),
    ):
        assert counted(pipeline)[0] == counted(pipeline.options(optimize=False))[0]
