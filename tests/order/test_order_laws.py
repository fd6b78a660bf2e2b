"""The algebra of order: permutations, draws, mixing, packing, shards."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.order.draws import Draw, stream_key
from silva.order.mixing import Chooser
from silva.order.packing import pack_spans, split_long
from silva.order.permutation import permute
from silva.order.shards import redistribute, shard_range


@given(st.integers(1, 3000), st.integers())
def test_a_permutation_hits_every_place_once(n, seed):
    assert np.array_equal(np.sort(permute(np.arange(n), n, seed)), np.arange(n))


@given(st.integers(2, 10**12), st.integers(0, 2**40))
def test_a_permutation_is_computed_place_by_place_and_stays_inside(n, seed):
    places = np.array([0, n // 2, n - 1])
    together = permute(places, n, seed)
    assert ((together >= 0) & (together < n)).all()
    assert [int(permute(places[i : i + 1], n, seed)[0]) for i in range(3)] == together.tolist()


def test_a_permutation_mixes():
    n = 10_000
    shuffled = permute(np.arange(n), n, "mix", 1)
    assert abs(np.corrcoef(np.arange(n), shuffled)[0, 1]) < 0.05
    assert (np.abs(np.diff(shuffled)) < n / 100).mean() < 0.05


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20), st.integers(1, 7))
def test_draws_are_a_function_of_the_row_alone(ids, count):
    rows = np.array(ids, dtype=np.uint64)
    key = stream_key(1, 2, "step")
    together = Draw(key, rows).uniform(count)
    assert ((together >= 0) & (together < 1)).all()
    for i in range(len(ids)):
        assert np.array_equal(Draw(key, rows[i : i + 1]).uniform(count)[0], together[i])
    generators = [g.random() for g in Draw(key, rows).generators()]
    assert generators == [
        next(Draw(key, rows[i : i + 1]).generators()).random() for i in range(len(ids))
    ]


def test_uniform_draws_are_uniform_and_independent():
    u = Draw(stream_key("u"), np.arange(20_000, dtype=np.uint64)).uniform(4)
    assert np.abs(u.mean(axis=0) - 0.5).max() < 0.01
    assert np.abs(u.var(axis=0) - 1 / 12).max() < 0.005
    assert np.abs(np.corrcoef(u.T) - np.eye(4)).max() < 0.03


def test_two_equal_random_views_differ_and_dropping_one_changes_no_other():
    rows = sv.from_columns({"x": range(8)})
    both = rows.derive(a=lambda rng: rng.random()).derive(b=lambda rng: rng.random())
    a, b = zip(*[(r["a"], r["b"]) for r in both.head(8)], strict=True)
    assert set(a).isdisjoint(b)
    alone = rows.derive(b=lambda rng: rng.random())
    assert [r["b"] for r in alone.head(8)] == list(b)
    again = both.derive(a=lambda rng: rng.random())
    assert {r["a"] for r in again.head(8)}.isdisjoint(a)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any),
    st.integers(0, 1000),
    st.integers(0, 99),
)
def test_a_mix_stays_within_two_of_its_shares_at_every_length(weights, rows, seed):
    chooser = Chooser(((0, tuple(map(float, weights))),), [0] * len(weights), (seed,))
    for n in range(1, min(rows, 200) + 1):
        chooser.take(chooser.next([True] * len(weights)))
        for given_rows, weight in zip(chooser.given, weights, strict=True):
            assert abs(given_rows - n * weight / sum(weights)) <= 2


@given(st.lists(st.integers(0, 40), max_size=40), st.integers(1, 12))
def test_packing_loses_nothing_and_overfills_nothing(lengths, limit):
    lines = pack_spans(split_long(np.array(lengths, dtype=int), limit), limit)
    items = [(row, i) for line in lines for row, a, b in line for i in range(a, b)]
    assert sorted(items) == [(row, i) for row, n in enumerate(lengths) for i in range(n)]
    assert all(sum(b - a for _, a, b in line) <= limit for line in lines)
    if lines:
        assert len(lines) <= 2 * -(-sum(lengths) // limit)


@given(st.integers(0, 200), st.integers(1, 13))
def test_shards_cover_the_order_in_nearly_equal_parts(count, shards):
    ranges = [shard_range(count, shards, s) for s in range(shards)]
    assert [i for a, b in ranges for i in range(a, b)] == list(range(count))
    sizes = [b - a for a, b in ranges]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 7), st.data())
def test_redistributing_keeps_exactly_what_remains(count, old, new, data):
    remaining = []
    for shard in range(old):
        a, b = shard_range(count, old, shard)
        remaining.append(((data.draw(st.integers(a, b)), b),))
    dealt = redistribute(remaining, new)
    left = [i for ranges in remaining for a, b in ranges for i in range(a, b)]
    assert [i for ranges in dealt for a, b in ranges for i in range(a, b)] == left
    sizes = [sum(b - a for a, b in ranges) for ranges in dealt]
    assert max(sizes) - min(sizes) <= 1


def test_weights_that_are_missing_are_refused_however_they_are_passed():
    weights = np.ma.array([1.0, 200, 1], mask=[0, 1, 0])
    rows = sv.from_columns({"i": np.arange(3), "w": weights})
    for passed in (weights, "w"):
        with pytest.raises(sv.PlanError, match="some rows have none"):
            rows.sample(weights=passed, size=300, seed=0).head(1)
    whole = np.ma.array([1.0, 2, 1], mask=False)
    assert rows.sample(weights=whole, seed=0).head(3) == rows.sample([1, 2, 1], seed=0).head(3)


@pytest.mark.filterwarnings("error")
def test_weights_whose_sum_is_too_large_for_a_float_are_honoured():
    rows = sv.from_columns({"i": np.arange(4)})
    large = [row["i"] for row in rows.sample([1e308] * 4, size=400, seed=0)]
    assert large == [row["i"] for row in rows.sample([1.0] * 4, size=400, seed=0)]
    assert min(np.bincount(large, minlength=4)) > 60


def test_weighted_samples_follow_their_weights_and_balance_classes():
    rows = sv.from_columns({"x": np.arange(100), "label": [int(i >= 90) for i in range(100)]})
    drawn = np.array([r["x"] for r in rows.sample(weights="label", size=500).head(500)])
    assert (drawn >= 90).all()
    balanced = rows.sample(balance="label", size=4000, seed=1).batch(4000).head(1)[0]
    assert abs(balanced["label"].mean() - 0.5) < 0.05
    twice = rows.sample(weights=np.ones(100), size=300).derive(u=lambda rng: rng.random())
    values = [r["u"] for r in twice.head(300)]
    assert len(set(values)) == 300  # a row drawn twice is augmented differently


def test_samples_of_a_shuffled_order_follow_the_weights_of_their_own_rows():
    rows = sv.from_columns({"x": np.arange(40), "w": [float(i >= 30) for i in range(40)]})
    for kind in ("global", "window"):
        mixed = rows.skip(10).shuffle(seed=1, kind=kind, window=8)
        for weights in ("w", np.arange(30) >= 20):
            drawn = [row["x"] for row in mixed.sample(weights, size=50, seed=1)]
            assert min(drawn) >= 30
            assert len(set(drawn)) > 5


@pytest.mark.parametrize(
    "below",
    [
        lambda rows: rows.shuffle(seed=1).take(20),
        lambda rows: rows.shuffle(seed=1, kind="window", window=8).skip(20),
        lambda rows: rows.sample("w", size=40),
    ],
    ids=["take of a shuffle", "skip of a shuffle", "sample"],
)
def test_a_sample_of_rows_that_differ_in_each_epoch_is_refused(below):
    rows = sv.from_columns({"x": np.arange(40), "w": [float(i >= 10) for i in range(40)]})
    with pytest.raises(sv.PlanError, match=r"same rows in each epoch.*before shuffle"):
        below(rows).sample("w", seed=1).head(1)


@pytest.mark.filterwarnings("error")
def test_weights_of_a_mix_whose_sum_is_too_large_for_a_float_are_honoured():
    parts = [sv.from_columns({"x": np.full(50, i)}) for i in range(4)]
    large = [row["x"] for row in sv.mix(parts, weights=[1e308] * 4, seed=1)]
    assert large == [row["x"] for row in sv.mix(parts, weights=[1.0] * 4, seed=1)]


def test_splits_are_disjoint_complete_and_stable_as_data_grows():
    def parts(n: int) -> tuple[set[int], set[int]]:
        split = sv.from_columns({"x": range(n)}).split(train=0.8, val=0.2, by="x")
        return tuple({row["x"] for row in part.head(n)} for part in split)

    train, val = parts(1000)
    assert train | val == set(range(1000))
    assert not train & val
    assert 150 < len(val) < 250
    grown_train, grown_val = parts(1500)
    assert train <= grown_train
    assert val <= grown_val


def test_epochs_differ_and_set_epoch_returns_to_one():
    rows = sv.from_columns({"x": range(50)}).shuffle(seed=0).batch(50)
    loader = rows.loader(backend="inline")
    first, second = next(iter(loader))["x"].tolist(), next(iter(loader))["x"].tolist()
    assert first != second
    assert sorted(first) == sorted(second)
    loader.set_epoch(0)
    assert next(iter(loader))["x"].tolist() == first


@pytest.mark.parametrize("weights", [[0, 1], {0: [0, 1]}, {0: [1, 1], 4: [0, 1]}])
def test_a_mix_that_repeats_does_not_wait_for_a_pipeline_that_never_comes(weights):
    long, short = sv.from_columns({"x": range(100, 150)}), sv.from_columns({"x": range(12)})
    rows = sv.mix([long, short], weights, stop="repeat")
    found = [row["x"] for row in itertools.islice(rows.loader(backend="inline"), 1000)]
    assert len(found) < 20
    assert set(found) >= set(range(12))


def test_nothing_can_be_drawn_of_no_rows():
    none = sv.from_columns({"x": range(3), "w": [1.0] * 3}).skip(3)
    assert list(none.sample("w").loader(backend="inline")) == []
    with pytest.raises(sv.PlanError, match="no rows of which 5"):
        list(none.sample("w", size=5).loader(backend="inline"))
