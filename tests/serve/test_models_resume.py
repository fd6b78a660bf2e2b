"""A run that is killed asks nothing again whose answer had reached the disk."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models import duplicates, resume


@pytest.mark.rest
def test_a_killed_run_repeats_no_call_whose_answer_was_kept() -> None:
    found = resume(rows=1_200, kills=3)
    assert found.rows == 1_200
    assert found.repeated == 0
    assert found.calls < 1_200 + 3 * 200  # only what was in flight
    assert found.kept == sorted(found.kept)
    assert found.kept[0] > 0


def test_each_duplicate_saves_one_call() -> None:
    assert duplicates(rows=200, repeated=60) == {"run": 140, "ask": 140}
