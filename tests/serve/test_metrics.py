"""Metrics: they compare as people do."""

from __future__ import annotations

import math

import numpy as np
import pytest

import silva as sv


def test_metrics_compare_as_people_do() -> None:
    row = {"a": "The  Rhine.", "g": ["rhine", "Rhein"], "h": [{"id": 1}, {"id": 2}], "ids": [2, 9]}
    assert sv.exact_match("a", "g")(row) == 1
    assert sv.f1("a", "g")({**row, "a": "in river Rhine"}) == pytest.approx(0.5)
    assert sv.recall_at(2, "h", "ids")(row) == 0.5
    with pytest.raises(sv.ColumnError, match="'gold'"):
        sv.f1("a", "gold")(row)


@pytest.mark.parametrize("hits", [5, "text", [1], ["a"], [{"score": 1.0}]])
def test_recall_says_what_it_cannot_read(hits: object) -> None:
    with pytest.raises(sv.ColumnError, match=r"recall_at reads the ids of hits, and 'h' holds"):
        sv.recall_at(1, "h", "g")({"h": hits, "g": 1})
    assert sv.recall_at(1, "h", "g")({"h": None, "g": 1}) == 0


@pytest.mark.parametrize(
    "score", [None, "1", b"1", math.nan, math.inf, [1.0], np.ones(2), 1j, np.complex64(1), 10**400]
)
def test_a_metric_that_gives_no_number_is_named_with_its_row(score: object) -> None:
    asked = sv.requests("x").derive(y=lambda x: x)

    def graded(y: int) -> object:
        return 1.0 if y == 0 else score

    with pytest.raises(sv.ColumnError, match=r"the metric .*graded.* for row 1"):
        asked.evaluate([{"x": 0}, {"x": 1}], graded)
    assert asked.evaluate([{"x": 0}], lambda y: np.bool_(True)).mean.value == 1
