"""The book of earlier runs: a bounded folder of costs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from silva.cost import book
from silva.cost.costs import Cost


@pytest.mark.parametrize("most", [2, 4])
def test_the_oldest_costs_are_removed_when_there_are_too_many(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "_MOST_FILES", most)
    costs = book.Book(tmp_path)
    for age in range(4):
        costs.put(f"{age}", Cost(rows=1, kept=1, seconds=1.0, cpu=1.0))
        os.utime(tmp_path / f"{age}.json", (1000 - age, 1000 - age))
    costs.tidy()
    assert [costs.get(f"{age}") is not None for age in range(4)] == [age < most for age in range(4)]
