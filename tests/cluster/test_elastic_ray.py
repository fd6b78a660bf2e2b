"""Ranks and nodes come and go: the same global batches here and on a cluster, nothing twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chaos_ray_faults import drain
from cluster_tools import actors_of, kill, on_ray, rest, until
from failure_tools import inline, start_script

import silva as sv
from silva.testing import cut_blocks, digest

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("cluster")]
THREADS: dict[str, Any] = {"backend": "threads", "workers": 2}
ON_RAY: dict[str, Any] = {"backend": "ray", "cluster": "auto", "workers": 1}
STEPS = 4


def pipeline(shards: int = 6) -> sv.Pipeline:
    rows = sv.from_columns({"x": np.arange(480)}).shuffle(seed=2).filter(lambda x: x % 5 != 3)
    noisy = rows.derive(noise=lambda x, rng: x + rng.integers(1 << 30))
    return noisy.options(shards=shards).batch(24, drop_last=True)


def read(
    world: int, state: dict | None, *, steps: int | None = STEPS, shards: int = 6, **options: Any
) -> tuple[list[np.ndarray], dict]:
    """So many global batches of noise with `world` ranks (all that are left, where steps is None),
    and the merged state after them."""
    parts, states = [], []
    for rank in range(world):
        with pipeline(shards).loader(rank=rank, world=world, steps=16, **options) as loader:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
            found = []
            for batch in loader:
                found.append(batch["noise"])
                if len(found) == steps:
                    break
            parts.append(found)
            states.append(loader.state_dict())
    return [np.concatenate(step) for step in zip(*parts, strict=True)], sv.merge_states(states)


def same(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


both_ways = pytest.mark.parametrize(
    "ways",
    [
        pytest.param((THREADS, ON_RAY), id="to the cluster"),
        pytest.param((ON_RAY, THREADS), id="from the cluster"),
    ],
)


@both_ways
def test_three_ranks_then_two_go_on_elsewhere_with_the_same_global_batches(ways):
    whole, _ = read(1, None, steps=2 * STEPS, backend="inline")
    first, state = read(3, None, **ways[0])
    second, _ = read(2, state, **ways[1])
    assert same(first + second, whole)


@both_ways
def test_ranks_that_do_not_divide_the_shards_share_what_remains_elsewhere(ways):
    def rows(shards: int) -> sv.Pipeline:
        data = sv.from_columns({"x": np.arange(300)}).shuffle(seed=1).filter(lambda x: x % 5 != 0)
        return data.derive(y=lambda x: 2 * x).options(shards=shards).batch(12)

    seen: Counter[int] = Counter()
    states = []
    for rank in range(2):
        with rows(2).loader(rank=rank, world=2, steps=9, **ways[0]) as loader:
            for _, batch in zip(range(6), loader, strict=False):
                seen.update(batch["y"].tolist())
            states.append(loader.state_dict())
    state = sv.reshard(sv.merge_states(states), 3, rows(3))
    with rows(3).loader(**ways[1]) as loader:
        loader.load_state_dict(json.loads(json.dumps(state)))
        for batch in loader:
            seen.update(batch["y"].tolist())
    assert seen == Counter(2 * x for x in range(300) if x % 5)


RANK = """
import json, os, sys
import numpy as np
import silva as sv
from silva.testing import digest

told = json.loads(sys.argv[1])
rows = sv.from_columns({"x": np.arange(4800)}).shuffle(seed=2)
pipeline = rows.derive(y=lambda x, rng: x + rng.integers(1 << 30)).batch(24)
loader = pipeline.loader(rank=told["rank"], world=2, **told["way"])
if os.path.exists(told["state"]):
    with open(told["state"]) as file:
        loader.load_state_dict(json.load(file))
for batch in loader:
    state = loader.state_dict()
    with open(told["state"] + ".part", "w") as file:
        json.dump(state, file)
    os.replace(told["state"] + ".part", told["state"])
    os.write(1, json.dumps([state["step"], digest(batch)]).encode() + b"\\n")
    sys.stdin.readline()
"""


def test_a_rank_that_is_killed_comes_back_and_the_others_do_not_notice(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
):
    """Rank 0 on threads, rank 1 on actors; they take steps together, as trainers do."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    rows = sv.from_columns({"x": np.arange(4800)}).shuffle(seed=2)
    expected = rows.derive(y=lambda x, rng: x + rng.integers(1 << 30)).batch(24)
    undisturbed = [iter(expected.loader(backend="inline", rank=r, world=2)) for r in range(2)]

    def start(rank: int) -> Any:
        way = (THREADS, ON_RAY)[rank]
        told = {"rank": rank, "way": way, "state": str(tmp_path / f"{rank}.json")}
        return start_script(tmp_path, RANK, json.dumps(told), stdin=-1)

    def step(rank: int) -> str:
        """The rank's next batch, which it had made ready: what it prints beside is Ray's."""
        process = ranks[rank]
        while not (line := process.stdout.readline()).startswith("["):
            assert line, process.stderr.read()
        return json.loads(line)[1]

    def go_on(rank: int) -> None:
        ranks[rank].stdin.write("\n")
        ranks[rank].stdin.flush()

    ranks = [start(0), start(1)]
    try:
        for number in range(12):
            for rank in range(2):
                assert step(rank) == digest(next(undisturbed[rank])), (rank, number)
            if number in (4, 7):  # its state is that after this step: it goes on with the next
                kill(ranks[1].pid)
                ranks[1].communicate()
                ranks[1] = start(1)
                go_on(0)
            else:
                go_on(0)
                go_on(1)
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
        for batches in undisturbed:
            batches.close()


# Nodes that are drained.


def counted(calls: Path, seconds: float) -> sv.Pipeline:
    """Rows that are written down, in one file, each time they are made."""

    def note(x, rng):
        import os
        import time

        if os.path.exists(calls):  # not by the run that this is compared with
            time.sleep(seconds)
            with open(calls, "ab", buffering=0) as file:
                file.write(f"{x}\n".encode())
        return x + int(rng.integers(1000))

    return sv.from_columns({"x": range(600)}).shuffle(seed=1).derive(y=note).batch(8)


@pytest.fixture
def node(cluster: Any) -> Iterator[Any]:
    """One CPU more, for a while."""
    made = cluster.add_node(num_cpus=1)
    yield made
    if made in cluster.worker_nodes:
        cluster.remove_node(made)


def moved(loader: sv.Loader, away_from: str) -> bool:
    return [where != away_from for where, _ in actors_of(loader)] == [True] * 3


def test_actors_leave_a_drained_node_and_no_row_is_made_twice(
    cluster: Any, node: Any, tmp_path: Path
):
    calls = tmp_path / "calls"
    pipeline = counted(calls, 0.01)
    expected = inline(pipeline)
    calls.touch()
    other = None
    try:
        with cut_blocks(on_ray(pipeline, 3), [4]) as loader:
            batches, found = iter(loader), []
            found.append(digest(next(batches)))
            until(lambda: len(actors_of(loader)) == 3)
            other = cluster.add_node(num_cpus=1)
            drain(cluster.address, node.node_id)
            while not moved(loader, node.node_id):
                found.append(digest(next(batches)))
            pool: Any = loader._executor._pools["ray"]
            until(lambda: not pool._roster.retired)
            cluster.remove_node(node)
            found += rest(batches)
    finally:
        if other is not None:
            cluster.remove_node(other)
    assert found == expected
    assert sorted(map(int, calls.read_text().split())) == list(range(600))


def test_an_actor_works_on_until_its_node_ends_where_there_is_no_other_place(
    cluster: Any, node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("silva.run.ray.pool.ATTEMPTS", 1)  # the block that it is at is not to blame
    calls = tmp_path / "calls"
    pipeline = counted(calls, 0.01)
    expected = inline(pipeline)
    calls.touch()
    with cut_blocks(on_ray(pipeline, 3), [4]) as loader:
        batches, found = iter(loader), []
        found.append(digest(next(batches)))
        until(lambda: len(actors_of(loader)) == 3)
        pool: Any = loader._executor._pools["ray"]
        drain(cluster.address, node.node_id)
        until(lambda: any(seat.heir for seat in pool._roster.seats))
        found += [digest(next(batches)) for _ in range(20)]
        assert len(actors_of(loader)) == 3
        cluster.remove_node(node, allow_graceful=False)
        found += rest(batches)
    assert found == expected
