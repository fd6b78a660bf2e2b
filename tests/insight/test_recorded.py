"""What is said about recorded runs: every answer about one run agrees with every other."""

from __future__ import annotations

from hypothesis import given, settings
from recorded import recorded, runs

from silva.cost.model import Load
from silva.facts.model import RunFacts
from silva.insight.what_if import what_if


@settings(max_examples=40, deadline=None)
@given(runs)
def test_what_is_in_force_is_predicted_to_be_as_fast_as_it_is(facts: RunFacts) -> None:
    for asked in ({}, {"workers": facts.workers}, {"cores": facts.cores}):
        found = what_if(facts, asked)
        assert (found.gain, found.expected) == (1.0, found.now)
        assert found.limit == found.now_limit
    assert what_if(facts, {"backend": facts.stages[0].backend}).gain == 1.0


def test_a_stage_that_was_left_inline_stays_there_with_the_workers_in_force() -> None:
    """Its rows are few, or its steps may not run on threads: what-if does not know better."""
    facts = recorded([Load(1e-3, 1e-3, 0.0, 0.0)], "inline", 4, cores=4, asked_for=False)
    assert what_if(facts, {"workers": 4}).gain == 1.0
    assert what_if(facts, {"workers": 3}).gain > 2.0
