"""Local cores first: when a stage goes to the cluster, and when it comes home."""

from __future__ import annotations

from typing import Any

import pytest

from silva.cost.experiment import Experiment
from silva.cost.model import Placed, Work
from silva.run.placement.measured import Counters
from silva.run.placement.offload import Offload

pytest.importorskip("ray", reason="Ray is not installed: pip install 'silva[ray]'")

SLOW = Work(seconds=0.02, cpu=0.02, back=1e-6)
LARGE = Work(seconds=0.02, cpu=0.02, back=0.01)


def offload(address: str = "auto", cpus: int = 8) -> Offload:
    """What it knows of a cluster of so many CPUs is what was asked for: it is not joined."""
    from silva.run.ray.cluster import Cluster

    made = Offload(Cluster(address, cpus))
    if address != "local":
        made._has_answered()
        assert made._asking is not None
        made._asking.join()
    return made


def at(seconds: float, rows: int, starved: float) -> Counters:
    return Counters(rows, seconds, starved, seconds, seconds, blocks=rows)


def wanted(
    made: Offload, now: Counters, work: Work = SLOW, **options: Any
) -> Experiment[Any] | None:
    here = {"waited": now.starved, "cores": 2, "full": True, **options}
    return made.propose(now, Placed("stage 1", work, "threads", 2), **here)


def judge(made: Offload, tried: Experiment[Any], now: Counters) -> str | None:
    found = tried.judge(now.progress)
    if not tried.open:
        made.conclude(tried)
    return found


def test_a_stage_for_which_the_trainer_waits_goes_to_the_cluster():
    made = offload()
    assert wanted(made, at(2, 200, starved=1.9))
    assert made.status == (
        "100 rows/s on this machine, the trainer waits 95% of its time: "
        "8 actors would do 400 rows/s"
    )


def test_nothing_is_asked_of_the_cluster_while_local_cores_are_enough():
    from silva.run.ray.cluster import Cluster

    made = Offload(Cluster("auto"))  # which is not there: joining it would be an error
    assert not wanted(made, at(2, 200, starved=0.0))
    assert not wanted(made, at(4, 400, starved=1.9), full=False)
    assert made._asking is None
    assert "local cores first" in made.status


def test_a_stage_whose_bytes_outweigh_its_seconds_stays():
    made = offload()
    assert not wanted(made, at(2, 200, starved=1.9), LARGE)
    assert made.status.endswith("limited by copying results back from workers")
    assert not wanted(made, at(9, 210, starved=8.9)), "what was found out is not asked again"


def test_a_cluster_of_no_other_cores_is_not_started_for_nothing():
    made = offload("local")
    assert not wanted(made, at(2, 200, starved=1.9))
    assert "no cores but this machine's" in made.status


def test_a_stage_that_is_slower_on_the_cluster_moves_back():
    made = offload()
    tried = wanted(made, at(2, 200, starved=1.9))
    assert judge(made, tried, at(3, 210, starved=2.8)) is None, "the first blocks are left out"
    assert judge(made, tried, at(4, 220, starved=3.8)) is None, "and as many are measured"
    assert judge(made, tried, at(6, 300, starved=5.8)) == "threads"
    assert made.status == "the cluster was tried and left: 30 rows/s on actors, 100 on this machine"


def test_a_stage_that_is_faster_there_stays_and_says_what_was_measured():
    made = offload()
    tried = wanted(made, at(2, 200, starved=1.9))
    assert judge(made, tried, at(3, 210, starved=2.8)) is None
    assert judge(made, tried, at(5, 1010, starved=4.8)) == "ray"
    assert made.status == "as measured: 400 rows/s on actors, 100 on this machine"
