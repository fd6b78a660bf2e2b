"""Rows of a Lance dataset that a filter drops: those that an index rules out are not read at all,
and of the others the wide columns are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.testing import assert_same_stream

lance = pytest.importorskip("lance")

ROWS = 120
INDICES = ("BTREE", "BITMAP", "ZONEMAP")


def columns(start: int, count: int) -> pa.Table:
    x = np.arange(start, start + count)
    floats = np.where(x % 9 == 0, np.nan, (x - 30) / 2)
    floats[x % 11 == 3] = -0.0
    floats[x % 13 == 5] = np.inf
    return pa.table(
        {
            "x": x,
            "small": pa.array((x % 200 - 100).astype(np.int8)),
            "u": pa.array(x.astype(np.uint64) + np.uint64(2**53 * (x % 2))),
            "f": pa.array(floats.astype(np.float32)),
            "d": pa.array(floats),
            "n": pa.array([None if i % 4 == 0 else int(i) for i in x]),
            "g": pa.array([None if i % 5 == 0 else float(i) / 10 for i in x], pa.float32()),
            "two words": x % 7,
            "s": [f"{i:03d}" for i in x],
            "blob": [bytes([i % 256]) * 2000 for i in x],
        }
    )


def written(path: Path, index: str | None, holes: bool) -> Path:
    """Four fragments, of which the last is not indexed."""
    dataset = lance.write_dataset(columns(0, ROWS - 20), path, max_rows_per_file=40)
    if index is not None:
        for name in ("x", "small", "u", "f", "d", "n", "g", "two words"):
            dataset.create_scalar_index(name, index)
    dataset = lance.write_dataset(columns(ROWS - 20, 20), path, mode="append")
    if holes:
        dataset.delete("x % 7 = 2 OR (x > 30 AND x < 50)")
    return path


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    folder = tmp_path_factory.mktemp("lance")
    return {
        (index, holes): written(folder / f"{index}-{holes}.lance", index, holes)
        for index in INDICES
        for holes in (False, True)
    }


def feed_line(pipeline: sv.Pipeline) -> str:
    return " ".join(str(pipeline.explain()).split()).partition("feed lance")[2]


def bytes_read(pipeline: sv.Pipeline) -> tuple[list[int], int]:
    """The rows that come out, by x, and the bytes that were read for them."""
    with pipeline.loader(backend="inline") as loader:
        dataset = source_of(pipeline)._dataset
        dataset.io_stats_incremental()
        found = [row["x"] for row in loader]
        return found, dataset.io_stats_incremental().read_bytes


def source_of(pipeline: sv.Pipeline) -> Any:
    node = pipeline.plan
    while node.inputs:
        node = node.inputs[0]
    return node.source


# Indices.


def test_explain_says_how_many_rows_an_index_rules_out(datasets: dict[Any, Path]):
    rows = sv.read_lance(datasets["BTREE", False])
    # 6 of the 100 rows that are indexed are left; of 20 others nothing is known
    assert "94 of 120 rows skipped by an index" in feed_line(
        rows.derive(z=lambda s: s).filter((sv.col("x") > 13) & (sv.col("x") <= 18))
    )
    assert "skipped" in feed_line(rows.filter(sv.col("x") > 93).shuffle(seed=1))
    for kept in (
        rows.filter(lambda x: x > 93),
        rows.filter(sv.col("x") != 3),
        rows.filter(sv.col("s") > "093"),
        rows.derive(x=lambda s: int(s)).filter(sv.col("x") > 93),
        rows.filter(sv.col("x") > 93).options(optimize=False),
        rows.filter(sv.col("x") > float(2**60)),
    ):
        assert "skipped" not in feed_line(kept)


def test_without_an_index_nothing_is_said_of_one(tmp_path: Path):
    rows = sv.read_lance(written(tmp_path / "t.lance", None, False))
    assert "skipped" not in feed_line(rows.filter(sv.col("x") > 93))


def test_rows_that_an_index_rules_out_are_not_read(
    datasets: dict[Any, Path], monkeypatch: pytest.MonkeyPatch
):
    from silva.io.lake.lance import LanceDataset

    seen: list[int] = []
    original = LanceDataset.read

    def watch(self: LanceDataset, rows: np.ndarray, names: tuple[str, ...]) -> Any:
        seen.extend(rows.tolist())
        return original(self, rows, names)

    monkeypatch.setattr(LanceDataset, "read", watch)
    for index in INDICES:
        seen.clear()
        rows = sv.read_lance(datasets[index, False]).filter(sv.col("x") == 57).select("x", "s")
        assert [row["x"] for row in rows.head(9)] == [57]
        assert seen == [57, *range(100, 120)], "and those that are not indexed"


comparisons = st.sampled_from(
    [
        lambda c, v: c > v, lambda c, v: c >= v, lambda c, v: c < v, lambda c, v: c <= v,
        lambda c, v: c == v, lambda c, v: c != v, lambda c, v: v > c,
    ]
)  # fmt: skip
numbers = st.one_of(
    st.integers(-130, 130),
    st.floats(-130, 130),
    st.sampled_from([0.0, -0.0, 0.1, 2**53, 2.0**53, 2**60, -(2**40), 1e300, -1e300, 1e-50]),
    st.sampled_from([float("inf"), float("-inf"), float("nan")]),
)
names = st.sampled_from(["x", "small", "u", "f", "d", "n", "g", "two words"])


@given(
    st.lists(st.tuples(names, comparisons, numbers), min_size=1, max_size=3),
    st.sampled_from(INDICES),
    st.booleans(),
    st.booleans(),
)
def test_the_rows_are_those_of_reading_everything(
    datasets: dict[Any, Path], parts: Any, index: str, holes: bool, shuffled: bool
):
    rows = sv.read_lance(datasets[index, holes])
    rows = rows.shuffle(seed=5) if shuffled else rows
    for name, compare, value in parts:
        rows = rows.filter(compare(sv.col(name), value))
    rows = rows.select("x", "blob")
    quick = [(row["x"], row["blob"]) for row in rows.head(999)]
    assert quick == [(row["x"], row["blob"]) for row in rows.options(optimize=False).head(999)]


@pytest.mark.rest
def test_resume_ranks_and_backends(datasets: dict[Any, Path]):
    rows = sv.read_lance(datasets["BTREE", True])
    wanted = (sv.col("x") > 25) & (sv.col("x") < 107)
    assert_same_stream(rows.filter(wanted).options(shards=3).batch(6), workers=(2,))
    shuffled = rows.shuffle(seed=2).filter(wanted).select("x", "blob", "s")
    assert_same_stream(shuffled.batch(4), workers=(2,), backends=("inline", "threads"))


def test_rows_that_are_skipped_change_no_state(datasets: dict[Any, Path]):
    some = sv.read_lance(datasets["ZONEMAP", True]).filter(sv.col("x") >= 60).select("x").batch(3)
    with some.loader(backend="inline") as loader:
        batches = [(b["x"].tolist(), loader.state_dict()) for b in loader]
    everything = [x for x, _ in batches]
    for done, (_, state) in enumerate(batches[:-1]):
        with some.options(optimize=False).loader(backend="inline") as again:
            again.load_state_dict(state)
            assert [b["x"].tolist() for b in again] == everything[done + 1 :]


def test_a_damaged_index_is_told_and_not_passed_over(tmp_path: Path):
    path = written(tmp_path / "t.lance", "BTREE", False)
    for file in (path / "_indices").rglob("*.lance"):
        file.write_bytes(b"nothing")
    rows = sv.read_lance(path).filter(sv.col("x") > 3)
    with pytest.raises(sv.SourceError, match="index"):
        rows.head(1)
    assert len(rows.options(optimize=False).head(999)) == ROWS - 4


# Wide columns.


def test_wide_columns_are_read_only_of_rows_that_are_kept(tmp_path: Path):
    rows = sv.read_lance(written(tmp_path / "t.lance", None, True)).shuffle(seed=1)
    kept = rows.filter(lambda x: x % 20 == 5).select("x", "blob")
    assert "read x; read blob after the filters" in " ".join(str(kept.explain()).split())
    assert "only for rows that its filters keep" in str(kept.why("blob"))
    found, few = bytes_read(kept)
    same, all_of_them = bytes_read(kept.options(optimize=False))
    assert found == same
    assert sorted(found) == [5, 25, 85, 105]
    assert few < all_of_them / 5


def test_a_filter_on_a_wide_column_leaves_the_others_for_later(tmp_path: Path):
    data = columns(0, 60).append_column("text", pa.array([f"{i % 6} " * 200 for i in range(60)]))
    lance.write_dataset(data, tmp_path / "t.lance")
    rows = sv.read_lance(tmp_path / "t.lance").filter(lambda text: text[0] == "3")
    kept = rows.select("x", "blob", "text")
    assert "read x, text; read blob after the filters" in " ".join(str(kept.explain()).split())
    found, few = bytes_read(kept)
    same, all_of_them = bytes_read(kept.options(optimize=False))
    assert found == same
    assert few < all_of_them / 2


def test_what_is_wide_is_told_by_what_the_rows_take(tmp_path: Path):
    rng = np.random.default_rng(0)
    noise = [rng.bytes(400).hex() for _ in range(50)]
    data = pa.table(
        {
            "short": [f"{i}" for i in range(50)],
            "long": noise,
            "list": [list(rng.random(99)) for _ in range(50)],
            "struct": [{"a": i, "b": text} for i, text in enumerate(noise)],
        }
    )
    lance.write_dataset(data, tmp_path / "t.lance")
    assert source_of(sv.read_lance(tmp_path / "t.lance")).costly == ("long", "list", "struct.b")
    lance.write_dataset(data.slice(0, 0), tmp_path / "none.lance")
    assert sv.read_lance(tmp_path / "none.lance").filter(sv.col("short") == "1").head(3) == []
