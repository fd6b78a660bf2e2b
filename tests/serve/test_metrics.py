"""Metrics: they compare as people do."""

from __future__ import annotations

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
