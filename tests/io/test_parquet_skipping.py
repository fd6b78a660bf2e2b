"""Row groups whose statistics say that a filter keeps none of their rows are not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.io.conditions import Condition, conditions
from silva.testing import assert_same_stream


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Ten row groups of ten rows; x ascends, y does not, n has nulls."""
    x = np.arange(100)
    columns = {
        "x": x,
        "y": (x * 37) % 100,
        "f": np.where(x % 9 == 0, np.nan, x / 2).astype(np.float32),
        "n": pa.array([None if i % 4 == 0 else i for i in range(100)]),
        "s": [f"{i:03d}" for i in range(100)],
    }
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=10)
    return str(path)


def feed_line(pipeline: sv.Pipeline) -> str:
    return " ".join(pipeline.explain().split()).partition("feed parquet")[2]


def test_explain_says_how_many_are_skipped(table: str):
    rows = sv.read_parquet(table)
    assert "9 of 10 units skipped" in feed_line(rows.filter(sv.col("x") >= 93))
    assert "8 of 10 units skipped" in feed_line(
        rows.derive(z=lambda y: y).filter(
            (sv.col("x") > 39) & (sv.col("x") < 55) & (sv.col("y") > 1)
        )
    )
    for kept in (
        rows.filter(lambda x: x > 93),
        rows.filter(sv.col("x") != 3),
        rows.filter(sv.col("s") > "093"),
        rows.derive(x=lambda y: y).filter(sv.col("x") > 93),
        rows.derive(z=sv.impure(lambda y: y)).filter(sv.col("x") > 93),
    ):
        assert "skipped" not in feed_line(kept) or " 0 of 10" in feed_line(kept)
    assert "skipped" not in feed_line(rows.filter(sv.col("x") > 93).options(optimize=False))
    assert "skipped" not in rows.filter(sv.col("x") > 93).shuffle(seed=1).explain()


def test_skipped_row_groups_are_not_opened(table: str, monkeypatch: pytest.MonkeyPatch):
    from silva.io.lake.parquet import Parquet

    opened: list[int] = []
    original = Parquet.open

    def watch(self: Parquet, unit: int, start: int, columns: tuple[str, ...]) -> Any:
        opened.append(unit)
        return original(self, unit, start, columns)

    monkeypatch.setattr(Parquet, "open", watch)
    found = sv.read_parquet(table).filter(sv.col("x") == 57).head(9)
    assert [row["x"] for row in found] == [57]
    assert opened == [5]


comparisons = st.sampled_from(
    [
        lambda c, v: c > v, lambda c, v: c >= v, lambda c, v: c < v, lambda c, v: c <= v,
        lambda c, v: c == v, lambda c, v: c != v, lambda c, v: v > c,
    ]
)  # fmt: skip
numbers = st.one_of(st.integers(-5, 105), st.floats(-5, 105), st.just(2**60), st.just(1e300))


@given(
    st.lists(st.tuples(st.sampled_from("xyfn"), comparisons, numbers), min_size=1, max_size=3),
    st.booleans(),
)
def test_the_rows_are_those_of_reading_everything(parts: Any, together: bool):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        x = np.arange(60)
        columns = {
            "x": x,
            "y": (x * 37) % 60,
            "f": np.where(x % 9 == 0, np.nan, x / 2).astype(np.float32),
            "n": pa.array([None if i % 4 == 0 else i for i in range(60)]),
        }
        pq.write_table(pa.table(columns), f"{folder}/t.parquet", row_group_size=7)
        rows = sv.read_parquet(f"{folder}/t.parquet")
        terms = [compare(sv.col(name), value) for name, compare, value in parts]
        if together:
            whole = terms[0]
            for term in terms[1:]:
                whole = whole & term
            rows = rows.filter(whole)
        else:
            for term in terms:
                rows = rows.filter(term)
        quick = [row["x"] for row in rows.head(99)]
        assert quick == [row["x"] for row in rows.options(optimize=False).head(99)]


def test_resume_and_ranks(table: str):
    rows = sv.read_parquet(table).filter((sv.col("x") > 25) & (sv.col("x") < 77))
    assert_same_stream(rows.batch(4), workers=(2,))
    assert_same_stream(rows.options(shards=3).batch(6), workers=(2,), backends=("threads",))


def test_conditions_of_what_cannot_be_told():
    x = sv.col("x")
    assert conditions((x + 1 > 3).term) == ()
    assert conditions(((x > 3) | (x < 1)).term) == ()
    assert conditions((x == "a").term) == ()
    assert conditions((x > True).term) == ()
    assert Condition("x", "greater", 2**60).may_hold(0, 1)
    assert Condition("x", "less", 3).may_hold(float("nan"), 9)


def test_a_number_beside_float32_is_rounded_as_numpy_does(tmp_path: Path):
    data = np.array([0.1, 0.2, 0.3], np.float32)
    pq.write_table(pa.table({"f": data}), tmp_path / "f.parquet", row_group_size=1)
    rows = sv.read_parquet(str(tmp_path / "f.parquet"))
    f = sv.col("f")
    for term in (f <= 0.1, f == 0.2, f >= 0.3, f < 0.1, f > 0.3):
        kept = rows.filter(term)
        assert kept.head(9) == kept.options(optimize=False).head(9)
