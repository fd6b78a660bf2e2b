"""Served on a cluster: costly steps run on replicas, and the answers are those of one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.physical.stage.context import Context
from silva.serve.cluster.costs import costs_of
from silva.serve.cluster.placement import Cost, Deployment, place
from silva.serve.engine.engine import Engine

RECORDED = [Cost(0, "embed", 0.024), Cost(1, "look up", 0.0004), Cost(3, "rank", 0.061)]
"""What steps of a pipeline were measured to compute for a request, in seconds."""


def test_costly_steps_get_cores_by_what_they_compute() -> None:
    assert place(RECORDED, cores=8, hop=0.003) == (
        Deployment(0, "embed", 2),
        Deployment(3, "rank", 6),
    )
    assert place(RECORDED, cores=2, hop=0.003) == (
        Deployment(0, "embed", 1),
        Deployment(3, "rank", 1),
    )


def test_with_too_few_cores_the_costliest_steps_are_placed() -> None:
    assert place(RECORDED, cores=1, hop=0.003) == (Deployment(3, "rank", 1),)
    assert place(RECORDED, cores=0, hop=0.003) == ()


def test_steps_that_cost_less_than_sending_them_stay() -> None:
    assert place(RECORDED, cores=8, hop=0.1) == ()


def test_steps_of_unknown_cost_count_like_the_costliest() -> None:
    costs = [Cost(0, "a", None), Cost(1, "b", None)]
    assert [one.replicas for one in place(costs, cores=5, hop=0.003)] == [3, 2]


@given(
    st.lists(st.floats(0.004, 10), min_size=1, max_size=6),
    st.integers(1, 24),
)
def test_no_core_would_help_more_elsewhere(seconds: list[float], cores: int) -> None:
    costs = [Cost(i, f"s{i}", one) for i, one in enumerate(seconds)]
    placed = {one.step: one.replicas for one in place(costs, cores=cores, hop=0.003)}
    assert sum(placed.values()) == cores
    load = {step: seconds[step] / count for step, count in placed.items()}
    for step, count in placed.items():
        if count > 1:  # without its last core it would be as slow as the slowest step is, or slower
            assert seconds[step] / (count - 1) >= max(load.values()) * (1 - 1e-9)


def slow(x: int, rounds: int = 300_000) -> float:
    total = 0.0
    for i in range(rounds):
        total += (x * i) % 7
    return total


def test_costs_are_measured_for_steps_that_may_move() -> None:
    model = sv.models.Endpoint("http://127.0.0.1:1/v1", "none", revision="1")
    turn = sv.requests("x").derive(x=lambda x: x - 1)
    made = (
        sv.requests("x")
        .derive(y=sv.col("x") + 1)
        .derive(z=lambda x: slow(x, 30_000))
        .derive(turns=sv.loop(turn, until=sv.col("x") <= 0, at_most=3))
        .select("y", "z", "turns")
    )
    asks = sv.requests("x").derive(said=model.generate("{x}"))
    for pipeline, count in ((made, 1), (asks, 0)):
        engine = Engine(pipeline.plan)
        units = [station.unit for station in engine.stations]
        sample = [{"x": n} for n in range(3)] if count else []
        found = costs_of(units, ["x"], sample, Context(0, 0, "skip"))
        engine.close()
        assert len(found) == count
        assert all(one.label.startswith("z = ") and one.computes for one in found)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"cluster": "moon"}, "moon"),
        ({"sample": [{"x": 1}]}, "pass cluster="),
        ({"cluster": "local", "refresh": 5}, "serve without refresh="),
    ],
)
def test_what_cannot_be_placed_is_refused(arguments: Any, says: str) -> None:
    with pytest.raises(sv.PlanError, match=says):
        sv.requests("x").derive(y=lambda x: x).serve(port=0, **arguments)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A Ray of two CPUs that this process is on."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'silva[ray]'")
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray
    from ray import serve

    serve.shutdown()
    ray.shutdown()


ROWS = [{"x": n} for n in range(20)]


def pipeline(folder: str) -> sv.Pipeline:
    """A pipeline with one slow step that notes the processes it runs in."""

    def work(x, rng):
        total = 0
        for i in range(300_000):
            total += (x * i) % 7
        open(os.path.join(folder, str(os.getpid())), "a").close()
        if x == 13:
            raise ValueError("thirteen")
        return total + float(rng.random()), np.arange(x % 3)

    return (
        sv.requests("x")
        .derive(half=sv.col("x") / 2)
        .derive(work, into=("y", "z"))
        .derive(n=lambda z: len(z))
        .select("half", "y", "n")
    )


def asked(server: Any, rows: list[dict[str, Any]]) -> list[Any]:
    headers = {"authorization": f"Bearer {server.token}"}
    with httpx.Client(headers=headers, timeout=120) as http, ThreadPoolExecutor(8) as threads:
        replies = threads.map(lambda row: http.post(server.address, json=row), rows)
        return [
            reply.json() if reply.status_code == 200 else reply.json()["error"] for reply in replies
        ]


@pytest.mark.rest
def test_a_cluster_gives_the_same_answers_and_survives_the_loss_of_a_replica(
    cluster: Any, tmp_path: Any
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with pipeline(str(here)).serve(port=0) as server:
        local = asked(server, ROWS)
    assert os.listdir(here) == [str(os.getpid())]
    with pipeline(str(there)).serve(port=0, cluster="auto", sample=ROWS[:3]) as server:
        assert [one.replicas for one in server.placement] == [2]
        assert asked(server, ROWS) == local
        replicas = {int(name) for name in os.listdir(there)} - {os.getpid()}
        assert replicas
        os.kill(min(replicas), signal.SIGKILL)
        assert asked(server, ROWS * 2) == local * 2
        after = {int(name) for name in os.listdir(there)} - {os.getpid()}
    assert len(after - {min(replicas)}) >= 1
    assert local[13]["kind"] == "step"
