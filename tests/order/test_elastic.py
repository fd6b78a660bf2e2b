"""Ranks come and go: the same global batches for every world that divides the shards."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

import silva as sv

SHARDS = 12


def pipeline(shards: int | None = SHARDS) -> sv.Pipeline:
    def part(start: int, count: int) -> sv.Pipeline:
        rows = sv.from_columns({"x": np.arange(start, start + count)})
        return rows.shuffle(seed=start).filter(lambda x: x % 7 != 3)

    mixed = sv.mix([part(0, 600), part(10_000, 300)], weights=[2, 1], seed=5)
    mixed = mixed.derive(noise=lambda x, rng: rng.integers(1 << 30))
    return (mixed if shards is None else mixed.options(shards=shards)).batch(24, drop_last=True)


def read(world: int, states: list[dict] | None, steps: int, pipe: sv.Pipeline | None = None):
    """`steps` global batches with `world` ranks, and the ranks' states after them."""
    pipe = pipe or pipeline()
    parts, after = [], []
    state = None if states is None else json.loads(json.dumps(sv.merge_states(states)))
    for rank in range(world):
        loader = pipe.loader(backend="inline", rank=rank, world=world, steps=steps + _done(states))
        if state is not None:
            loader.load_state_dict(state)
        got = []
        for batch in loader:
            got.append(batch)
            if len(got) == steps:
                break
        parts.append(got)
        after.append(loader.state_dict())
    return [
        {name: np.concatenate([parts[r][s][name] for r in range(world)]) for name in parts[0][s]}
        for s in range(steps)
    ], after


def _done(states: list[dict] | None) -> int:
    return 0 if states is None else states[0]["step"]


def same(a: list[dict], b: list[dict]) -> bool:
    return len(a) == len(b) and all(
        np.array_equal(x[name], y[name]) for x, y in zip(a, b, strict=True) for name in x
    )


def test_global_batches_hold_the_same_rows_for_every_number_of_ranks():
    alone, _ = read(1, None, 8)
    for world in (2, 3, 4, 6, 12):
        together, _ = read(world, None, 8)
        assert same(together, alone), world


def test_4_ranks_then_2_then_6_continue_the_same_global_batches():
    whole, _ = read(1, None, 15)
    first, states = read(4, None, 5)
    second, states = read(2, states, 5)
    third, states = read(6, states, 5)
    assert same(first + second + third, whole)


def test_every_rank_has_its_share_of_each_global_batch():
    pipe = pipeline()
    for rank in range(4):
        batch = next(iter(pipe.loader(backend="inline", rank=rank, world=4, steps=3)))
        assert len(batch["x"]) == 6


def test_resharding_4_ranks_to_3_loses_and_repeats_nothing():
    def rows(world: int) -> sv.Pipeline:
        data = sv.from_columns({"x": np.arange(500)}).shuffle(seed=1).filter(lambda x: x % 5 != 0)
        return sv.mix([data, sv.from_columns({"x": np.arange(1000, 1200)})], seed=3).batch(12)

    seen: Counter[int] = Counter()
    states = []
    for rank in range(4):
        loader = rows(4).loader(backend="inline", rank=rank, world=4, steps=9)
        for i, batch in enumerate(loader):
            seen.update(batch["x"].tolist())
            if i == 6:
                break
        states.append(loader.state_dict())
    state = sv.reshard(sv.merge_states(states), 3, rows(3))
    state = json.loads(json.dumps(state))
    loader = rows(3).loader(backend="inline")
    loader.load_state_dict(state)
    for batch in loader:
        seen.update(batch["x"].tolist())
    expected = [x for x in range(500) if x % 5] + list(range(1000, 1200))
    assert seen == Counter(expected)


def test_a_state_refuses_a_world_that_does_not_divide_its_shards():
    _, states = read(4, None, 2)
    loader = pipeline().loader(backend="inline", rank=0, world=4, steps=9)
    loader.load_state_dict(sv.merge_states(states))
    other = pipeline(None).loader(backend="inline", rank=0, world=5, steps=9)
    with pytest.raises(sv.StateError, match="12 shards"):
        other.load_state_dict(sv.merge_states(states), allow_changed=True)


def test_a_rank_refuses_the_state_of_another_rank():
    _, states = read(4, None, 2)
    loader = pipeline().loader(backend="inline", rank=1, world=4, steps=9)
    with pytest.raises(sv.StateError, match="merge_states"):
        loader.load_state_dict(states[0])


def test_ranks_that_could_take_unequal_steps_are_refused():
    rows = sv.from_columns({"x": range(100)})
    with pytest.raises(sv.PlanError, match="steps="):
        list(rows.filter(lambda x: x > 3).batch(10).loader(rank=0, world=2))
    with pytest.raises(sv.PlanError, match="drop_last"):
        list(rows.batch(16).loader(rank=0, world=2))
    list(rows.batch(16, drop_last=True).loader(rank=0, world=2, backend="inline"))
    list(rows.batch(20).loader(rank=0, world=2, backend="inline"))


@pytest.mark.parametrize("evaluates", [False, True])
def test_ranks_that_skip_rows_need_a_number_of_steps(evaluates: bool):
    """One may skip more rows than another, and then take fewer steps."""
    rows = sv.from_columns({"x": np.arange(8)}).batch(4)
    skipping = {"on_error": sv.Skip(at_most=8), "world": 2, "eval": evaluates}
    with pytest.raises(sv.PlanError, match=r"one rank may skip more rows.*steps=.*Substitute"):
        next(iter(rows.loader(rank=0, **skipping)))
    for rank in range(2):
        assert len(list(rows.loader(rank=rank, world=2, steps=2, on_error=sv.Skip()))) == 2


def test_a_rank_that_runs_out_before_the_steps_asked_for_says_so():
    rows = sv.from_columns({"x": range(100)}).filter(lambda x: x > 50).batch(10)
    with pytest.raises(sv.SilvaError, match="ran out"):
        list(rows.loader(backend="inline", rank=0, world=2, steps=9))


@pytest.mark.parametrize("world", [1, 2, 4])
def test_evaluation_gives_every_row_once_with_a_mask_over_padding(world):
    rows = sv.from_columns({"x": np.arange(45)}).shuffle(seed=3).filter(lambda x: x % 10 != 4)
    seen: list[int] = []
    for rank in range(world):
        loader = rows.batch(8).loader(backend="inline", rank=rank, world=world, eval=True)
        for batch in loader:
            assert len(batch["x"]) == 8 // world
            seen += batch["x"][batch["mask"]].tolist()
    assert sorted(seen) == [x for x in range(45) if x % 10 != 4]


def test_per_rank_batches_lose_and_repeat_no_row():
    rows = sv.from_columns({"x": np.arange(103)}).shuffle(seed=3).batch(per_rank=10)
    seen: list[int] = []
    for rank in range(3):
        loader = rows.loader(backend="inline", rank=rank, world=3, eval=True)
        seen += [x for batch in loader for x in batch["x"].tolist()]
    assert sorted(seen) == list(range(103))


def test_a_state_is_a_few_kilobytes_at_most():
    _, states = read(1, None, 3)
    assert len(json.dumps(sv.merge_states(states))) < 4096
