"""The GIL probe tells a GIL that is held from a core that is missing."""

from __future__ import annotations

import pytest

from silva.cost.gil import GilProbe
from silva.cost.model import Work, choose_place


def sampled(held: float, free: float, probe_queued: float, work_queued: float) -> GilProbe:
    """A probe that saw the GIL held and free for so many seconds, in 10 ms each."""
    probe, at = GilProbe(), 0.0
    for was_held, seconds in ((True, held), (False, free)):
        while seconds > 1e-9:
            probe._spans.append((at, at + min(seconds, 0.01), was_held))
            at, seconds = at + 0.01, seconds - 0.01
    probe._judge(probe_queued, work_queued)
    return probe


def test_python_on_a_busy_machine_is_not_taken_for_work_that_releases_the_gil() -> None:
    """The work had no core for 60 ms, and the probe found the GIL free meanwhile."""
    busy = sampled(held=0.04, free=0.06, probe_queued=0.0, work_queued=0.06)
    assert busy.share == pytest.approx(1.0)
    assert choose_place(Work(1e-3, 1e-3, busy.share * 1e-3), 4, cores=4).backend == "processes"
    misled = sampled(held=0.04, free=0.06, probe_queued=0.0, work_queued=0.0)
    assert misled.share == pytest.approx(0.4)


def test_native_code_on_a_busy_machine_is_not_taken_for_python() -> None:
    """The probe was late because it had no core."""
    busy = sampled(held=0.05, free=0.05, probe_queued=0.05, work_queued=0.01)
    assert busy.share == pytest.approx(0.0)


def test_without_enough_evidence_the_share_is_the_usual_one() -> None:
    nothing = sampled(held=0.02, free=0.02, probe_queued=0.02, work_queued=0.02)
    assert not nothing.known
    assert nothing.share == 1.0
    assert not GilProbe().known


def test_steps_are_told_what_is_evidence_and_no_more() -> None:
    probe = sampled(held=0.04, free=0.04, probe_queued=0.01, work_queued=0.02)
    assert probe.held(0.0, 1.0) == pytest.approx((0.03, 0.05))
    assert probe.held(0.04, 0.06) == pytest.approx((0.0, 0.01))
