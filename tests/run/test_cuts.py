"""Stages that are cut in two: the stream does not show it, and they are cut where it pays."""

from __future__ import annotations

import json

import numpy as np
import pytest

import silva as sv
from silva.insight.decisions import decisions
from silva.optimize.cutting import WAYS, Crossing, Proposal, StepLoad, propose
from silva.optimize.model import Load, Place
from silva.physical.cut import cut, live, places
from silva.profile.costs import Cost
from silva.profile.gil import GilProbe
from silva.run import cutting as cutting_module
from silva.run import lane as lane_module
from silva.run.cutting import Cutting
from silva.run.forecast import Counters
from silva.run.lane import Lane
from silva.run.lane_stats import LaneStats
from silva.run.trial import Trial
from silva.testing import assert_same_stream, cut_blocks, cut_stages, stream


def _rows(count: int = 60) -> sv.Pipeline:
    return sv.from_columns({"x": range(count), "big": np.arange(count * 8).reshape(count, 8)})


def fails(x):
    if x % 7 == 3:
        raise ValueError(x)
    return x * 2


def _pipeline() -> sv.Pipeline:
    """Derivations, filters, random numbers, a column that only passes by, and an explode."""
    return (
        _rows()
        .shuffle(seed=1)
        .derive(y=lambda x: x * 3)
        .filter(lambda y: y % 2 == 0)
        .derive(z=lambda y, rng: y + rng.random())
        .filter(lambda x: x % 5 != 0)
        .derive(parts=lambda x: [x] * (x % 3))
        .explode("parts")
        .derive(w=lambda parts, rng: parts + rng.random())
        .select("big", "w", "z")
        .batch(4)
    )


def _stage(pipeline: sv.Pipeline):
    plan = pipeline.loader(backend="inline")._lowered()
    return plan.input.stage


def test_streams_do_not_show_where_stages_are_cut() -> None:
    assert_same_stream(_pipeline(), workers=(2,), fresh_process=False)


@pytest.mark.parametrize("on_error", [sv.Skip(at_most=6), sv.Skip(rate=0.05), sv.Substitute(-1)])
@pytest.mark.parametrize("way", [("inline", "inline"), *WAYS])
def test_failures_are_those_of_the_stage_in_one_piece(on_error, way) -> None:
    pipeline = (
        _rows(120)
        .derive(y=fails)
        .filter(lambda x: x % 2 == 0 or x > 90)
        .derive(z=lambda x: 1 / (x % 9 - 4))
        .batch(4)
    )
    backend = "inline" if way == ("inline", "inline") else "threads"

    def told(loader: sv.Loader) -> tuple:
        found, states = [], []
        try:
            for batch in loader:
                found.append(batch["x"].tolist())
                states.append(json.dumps(loader.state_dict()["cursors"]))
            error = None
        except sv.SilvaError as raised:
            error = str(raised)
        return found, states, [(f.key, f.step, f.error) for f in loader.failures], error

    options = {"backend": backend, "on_error": on_error}
    with pipeline.options(disable=["cut"]).loader(**options) as plain:
        expected = told(cut_blocks(plain, (5, 3, 16)))
    with pipeline.loader(**options) as loader:
        assert told(cut_blocks(cut_stages(loader, 3, [way]), (5, 3, 16))) == expected
    assert expected[2], "something failed"


@pytest.mark.parametrize("way", [("inline", "inline"), *WAYS])
def test_an_error_comes_after_the_rows_before_it(way) -> None:
    pipeline = (
        _rows(60).derive(y=lambda x: 1 / (x - 50)).derive(z=lambda y, x: 1 / (x - 41)).batch(4)
    )
    backend = "inline" if way == ("inline", "inline") else "threads"
    with cut_stages(pipeline.loader(backend=backend, workers=2), 1, [way]) as loader:
        seen = []
        with pytest.raises(sv.RowError) as error:
            seen += [x for batch in loader for x in seen.extend(batch["x"].tolist()) or ()]
    assert seen == list(range(40))
    assert error.value.key == "0:41"


def test_only_what_the_second_part_reads_is_given_to_it() -> None:
    stage = _stage(_rows().derive(y=lambda x: x).derive(z=lambda y: y).select("big", "z").batch(4))
    (at,) = places(stage)
    assert live(stage, at) == {"big", "y"}
    made = cut(stage, at)
    assert made.sent == ("y",)
    assert made.second.label.startswith("z")


def test_a_list_is_given_to_the_part_that_explodes_it() -> None:
    pipeline = (
        sv.from_columns({"x": range(30), "parts": [[i] * (i % 3) for i in range(30)]})
        .derive(y=lambda x: x + 1)
        .derive(z=lambda y: y * 2)
        .explode("parts")
        .batch(4)
    )
    assert cut(_stage(pipeline), 1).sent == ("parts", "y")
    expected = stream(pipeline.loader(backend="inline"))
    for seed in range(3):
        assert stream(cut_stages(pipeline.loader(backend="inline"), seed)) == expected


def test_a_stage_is_not_cut_after_an_explode_nor_before_a_rename() -> None:
    steps = _rows().derive(y=lambda x: [x]).explode("y").derive(z=lambda y: y).batch(4)
    assert places(_stage(steps)) == [1]
    renamed = _rows().derive(y=lambda x: x).derive(z=lambda y: y).rename(y="t")
    assert places(_stage(renamed.derive(u=lambda t: t).batch(4))) == [3]


def test_cutting_can_be_switched_off() -> None:
    pipeline = _rows().derive(y=lambda x: x).derive(z=lambda y: y)
    for options in ({"disable": ["cut"]}, {"optimize": False}):
        plan = pipeline.options(**options).batch(4).loader(backend="inline")._lowered()
        assert not plan.input.may_cut
    assert pipeline.batch(4).loader(backend="inline")._lowered().input.may_cut


READ = StepLoad(1e-6, 1e-6, 0.0)
PYTHON = StepLoad(2e-3, 2e-3, 2e-3)
NATIVE = StepLoad(2e-3, 2e-3, 1e-4)


def _propose(first: StepLoad, second: StepLoad, crossing: Crossing, out: float, **more):
    seconds = first.seconds + second.seconds
    whole = Load(seconds, first.cpu + second.cpu, (first.lock + second.lock) / seconds, out)
    options = {"workers": 4, "cores": 4, "block_rows": 12, **more}
    return propose([READ, first, second], {1: crossing}, whole, **options)


def test_a_lock_and_large_arrays_are_cut_apart_in_either_order() -> None:
    small_then_large = Crossing(handed=100, sent=100, made=4e6)
    assert _propose(PYTHON, NATIVE, small_then_large, 4e6).backends == ("processes", "threads")
    large_stays = Crossing(handed=4e6, sent=100, made=100)
    assert _propose(NATIVE, PYTHON, large_stays, 4e6).backends == ("threads", "processes")


def test_what_gains_little_is_not_cut() -> None:
    assert _propose(NATIVE, NATIVE, Crossing(100, 100, 4e6), 4e6) is None, "threads do"
    assert _propose(PYTHON, PYTHON, Crossing(100, 100, 100), 100) is None, "processes do"
    crosses = Crossing(handed=4e6, sent=4e6, made=4e6)
    assert _propose(NATIVE, PYTHON, crosses, 4e6) is None, "what crosses costs as much"
    little = Crossing(handed=100, sent=100, made=4e6)
    assert _propose(PYTHON, NATIVE, little, 4e6, left=100) is None, "processes take time to start"
    assert _propose(PYTHON, NATIVE, little, 4e6, block_rows=1, workers=1, cores=1) is None


def test_no_step_is_ever_free() -> None:
    """With nothing to gain, a cut costs: what crosses it and what each block takes."""
    apart = Crossing(handed=100, sent=100, made=4e6)
    dear = _propose(PYTHON, NATIVE, apart, 4e6, block_rows=1)
    cheap = _propose(PYTHON, NATIVE, apart, 4e6, block_rows=100)
    assert dear.rows_per_second < cheap.rows_per_second
    more = Crossing(handed=1e6, sent=1e6, made=4e6)
    assert _propose(PYTHON, NATIVE, more, 4e6).rows_per_second < cheap.rows_per_second


def test_a_row_that_cannot_travel_is_done_in_one_piece() -> None:
    class Odd:
        def __init__(self, x):
            self.x = x

        def __reduce__(self):
            raise TypeError("stays here")

    pipeline = _rows().derive(y=lambda x: Odd(x)).derive(z=lambda y: y.x).select("z").batch(4)
    expected = stream(pipeline.loader(backend="inline"))
    with cut_stages(pipeline.loader(backend="threads", workers=2), 0, WAYS[:1]) as loader:
        assert stream(loader) == expected


class Known:
    """A stage whose first step holds the lock, and whose second makes a large array."""

    def __init__(self) -> None:
        pipeline = _rows().derive(y=lambda x: x).derive(z=lambda y: y).select("z").batch(4)
        self.stage = _stage(pipeline)
        self.stats = LaneStats()
        rows = 1000
        self.stats.steps = [
            Cost(rows, rows, 1e-3, 1e-3, {"x": 8 * rows}),
            Cost(rows, rows, 2.0, 2.0, {"y": 8 * rows}, watched=1.0, locked=1.0),
            Cost(rows, rows, 2.0, 2.0, {"z": 4_000_000 * rows}, watched=1.0, locked=0.05),
            Cost(rows, rows, 0.0, 0.0),
        ]

    def considered(self, **more) -> Cutting:
        made = Cutting()
        load = Load(4e-3, 4e-3, 0.5, 4e6)
        options = {"workers": 4, "cores": 4, "consumer": 0.0, "block_rows": 12, **more}
        options = {
            "lock_share": 0.5,
            "stretch": 1.0,
            "left": float("inf"),
            "since": START,
            **options,
        }
        made.consider(self.stage, self.stats, load, **options)
        return made


START = Counters(0, 0.0, 0.0, 0.0, 0.0, 0)


def _later(rows: int, elapsed: float, starved: float) -> Counters:
    return Counters(rows, elapsed, starved, 0.0, 0.0, rows)


def test_a_cut_is_tried_after_the_whole_and_kept_where_it_is_faster() -> None:
    cutting = Known().considered()
    assert cutting.proposal.backends == ("processes", "threads")
    assert "cut after `y`" in cutting.reason
    assert not cutting.looked(_later(10, 1.0, 0.9)), "too soon"
    assert cutting.looked(_later(200, 2.0, 1.9))
    assert cutting.chosen.cut.at == 1
    assert not cutting.looked(_later(500, 4.0, 3.8)), "it stays cut"
    assert cutting.chosen is not None
    assert cutting.gain == pytest.approx(1.5)


def test_a_cut_that_does_not_pay_is_undone_and_not_tried_again() -> None:
    cutting = Known().considered()
    assert cutting.looked(_later(200, 2.0, 1.9))
    assert cutting.looked(_later(300, 4.0, 3.8))
    assert cutting.chosen is None
    assert "50 rows/s cut in two, 100 in one piece" in cutting.refused
    assert not cutting.looked(_later(500, 9.0, 8.8))
    (decision,) = decisions((), (), (), cuts=[("stage 1", cutting)])
    assert not decision.applied
    assert "50 rows/s" in decision.line


def test_blocks_that_were_in_flight_do_not_count_against_a_cut() -> None:
    cutting = Known().considered()
    assert cutting.looked(_later(200, 2.0, 1.9))
    assert not cutting.looked(_later(205, 4.0, 3.9)), "still in one piece"
    assert not cutting.looked(_later(505, 6.0, 5.9))
    assert cutting.gain == pytest.approx(1.5)


def test_a_cut_must_be_faster_than_the_consumer_was_alone() -> None:
    cutting = Known().considered()
    cutting.least = 400.0
    assert cutting.looked(_later(200, 2.0, 1.9))
    assert cutting.looked(_later(600, 4.0, 3.8)), "twice as fast as in one piece, on workers"
    assert "200 rows/s cut in two, 400 in one piece" in cutting.refused


def _lane_that_workers_do_not_help(monkeypatch, proposal: Proposal | None) -> Lane:
    """A stage on processes that does 100 rows a second, and did 200 without."""
    monkeypatch.setattr(cutting_module, "propose", lambda *args, **more: proposal)
    known = Known()
    made = Lane(known.stage, "stage 1", None, 2, 1 << 30)
    made.may_cut = made.decided = True
    made.backend = "processes"
    made._trial = Trial(200.0, {"processes": 380.0}, made.counters, settling=0)
    made.probe.seconds = 1.0
    for name in ("steps", "late"):
        setattr(made.stats, name, getattr(known.stats, name))
    made.stats.followed = made.stats.blocks = 20
    _advance(made, rows=200, seconds=2.0)
    if proposal is not None:
        assert made.backends == ("processes",), "once more, now that the workers are warm"
        _advance(made, rows=200, seconds=2.0)
    return made


def _advance(made: Lane, rows: int, seconds: float) -> None:
    """So many rows in so many seconds, in which the consumer did nothing but wait."""
    made.stats.rows_in += rows
    made.stats.blocks += rows
    made.stats.elapsed += seconds
    made.stats.starved += seconds
    made.stats.busy += seconds
    made.decide()


PART = Load(1e-3, 1e-3, 0.5, 8)
TWO = Proposal(1, ("processes", "threads"), PART, PART, 300.0, "the cores", 200.0)


def test_where_workers_do_not_help_a_cut_is_tried_before_they_are_given_up(monkeypatch) -> None:
    made = _lane_that_workers_do_not_help(monkeypatch, TWO)
    assert made.backends == ("processes", "threads")
    _advance(made, rows=500, seconds=2.0)
    assert made.backends == ("processes", "threads"), "250 rows a second are more than 200"
    worse = _lane_that_workers_do_not_help(monkeypatch, TWO)
    _advance(worse, rows=300, seconds=2.0)
    assert worse.backends == ("inline",), "150 are not"
    assert "200 rows/s without workers, 100 rows/s on processes" in worse.reason


def test_where_no_cut_is_proposed_workers_are_given_up(monkeypatch) -> None:
    made = _lane_that_workers_do_not_help(monkeypatch, None)
    assert made.backends == ("inline",)


def test_a_stage_that_nobody_waits_for_is_left_in_one_piece() -> None:
    cutting = Known().considered()
    assert not cutting.looked(_later(200, 2.0, 0.1))
    assert cutting.chosen is None


def test_first_rows_that_mislead_are_not_the_last_word() -> None:
    cutting = Known().considered(workers=1, cores=1)
    assert cutting.proposal is None
    assert not cutting.due(19)
    assert cutting.due(20)
    proposed = Known().considered()
    assert not proposed.due(1000), "it is tried first"


def test_python_objects_do_not_cross() -> None:
    known = Known()
    known.stats.steps[1].objects = frozenset(["y"])
    assert known.considered().proposal is None


def test_who_holds_the_lock_is_remembered_when_steps_change_places() -> None:
    known, cutting = Known(), Cutting()
    cutting.forget(known.stage, known.stats.steps)
    for cost in known.stats.steps:
        cost.watched = cost.locked = 0.0
    known.considered()
    loads = cutting._loads(known.stage, known.stats, lock_share=0.5, stretch=1.0)
    assert [round(load.lock / max(load.seconds, 1e-9), 2) for load in loads[1:3]] == [1.0, 0.05]


def test_what_workers_wait_for_each_other_is_no_load() -> None:
    known = Known()
    quiet = known.considered().proposal
    for cost in known.stats.steps:
        cost.seconds *= 3  # crowded: the CPU seconds are the same
    crowded = known.considered().proposal
    assert crowded.rows_per_second == pytest.approx(quiet.rows_per_second)


def test_the_lock_is_watched_step_by_step() -> None:
    probe = GilProbe()
    probe._spans = [(0.0, 1.0, True), (1.0, 1.5, False), (1.5, 2.0, False)]
    assert probe.held(0.0, 1.0) == (1.0, 1.0)
    assert probe.held(0.5, 2.0) == (0.5, 1.5)


def test_explain_shows_the_cut_and_what_came_of_it(monkeypatch) -> None:
    def slow(x):
        return sum(i ^ x for i in range(6000))

    part = Load(1e-3, 1e-3, 0.5, 8)
    proposal = Proposal(1, ("processes", "threads"), part, part, 300.0, "the cores", 200.0)
    monkeypatch.setattr(cutting_module, "propose", lambda *args, **more: proposal)
    monkeypatch.setattr(cutting_module, "SECONDS", 0.0)
    monkeypatch.setattr(cutting_module, "MOSTLY", -1.0)
    monkeypatch.setattr(lane_module, "choose_place", lambda *a, **more: Place("threads", "told"))
    pipeline = _rows(1000).derive(y=slow).derive(z=lambda y: y + 1).select("z").batch(8)
    with pipeline.loader(workers=2) as loader:
        found = stream(loader)
        told = loader.explain(analyze=True)
        refused = loader._executor.lanes["stage 1"].cutting.refused
    assert found == stream(pipeline.loader(backend="inline"))
    assert "cut after `y`" in told.replace("\n", " ").replace("      ", "")
    assert refused or "on 2 processes and then on 2 threads" in " ".join(told.split())
    (decision,) = [d for d in told.facts.decisions if d.name == "cut"]
    assert decision.predicted == 1.5 or not decision.applied
