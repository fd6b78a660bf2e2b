"""Local cores first: when a stage goes to the cluster, and when it comes home."""

from __future__ import annotations

from typing import Any

import pytest

from silva.cost.model import Work
from silva.run.placement.measured import Counters
from silva.run.placement.trial import Offload

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


def wanted(made: Offload, now: Counters, work: Work = SLOW, **options: Any) -> bool:
    return made.wanted(now, work, **{"waited": now.starved, "cores": 2, "full": True, **options})


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
    assert wanted(made, at(2, 200, starved=1.9))
    made.begin(at(2, 200, starved=1.9))
    assert not made.failed(at(3, 210, starved=2.8)), "the first blocks are left out"
    assert not made.failed(at(4, 230, starved=3.8))
    assert made.failed(at(6, 300, starved=5.8))
    assert "tried and left" in made.status


def test_a_stage_that_is_faster_there_stays_and_says_what_was_measured():
    made = offload()
    assert wanted(made, at(2, 200, starved=1.9))
    made.begin(at(2, 200, starved=1.9))
    assert not made.failed(at(3, 210, starved=2.8))
    assert not made.failed(at(5, 1010, starved=4.8))
    assert made.status == "as measured: 400 rows/s on actors, 100 on this machine"
