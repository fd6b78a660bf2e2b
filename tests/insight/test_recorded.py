"""What is said about recorded runs: every answer about one run agrees with every other."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from recorded import recorded, runs

from silva.cost.model import Work
from silva.facts.formatting import percent, rate
from silva.facts.model import RunFacts
from silva.facts.why import why
from silva.insight.explanation import Explanation
from silva.insight.headroom import Headroom, StepHeadroom, in_run
from silva.insight.what_if import RecordedRun, what_if

QUICK = settings(max_examples=40, deadline=None, phases=[Phase.generate])
"""Each example replays a run several times, so that shrinking would take minutes."""


@QUICK
@given(runs)
def test_what_is_in_force_is_predicted_to_be_as_fast_as_it_is(facts: RunFacts) -> None:
    for asked in ({}, {"workers": facts.workers}, {"cores": facts.cores}):
        found = what_if(facts, asked)
        assert (found.gain, found.expected) == (1.0, found.now)
        assert found.limit == found.now_limit
    assert what_if(facts, {"backend": facts.stages[0].backend}).gain == 1.0


@QUICK
@given(runs)
def test_explain_why_headroom_and_what_if_agree_about_a_run(facts: RunFacts) -> None:
    """One throughput, one limit, and one gain of a step that is free."""
    asked, run = what_if(facts, {}), RecordedRun(facts)
    alone = StepHeadroom("y = first(x)  [recorded.py:17]", "stage 1", "workers", 1e3)
    measured = in_run(alone, facts, run)
    headroom = Headroom(asked.now, run.limit, (measured,), 1.0)
    limit = f"limit: {asked.now_limit}, in use {percent(asked.now_share)} of the time"
    said = f"{rate(asked.now)} ({limit})"
    for text in (Explanation(facts, analyze=True), why(facts, "stage 1"), str(asked)):
        assert said in " ".join(text.split())
    assert f"{rate(asked.now)} now ({limit})" in " ".join(str(headroom).split())
    step = next(s for s in facts.stages[0].steps if s.id == "y#0")
    assert measured.gain == pytest.approx(what_if(facts, {"y#0": 0}).gain)
    busy = sum(stage.totals.busy for stage in facts.stages)
    assert measured.share == pytest.approx(step.share * facts.stages[0].totals.busy / busy)


def test_a_stage_that_was_left_inline_stays_there_with_the_workers_in_force() -> None:
    """Its rows are few, or its steps may not run on threads: what-if does not know better."""
    facts = recorded([Work(1e-3, 1e-3)], "inline", 4, cores=4, asked_for=False)
    assert what_if(facts, {"workers": 4}).gain == 1.0
    assert what_if(facts, {"workers": 3}).gain > 2.0
