"""Batches of distinct rows and an index: the same from every source, plan and place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import silva as sv
from silva.testing import assert_same_stream, digest

HIST = [[1, 2], [1, 2], [3], [1, 2], [], [3], [3], [4, 5, 6]]
TAGS = ["a", "a", "a", "b", "b", "c", "c", "c"]


def log(repeats: int = 1) -> sv.Pipeline:
    return sv.from_columns(
        {"hist": HIST * repeats, "tag": TAGS * repeats, "x": range(len(HIST) * repeats)}
    )


def test_a_batch_holds_each_distinct_row_once_in_the_order_of_appearance() -> None:
    batch = log().batch(8, grouped="hist").head(1)[0]
    hist = batch["hist"]
    assert isinstance(hist, sv.Grouped)
    assert hist.values.tolist() == [1, 2, 3, 4, 5, 6]
    assert hist.offsets.tolist() == [0, 2, 3, 3, 6]
    assert hist.inverse.tolist() == [0, 0, 1, 0, 2, 1, 1, 3]
    assert len(hist) == 8
    assert hist.factor == 2
    assert [row.tolist() for row in hist] == HIST
    assert isinstance(batch["tag"], np.ndarray)


@pytest.mark.parametrize("pad", [None, 0])
def test_expanded_it_is_the_batch_without_groups(pad) -> None:
    plain = log(3).batch(5, pad=pad).head(9)
    grouped = log(3).batch(5, pad=pad, grouped=["hist", "tag"]).head(9)
    for a, b in zip(plain, grouped, strict=True):
        assert digest(a) == digest({**b, "hist": b["hist"].expand(), "tag": b["tag"].expand()})


def test_columns_of_one_group_share_an_index_and_those_of_two_do_not() -> None:
    one = log().batch(8, grouped=("hist", "tag")).head(1)[0]
    assert one["hist"].inverse is one["tag"].inverse
    assert one["hist"].inverse.tolist() == [0, 0, 1, 2, 3, 4, 4, 5]
    two = log().batch(8, grouped=[("hist",), ("tag",)]).head(1)[0]
    assert two["tag"].inverse.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert two["hist"].inverse.tolist() == [0, 0, 1, 0, 2, 1, 1, 3]


def test_a_source_that_groups_rows_gives_the_same_batches() -> None:
    tags = pa.array(TAGS).dictionary_encode()
    grouped = sv.from_arrow(pa.table({"tag": tags, "x": range(8)}))
    plain = sv.from_arrow(pa.table({"tag": TAGS, "x": range(8)}))
    for size in (1, 3, 8):
        batches = [p.batch(size, grouped="tag").head(8) for p in (grouped, plain)]
        assert digest(batches[0]) == digest(batches[1])


def test_the_stream_is_one_however_it_is_run() -> None:
    rows = log(4).derive(sizes=lambda hist: len(hist), more=sv.list("hist").hash(100))
    assert_same_stream(
        rows.shuffle(seed=1).batch(6, grouped=[("more", "sizes"), ("tag",)]), workers=(2,)
    )


def test_ranks_group_the_rows_they_hold() -> None:
    rows = log(2).batch(8, grouped="hist", drop_last=True)
    whole = [row.tolist() for batch in rows.head(2) for row in batch["hist"]]
    seen = []
    for rank in range(2):
        with rows.options(shards=2).loader(workers=0, rank=rank, world=2) as loader:
            seen += [row.tolist() for batch in loader for row in batch["hist"]]
    assert sorted(map(str, seen)) == sorted(map(str, whole))


def test_evaluation_pads_rows_and_groups_them() -> None:
    with log().batch(6, grouped="hist").loader(workers=0, eval=True) as loader:
        last = list(loader)[-1]
    assert last["mask"].tolist() == [True, True, False, False, False, False]
    assert last["hist"].inverse.tolist() == [0, 1, 1, 1, 1, 1]


def test_steps_after_batch_see_the_groups_and_expressions_the_rows() -> None:
    batches = (
        log()
        .batch(8, grouped="hist")
        .derive(distinct=lambda hist: len(hist.unique), double=sv.col("x") * 2)
    )
    batch = batches.head(1)[0]
    assert batch["distinct"] == 4
    assert batch["double"].tolist() == [2 * x for x in range(8)]
    sizes = log().derive(n=lambda hist: len(hist)).batch(8, grouped="n")
    assert sizes.derive(m=sv.col("n") + 1).head(1)[0]["m"].tolist() == [len(h) + 1 for h in HIST]


def test_a_batch_that_is_changed_leaves_the_others_as_they_were() -> None:
    tags = pa.array([5] * 6 + [6] * 2).dictionary_encode()
    rows = sv.from_arrow(pa.table({"tag": tags})).batch(2, grouped="tag").loader(workers=0)
    for batch in rows:
        assert set(batch["tag"].values.tolist()) <= {5, 6}
        batch["tag"].values[:] = -1


def test_what_cannot_be_grouped_is_refused() -> None:
    with pytest.raises(sv.PlanError, match="'nope'"):
        log().batch(2, grouped="nope")
    with pytest.raises(sv.PlanError, match="different columns"):
        log().batch(2, grouped=["hist", "hist"])
    with pytest.raises(sv.PlanError, match="give one"):
        log().batch(2, grouped="hist", collate=lambda rows: rows)
    objects = sv.from_items([{"x": object()}, {"x": object()}])
    with pytest.raises(sv.ColumnError, match=r"'x'.*byte by byte"):
        objects.batch(2, grouped="x").head(1)


def test_plans_show_what_is_grouped() -> None:
    assert "grouped hist with tag" in str(log().batch(2, grouped=("hist", "tag")).explain())
