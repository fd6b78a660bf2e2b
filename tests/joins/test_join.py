"""`join`: each row gets the columns of the one row that has its key."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.run.pools.pickling import pickle_stage
from silva.testing import assert_same_stream, cut_blocks, digest

ORDERS = {"item": [3, 1, 9, 3], "n": [1, 2, 3, 4]}
ITEMS = {"item": [1, 2, 3], "price": [1.5, 2.5, 3.5], "name": ["a", "b", "c"]}


def orders() -> sv.Pipeline:
    return sv.from_columns(ORDERS)


@pytest.mark.parametrize("other", [ITEMS, pa.table(ITEMS), sv.from_columns(ITEMS)])
def test_a_pipeline_a_table_and_a_dict_are_joined_alike(other):
    rows = orders().join(other, on="item").head(9)
    assert [row["price"] for row in rows] == [3.5, 1.5, None, 3.5]
    assert [row["name"] for row in rows] == ["c", "a", None, "c"]
    assert [row["n"] for row in rows] == [1, 2, 3, 4]


def test_an_inner_join_drops_rows_without_a_match():
    rows = orders().join(ITEMS, on="item", how="inner").head(9)
    assert [(row["n"], row["price"]) for row in rows] == [(1, 3.5), (2, 1.5), (4, 3.5)]


def test_an_inner_join_looks_up_once():
    explained = str(orders().join(ITEMS, on="item", how="inner").explain())
    run = explained.partition("Plan as run")[2]
    assert run.count(".match(") == 1, run


def test_several_keys_must_all_be_equal():
    left = sv.from_columns({"a": [1, 1, 2, 2], "b": ["x", "y", "x", "z"]})
    right = {"a": [1, 2, 2], "c": ["x", "x", "y"], "v": [10, 20, 30]}
    rows = left.join(right, on={"a": "a", "b": "c"}).head(9)
    assert [row["v"] for row in rows] == [10, None, 20, None]


def test_a_repeated_key_on_the_other_side_is_named():
    twice = {"item": [1, 2, 1], "price": [1.0, 2.0, 3.0]}
    with pytest.raises(sv.PlanError, match=r"key item=1 more than once.*explode"):
        orders().join(twice, on="item").head(1)


def test_null_keys_match_nothing_and_may_repeat():
    left = sv.from_columns({"k": np.ma.MaskedArray([1, 2], mask=[True, False])})
    right = pa.table({"k": pa.array([None, None, 2], pa.int64()), "v": [7, 8, 9]})
    assert [row["v"] for row in left.join(right, on="k")] == [None, 9]
    floats = sv.from_columns({"k": [float("nan"), 2.0]})
    nans = {"k": [float("nan"), float("nan"), 2.0], "v": [7, 8, 9]}
    assert [row["v"] for row in floats.join(nans, on="k")] == [None, 9]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (np.array([1, 2], np.uint8), np.array([2, 1], np.int64), [1, 0]),
        (np.array([1.0, 1.5]), np.array([1, 2]), [0, None]),
        (np.array([1, 2]), np.array([1.5, 2.0]), [None, 1]),
        (np.array([2**63, 1], np.uint64), np.array([1, -(2**63)]), [None, 0]),
        (np.array([2**53 + 1]), np.array([2.0**53, 7.5]), [None]),
        (np.array([True, False]), np.array([False, True]), [1, 0]),
        (["a", "é", None], ["é", "a"], [1, 0, None]),
        ([b"a"], [b"a", b"b"], [0]),
        (
            np.array(["2020-01-01T00:00:01.000"], "M8[ms]"),
            np.array(["2020-01-01T00:00:01", "9999-12-31T00:00:00"], "M8[s]"),
            [0],
        ),
        (
            np.array(["2020-01-01T00:00:01.001"], "M8[ms]"),
            np.array(["2020-01-01"], "M8[D]"),
            [None],
        ),
        ([datetime.date(2020, 1, 2)], np.array(["2020-01-02"], "M8[s]"), [0]),
        ([(1, 2), (3, 4)], [(3, 4), (5, 6)], [None, 0]),
        ([2**53 + 1, 0.5, None, 2.0], np.array([2**53, 2, 2**53 + 1]), [2, None, None, 1]),
        ([0.5, 2], np.array([0.5, 2.0, 7.25]), [0, 1]),
    ],
)
def test_keys_are_equal_by_value_whatever_their_type(left, right, expected):
    other = {"k": right, "v": list(range(len(right)))}
    assert [row["v"] for row in sv.from_columns({"k": left}).join(other, on="k")] == expected


def test_key_types_that_can_never_be_equal_are_an_error_at_once():
    words = sv.from_arrow(pa.table({"item": ["a"]}))
    with pytest.raises(sv.PlanError, match=r"'item' is str here, and 'item' is int64.*cast"):
        words.join(ITEMS, on="item")
    with pytest.raises(sv.PlanError, match=r"is bool here, and .* is int64"):
        sv.from_columns({"item": np.array([True])}).join(ITEMS, on="item")


def test_key_types_known_only_from_rows_are_an_error_of_the_row():
    rows = sv.from_columns({"item": [1, 2]}).derive(item=lambda item: str(item))
    with pytest.raises(sv.RowError, match="'item' is a text here and a number"):
        rows.join(ITEMS, on="item").head(1)


def test_a_row_that_cannot_be_looked_up_does_not_change_its_neighbours():
    items = {"k": [1, 2], "v": np.array([1.5, 2.5], np.float32), "w": np.array([1, 2], np.int8)}
    rows = sv.from_columns({"x": range(8)}).derive(k=lambda x: "odd" if x == 5 else x % 3)
    whole = rows.join(items, on="k").batch(7).loader(on_error=sv.Skip(at_most=1), workers=0)
    (batch,) = list(whole)
    assert batch["v"].dtype == np.float32
    assert batch["w"].dtype == np.int8


@pytest.mark.parametrize("instead", [[1, 2], (1, 2, 3), 0])
def test_nulls_keep_their_type_beside_a_row_that_is_substituted(instead):
    items = {"k": [7, 8], "v": np.ones(2, np.float32), "w": np.ones(2, np.int8), "t": [[1], [2]]}
    rows = sv.from_columns({"x": range(6)}).derive(k=lambda x: "odd" if x == 4 else x)
    pipeline = rows.join(items, on="k").batch(2)
    found = []
    for size in (1, 2, 6):
        loader = pipeline.loader(on_error=sv.Substitute(instead), backend="inline")
        found.append(list(cut_blocks(loader, (size,))))
    for batches in found:
        assert [batch["v"].dtype for batch in batches[:2]] == [np.float32] * 2
        assert [batch["w"].dtype for batch in batches[:2]] == [np.int8] * 2
        assert list(map(digest, batches)) == list(map(digest, found[0]))
    substitutes = [found[0][2][name].tolist()[0] for name in "vwt"]
    assert substitutes == (list(instead) if instead == (1, 2, 3) else [instead] * 3)


def test_unread_columns_of_the_other_side_are_not_read(tmp_path):
    pq.write_table(pa.table(ITEMS), tmp_path / "items.parquet")
    asked: list[tuple[str, ...]] = []
    items = sv.read_parquet(tmp_path / "items.parquet")
    source = items.plan.source
    before = type(source).open

    def noted(self, unit, start, columns):
        asked.append(columns)
        return before(self, unit, start, columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(source), "open", noted)
        orders().join(items, on="item").select("n", "price").head(4)
    assert {name for names in asked for name in names} == {"item", "price"}


def test_a_join_that_nobody_reads_is_dropped():
    explained = str(orders().join(ITEMS, on="item").select("n").explain())
    assert "drop_unread" in explained
    assert ".match(" not in explained.partition("Plan as run")[2]


def test_filters_go_before_a_join():
    explained = str(orders().join(ITEMS, on="item").filter(sv.col("n") > 2).explain())
    run = explained.partition("Plan as run")[2]
    assert run.index("filter n > 2") < run.index(".match("), run


def test_the_fingerprint_covers_the_other_side():
    other = {**ITEMS, "price": [1.5, 2.5, 3.75]}
    marks = {orders().join(t, on="item").fingerprint for t in (ITEMS, dict(ITEMS), other)}
    assert len(marks) == 2


def test_the_schema_knows_the_types_of_joined_columns():
    schema = orders().join(pa.table(ITEMS), on="item").schema
    assert schema == {"item": "int64", "n": "int64", "price": "float64", "name": "str"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": "nope"}, "this side has no column 'nope'"),
        ({"on": {"item": "nope"}}, "the other side has no column 'nope'"),
        ({"on": {}}, "is a list of different columns"),
        ({"on": "item", "how": "outer"}, "'left' or 'inner'"),
        ({"on": "item", "columns": ["nope"]}, "no column 'nope'"),
        ({"on": {"n": "item"}, "columns": ["item"]}, "already a column 'item'"),
    ],
)
def test_wrong_arguments_are_errors_when_the_join_is_written(arguments, message):
    with pytest.raises(sv.PlanError, match=message):
        orders().join(ITEMS, **arguments)


def test_other_sides_that_are_not_tables_are_refused():
    with pytest.raises(sv.PlanError, match="a pipeline, an Arrow table or a dict"):
        orders().join([1, 2], on="item")
    with pytest.raises(sv.PlanError, match="before its batch"):
        orders().join(sv.from_columns(ITEMS).batch(2), on="item")
    with pytest.raises(sv.PlanError, match="must come before batch"):
        orders().batch(2).join(ITEMS, on="item")
    noisy = sv.from_columns(ITEMS).derive(z=lambda rng: rng.random())
    with pytest.raises(sv.PlanError, match="draws random numbers"):
        orders().join(noisy, on="item")


def test_an_empty_other_side_gives_nulls():
    none = pa.table({"item": pa.array([], pa.int64()), "price": pa.array([], pa.float32())})
    assert [row["price"] for row in orders().join(none, on="item")] == [None] * 4
    assert orders().join(none, on="item", how="inner").head(1) == []


def test_columns_of_every_kind_are_joined():
    right = pa.table(
        {
            "k": [1, 2],
            "text": ["a", None],
            "lists": [[1, 2], []],
            "flag": [True, None],
            "at": pa.array([1, 2], pa.timestamp("ms")),
        }
    )
    rows = sv.from_columns({"k": [2, 7, 1]}).join(right, on="k").head(3)
    assert [row["text"] for row in rows] == [None, None, "a"]
    assert [None if r["lists"] is None else r["lists"].tolist() for r in rows] == [[], None, [1, 2]]
    assert [row["flag"] for row in rows] == [None, None, True]
    assert rows[1]["at"] is None
    assert rows[2]["at"] == np.datetime64(1, "ms")


def test_images_in_arrays_are_joined():
    right = {"k": [1, 2], "image": np.arange(12, dtype=np.uint8).reshape(2, 2, 3)}
    rows = sv.from_columns({"k": [2, 7]}).join(right, on="k").head(3)
    assert rows[0]["image"].tolist() == [[6, 7, 8], [9, 10, 11]]
    assert rows[1]["image"] is None


def test_one_row_can_be_run_alone():
    assert orders().join(ITEMS, on="item").row("0:1") == {
        "item": 1, "n": 2, "price": 1.5, "name": "a",
    }  # fmt: skip


def test_a_joined_pipeline_gives_one_stream():
    rng = np.random.default_rng(0)
    rows = sv.from_columns({"k": rng.integers(0, 50, 200), "x": range(200)})
    other = {"k": np.arange(40), "w": rng.random(40, np.float32), "t": [str(i) for i in range(40)]}
    joined = rows.join(other, on="k").derive(z=lambda w, rng: (w or 0) + rng.random())
    assert_same_stream(joined.shuffle(seed=1).batch(7), workers=(1, 2))


keys = st.one_of(st.integers(-3, 3), st.none())


@given(
    left=st.lists(st.tuples(keys, st.sampled_from("ab")), max_size=20),
    right=st.lists(st.tuples(keys, st.sampled_from("ab")), max_size=9, unique=True),
    how=st.sampled_from(["left", "inner"]),
)
def test_a_join_equals_a_lookup_in_a_dict(left, right, how):
    ours = sv.from_items([{"a": a, "b": b, "n": i} for i, (a, b) in enumerate(left)])
    theirs = sv.from_items([{"a": a, "b": b, "v": i} for i, (a, b) in enumerate(right)])
    if not left or not right:
        return
    known = {key: i for i, key in enumerate(right) if key[0] is not None}
    expected = [(i, known.get(key)) for i, key in enumerate(left)]
    if how == "inner":
        expected = [pair for pair in expected if pair[1] is not None]
    found = ours.join(theirs, on=("a", "b"), how=how).head(99)
    assert [(row["n"], row["v"]) for row in found] == expected


def test_cached_rows_depend_on_the_contents_of_joined_tables(tmp_path):
    def prices(values: list[float]) -> sv.Pipeline:
        file = tmp_path / "prices.parquet"
        pq.write_table(pa.table({"item": [1, 2, 3], "price": values}), file, compression="none")
        cached = orders().join(sv.read_parquet(file), on="item").cache(tmp_path / "cache")
        return [row["price"] for row in cached.loader(workers=0)]

    assert prices([1.5, 2.5, 3.5]) == [3.5, 1.5, None, 3.5]
    size = (tmp_path / "prices.parquet").stat().st_size
    assert prices([7.0, 8.0, 9.0]) == [9.0, 7.0, None, 9.0]
    assert (tmp_path / "prices.parquet").stat().st_size == size


def test_rows_can_be_sampled_by_a_joined_column():
    weights = {"item": [1, 3, 9], "weight": [0.0, 1.0, 0.0]}
    drawn = orders().join(weights, on="item").sample(weights="weight", size=20)
    assert {row["item"] for row in drawn} == {3}


def test_a_lookup_table_is_sent_to_a_worker_once():
    big = {"k": np.arange(100_000), "v": np.arange(100_000)}
    rows = sv.from_columns({"k": np.arange(50_000)}).join(big, on="k")
    with rows.batch(100).loader(backend="processes", workers=2) as loader:
        assert sum(int(batch["v"].sum()) for batch in loader) == 49_999 * 25_000
        stage = loader._lowered().input.stage
    numbers = 2 * 100_000 + 100_000 + 50_000  # keys and their rows, the values, the left side
    assert len(pickle_stage(stage)) < 8 * numbers + 20_000


def test_numpy_scalars_from_functions_are_keys_like_any_other():
    rows = sv.from_columns({"x": range(3)})
    wide = rows.derive(k=lambda x: np.int64(x) if x else None).join({"k": [1], "v": [7]}, on="k")
    assert [row["v"] for row in wide] == [None, 7, None]
    words = rows.derive(k=lambda x: np.str_(x)).join({"k": ["2"], "v": [7]}, on="k")
    assert [row["v"] for row in words] == [None, None, 7]


def test_keys_beyond_64_bits_are_an_error():
    rows = sv.from_columns({"k": [2**70]})
    with pytest.raises(sv.RowError, match="beyond 64 bits"):
        rows.join({"k": [1], "v": [7]}, on="k").head(1)


def test_the_other_side_does_not_depend_on_seed_or_epoch():
    items = sv.from_columns({"item": range(50), "v": range(50)}).shuffle(seed=3).take(10)
    rows = sv.from_columns({"item": range(50)}).join(items, on="item", how="inner")
    expected = sorted(row["item"] for row in items)
    for seed in (0, 5):
        loader = rows.loader(workers=0, seed=seed)
        for _ in range(2):
            assert [row["item"] for row in loader] == expected


def test_the_other_side_is_read_in_one_pass(tmp_path, monkeypatch):
    pq.write_table(pa.table(ITEMS), tmp_path / "items.parquet")
    items = sv.read_parquet(tmp_path / "items.parquet")
    asked: list[tuple[str, ...]] = []
    before = type(items.plan.source).open

    def noted(self, unit, start, columns):
        asked.append(columns)
        return before(self, unit, start, columns)

    monkeypatch.setattr(type(items.plan.source), "open", noted)
    assert len(orders().join(items, on="item").head(9)) == 4
    assert [sorted(names) for names in asked] == [["item", "name", "price"]]
