"""One model: a run that is replayed event by event is as fast as the scarcest resource allows.

`predict` adds up what each resource is needed for; `Replay` lets blocks wait for each other. In a
steady state a replay is never faster than predicted. It may be slower where several resources are
busy nearly all the time, since then the blocks that wait for one of them leave another one idle.
"""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from silva.cost.model import CONSUMER, Backend, Placed, Work, loop_work, predict, uses
from silva.cost.replay import Own, Replay

ROUNDING = 1 + 1e-9
CLEAR = 0.2
"""How much slower a replay may be where one resource is needed twice as long as any other one: what
several stages have waited for it counts only when the last of them has made its block."""
CROWDED = 0.4
"""The same where several are needed nearly as long."""
seconds = st.floats(1e-4, 1e-2)
share = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 0.99))
widths = st.integers(1, 16)
BACKENDS: tuple[Backend, ...] = ("inline", "threads", "processes", "ray")


@st.composite
def works(draw: st.DrawFn) -> Work:
    """The work of a row, which takes at least as long as each resource is busy with it."""
    took = draw(seconds)
    cpu = took * draw(share)
    others = ("memory", "disk", "network", "pickling", "back")
    more = {name: took * draw(share) for name in others}
    return Work(took, cpu, cpu * draw(share), **more)


@st.composite
def runs(draw: st.DrawFn, most: int = 3) -> Replay:
    """Stages, of which those on one backend share its workers, their loop, and the cores."""
    workers = {backend: draw(widths) for backend in BACKENDS}
    stages = []
    for number in range(draw(st.integers(1, most))):
        backend = draw(st.sampled_from(BACKENDS))
        rows = draw(st.sampled_from([0.25, 1.0, 4.0]))
        stages.append(Placed(f"stage {number}", draw(works()), backend, workers[backend], rows))
    own = draw(st.one_of(st.just(0.0), seconds))
    return Replay(tuple(stages), draw(widths), Own(own, own * draw(share)))


def agreement(run: Replay) -> float:
    """The replayed rate as a share of the predicted one."""
    predicted = predict(run.stages, run.cores, loop_work(*run.own))
    return run.run().rows_per_second / predicted.rows_per_second


def second_most(run: Replay) -> float:
    """The seconds of the resource that is needed second most, as a share of the first one's."""
    parts = [stage.uses(run.cores) for stage in run.stages]
    parts.append(uses(loop_work(*run.own), "inline", 0, run.cores))
    *_, second, first = sorted(map(sum, zip(*parts, strict=True)))
    return second / first


@given(runs())
def test_a_replay_is_never_faster_than_the_prediction(run: Replay) -> None:
    assert 1 - CROWDED <= agreement(run) <= ROUNDING


@given(runs(most=2))
def test_a_replay_agrees_with_the_prediction_where_one_resource_limits(run: Replay) -> None:
    assume(second_most(run) <= 0.5)
    assert 1 - CLEAR <= agreement(run) <= ROUNDING


@given(works(), st.sampled_from(BACKENDS), widths)
def test_a_stage_whose_rows_need_one_resource_is_replayed_as_predicted(
    work: Work, backend: Backend, workers: int
) -> None:
    alone = Placed("stage 1", Work(work.seconds, work.cpu), backend, workers)
    assert abs(agreement(Replay((alone,), 64, Own(0.0))) - 1) < 0.01


@given(works(), seconds)
def test_the_loop_takes_its_turn_with_threads_that_hold_the_gil(work: Work, own: float) -> None:
    """It is Python too, in the prediction and in the replay."""
    python = Placed("stage 1", Work(work.seconds, work.seconds, work.seconds), "threads", 8)
    run = Replay((python,), 8, Own(own, own))
    assert 1 - CLEAR <= agreement(run) <= ROUNDING
    assert predict(run.stages, 8, loop_work(own, own)).limit in ("the GIL", CONSUMER)
