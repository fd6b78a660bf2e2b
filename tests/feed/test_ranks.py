"""Who a loader takes this process for."""

from __future__ import annotations

import warnings

import pytest

import silva as sv

ROWS = sv.from_columns({"x": range(8)}).batch(4, drop_last=True)


def test_a_world_without_a_rank_is_refused() -> None:
    with pytest.raises(sv.PlanError, match=r"which of the ranks.*rank="):
        ROWS.loader(world=2)
    with pytest.raises(sv.PlanError, match=r"which of the ranks.*rank="):
        ROWS.loader(world=2, service="127.0.0.1:1", token="t", wait=False)
    whole = ROWS.loader(world=1, backend="inline")
    assert [b["x"].tolist() for b in whole] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_ranks_of_a_launcher_without_a_process_group_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match=r"rank 1 of 2.*init_process_group.*rank=") as told:
        ROWS.loader(backend="inline")
    assert [warning.filename for warning in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ROWS.loader(backend="inline", rank=1, world=2)
        ROWS.loader(backend="inline", rank=0, world=1)
        monkeypatch.setenv("WORLD_SIZE", "1")
        ROWS.loader(backend="inline")
        monkeypatch.setenv("WORLD_SIZE", "many")
        ROWS.loader(backend="inline")
