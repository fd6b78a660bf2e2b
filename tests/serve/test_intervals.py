"""Intervals hold the true value as often as they say, also of few rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import silva as sv
from silva.serve.search.intervals import (
    AMOUNT,
    Interval,
    gain_interval,
    mean_interval,
    score_interval,
)

Draw = Callable[[np.random.Generator, int], np.ndarray]


def choose(values: list[float], shares: list[float]) -> Draw:
    return lambda rng, count: rng.choice(values, p=shares, size=count)


def coverage(
    draw: Draw, true: float, rows: int, interval: Callable[[np.ndarray], Interval]
) -> float:
    """The share of samples whose interval holds the true mean."""
    rng, samples = np.random.default_rng(0), 150
    found = [interval(draw(rng, rows)) for _ in range(samples)]
    return sum(one.low - 1e-6 <= true <= one.high + 1e-6 for one in found) / samples


LEAST = 0.95 - 3 * np.sqrt(0.95 * 0.05 / 150)
"""What the share of samples falls below once in a thousand times."""


@pytest.mark.parametrize("rows", [2, 3, 5, 10, 20, 50])
@pytest.mark.parametrize(
    ("values", "shares"),
    [
        ([0.0, 0.4, 0.7, 1.0], [0.3, 0.2, 0.2, 0.3]),
        ([0.2, 0.9, 1.0], [0.05, 0.1, 0.85]),  # nearly all are right
        ([0.0, 0.5, 1.0], [0.93, 0.04, 0.03]),  # nearly all are wrong
    ],
    ids=["f1", "right", "wrong"],
)
def test_scores_of_few_rows(values: list[float], shares: list[float], rows: int) -> None:
    true = float(np.dot(values, shares))
    assert coverage(choose(values, shares), true, rows, score_interval) >= LEAST


@pytest.mark.parametrize("rows", [2, 3, 5, 10, 20, 50])
@pytest.mark.parametrize(
    ("values", "shares"),
    [([0.0, 1.0], [0.95, 0.05]), ([-1.0, 0.0, 0.5, 1.0], [0.05, 0.65, 0.1, 0.2])],
    ids=["rare", "mixed"],
)
def test_gains_of_few_rows(values: list[float], shares: list[float], rows: int) -> None:
    def interval(gains: np.ndarray) -> Interval:
        before = np.where(gains < 0, 1.0, 0.0)
        return gain_interval(before, before + gains)

    true = float(np.dot(values, shares))
    assert coverage(choose(values, shares), true, rows, interval) >= LEAST


@pytest.mark.parametrize("rows", [8, 10, 20, 50])
@pytest.mark.parametrize("shape", [1.0, 4.0])
def test_seconds_of_few_rows(shape: float, rows: int) -> None:
    found = coverage(
        lambda rng, count: rng.gamma(shape, size=count),
        shape,
        rows,
        lambda values: mean_interval(values, AMOUNT),
    )
    assert found >= LEAST


def test_an_interval_becomes_the_usual_one_with_many_rows() -> None:
    scores = np.random.default_rng(0).beta(2, 3, 2000)
    found, usual = score_interval(scores), 1.96 * scores.std() / np.sqrt(2000)
    assert found.high - found.low == pytest.approx(2 * usual, rel=0.1)


def test_scores_of_0_and_1_are_exact() -> None:
    found = score_interval(np.ones(6))
    assert (found.low, found.high) == (pytest.approx(0.025 ** (1 / 6), abs=1e-5), 1.0)
    evaluated = sv.requests("x").derive(y=sv.col("x") * 2)
    right = evaluated.evaluate(
        [{"x": n, "gold": 2 * n} for n in range(6)], lambda y, gold: y == gold
    )
    assert str(right.mean) == "1.000 (0.541 to 1.000)"


def test_other_scores_get_the_bound_that_is_exact_for_those() -> None:
    exact, general = score_interval(np.ones(6)), mean_interval(np.ones(6), (0.0, 1.0 + 1e-9))
    assert general.low == pytest.approx(exact.low, abs=0.02)


def test_rows_that_gain_nothing_do_not_prove_that_no_row_gains() -> None:
    open_end = sv.requests("x").derive(hit=lambda x: x).derive(y=lambda hit: hit)
    rows = [{"x": 1, "gold": 1} for _ in range(5)]
    table = open_end.what_if(
        on=rows, metric=lambda y, gold: y == gold, gold={"hit": "gold"}, seconds=0
    )
    perfect = table.steps[0].perfect
    assert perfect.value == 0
    assert perfect.low < -0.3
    assert perfect.high > 0.3
    assert table.limit is None


def test_of_few_seconds_the_mean_has_no_upper_end() -> None:
    assert mean_interval(np.array([0.1] * 7), AMOUNT).high == np.inf
    assert mean_interval(np.array([0.1, 0.2] * 4), AMOUNT).high < 0.3
    assert str(mean_interval(np.empty(0), AMOUNT)) == "nan (0.000 to inf)"
