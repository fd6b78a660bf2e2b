"""Pipelines in bad orders cost about as much as in the best order, and give the same stream and the
same states."""

from __future__ import annotations

import json

import pytest
from benchmarks.planner import bad_orders

import silva as sv
from silva.testing import digest

WITHIN = 1.15
"""Of the best order: selectivities of filters are not quite independent of each other."""
SEEDS = 240
EPOCHS = 2
Policy = str | sv.Skip | sv.Substitute
POLICIES: list[tuple[Policy, int]] = [
    ("raise", 0),
    (sv.Skip(), 40),
    (sv.Skip(at_most=9), 40),
    (sv.Substitute(0), 40),
]
"""What becomes of rows that fail, and the rows of which a function fails on one; 0 for none."""


def measured(loader: sv.Loader, case: bad_orders.BadOrder) -> tuple[int, list[tuple[str, str]]]:
    """The cost (calls × declared cost) of some epochs, and each batch with the state after it."""
    calls = bad_orders.count_call.calls
    calls.clear()
    found = [
        (digest(batch), json.dumps(loader.state_dict())) for _ in range(EPOCHS) for batch in loader
    ]
    costs = {step.number: step.cost for step in case.steps}
    return sum(costs[number] * count for number, count in calls.items()), found


def check(seed: int) -> None:
    case = bad_orders.draw(seed)
    written = bad_orders.build(case, case.steps)
    best, order = bad_orders.best(case, EPOCHS)
    by_hand = bad_orders.build(case, order)
    costs = bad_orders.DeclaredCosts(case, written)
    loader = written.pipeline.loader(backend="inline").with_seams(costs=costs)
    cost, found = measured(loader, case)
    _, expected = measured(written.pipeline.options(optimize=False).loader(backend="inline"), case)
    assert found == expected
    spent, same = measured(by_hand.pipeline.options(optimize=False).loader(backend="inline"), case)
    assert [batch for batch, _ in same] == [batch for batch, _ in found]
    assert spent == best
    assert cost <= WITHIN * best, f"{cost} where {best} is possible:\n{loader.explain()}\n{order}"


def ended(loader: sv.Loader) -> list[tuple[str, str]]:
    """Each batch with the state after it, the rows that failed, and the error that ended it."""
    found = []
    for _ in range(EPOCHS):
        try:
            for batch in loader:
                found += [(digest(batch), json.dumps(loader.state_dict()))]
        except sv.SilvaError as error:
            found.append((type(error).__name__, str(error)))
        found += [(str(failure.key), str(failure.error)) for failure in loader.failures]
    return found


def check_failing_rows(seed: int, policy: Policy, fails: int) -> None:
    """Pipelines of which functions fail on some rows end alike in any order, on threads too."""
    case = bad_orders.draw(seed)
    written = bad_orders.build(case, case.steps, fails=fails)
    plain = written.pipeline.options(optimize=False)
    expected = ended(plain.loader(backend="inline", on_error=policy))
    for given in ({"backend": "inline"}, {"backend": "threads", "workers": 2}):
        costs = bad_orders.DeclaredCosts(case, written)
        with written.pipeline.loader(**given, on_error=policy).with_seams(costs=costs) as loader:
            assert ended(loader) == expected


@pytest.mark.parametrize(("policy", "fails"), POLICIES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_failing_rows_fail_in_any_order(seed: int, policy: Policy, fails: int) -> None:
    check_failing_rows(seed, policy, fails)


@pytest.mark.rest
@pytest.mark.parametrize(("policy", "fails"), POLICIES, ids=str)
@pytest.mark.parametrize("seed", range(4, SEEDS + 12))
def test_failing_rows_fail_in_any_generated_order(seed: int, policy: Policy, fails: int) -> None:
    check_failing_rows(seed, policy, fails)


@pytest.mark.parametrize("seed", range(12))
def test_a_badly_ordered_pipeline_costs_little_more_than_the_best_order(seed: int) -> None:
    check(seed)


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(12, SEEDS + 12))
def test_badly_ordered_pipelines_cost_little_more_than_the_best_order(seed: int) -> None:
    check(seed)
