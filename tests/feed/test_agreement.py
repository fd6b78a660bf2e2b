"""Two real processes over gloo: ranks with unlike numbers of rows take the same number of steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

import silva as sv
from silva.feed.ranks import all_have_one
from silva.testing import replanned

RANK = """
import json, sys
from datetime import timedelta
import torch.distributed as dist
import silva as sv

rank, meeting, stop = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
states = json.loads(sys.argv[4])
dist.init_process_group(
    "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
)
# Rank 0 has rows 0 to 99 and keeps all; rank 1 has 100 to 199 and keeps every third.
rows = sv.from_columns({"x": range(200)}).filter(lambda x: x < 100 or x % 3 == 0).batch(8)
loader = rows.loader(workers=0)  # who this is, torch.distributed knows
assert rows.count() == 17 and len(rows.head(100)) == 17  # all rows, on every rank
if states:
    loader.load_state_dict(states[rank])
seen, state = [], None
for batch in loader:
    seen.append(batch["x"].tolist())
    if len(seen) == stop:
        break
state = loader.state_dict()
print(json.dumps({"seen": seen, "state": state}))
dist.destroy_process_group()
"""


def run_ranks(meeting: Path, stop: int = -1, states: list | None = None) -> list[dict]:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(meeting), str(stop), json.dumps(states)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    found = []
    for rank in ranks:
        out, err = rank.communicate(timeout=90)
        assert rank.returncode == 0, err
        found.append(json.loads(out))
    return found


@pytest.mark.rest
def test_ranks_with_unlike_rows_take_the_same_steps_and_resume_exactly(tmp_path: Path) -> None:
    whole = run_ranks(tmp_path / "whole")
    # 34 rows survive on rank 1, 4 a step: 8 full steps and one of 2; rank 0 could do 25.
    assert [len(rank["seen"]) for rank in whole] == [9, 9]
    assert [rank["state"]["epoch"] for rank in whole] == [1, 1]
    begun = run_ranks(tmp_path / "begun", stop=4)
    assert [rank["state"]["step"] for rank in begun] == [4, 4]
    rest = run_ranks(tmp_path / "rest", states=[rank["state"] for rank in begun])
    for rank in range(2):
        assert begun[rank]["seen"] + rest[rank]["seen"] == whole[rank]["seen"]


def test_without_torch_distributed_the_advice_is_to_set_it_up() -> None:
    with pytest.raises(sv.LoaderError, match="init_process_group"):
        all_have_one(True, "auto")


@pytest.mark.parametrize("group", ["gloo", 0, object(), [1]])
def test_a_group_that_is_none_is_refused_whatever_the_world(group: Any) -> None:
    rows = sv.from_columns({"x": range(8)}).batch(4)
    for world in (1, 2):
        with pytest.raises(sv.PlanError, match=r"group=…\) takes a process group of torch"):
            rows.loader(rank=0, world=world, group=group)
    for fine in (None, "auto", torch.distributed.ProcessGroup(0, 1)):
        rows.loader(rank=0, world=1, group=fine).close()


def test_a_refused_agreement_leaves_the_loader_usable() -> None:
    rows = sv.from_columns({"x": range(8)}).filter(lambda x: True).batch(4)
    loader = rows.loader(rank=0, world=2, group="auto", workers=0)
    for _ in range(2):
        with pytest.raises(sv.LoaderError, match="init_process_group"):
            next(iter(loader))
    assert loader.state_dict()["step"] == 0


def test_a_state_counts_steps_right_after_the_plan_has_changed(monkeypatch) -> None:
    """Ranks read one batch ahead; a change of plan in between must count no batch twice."""
    monkeypatch.setattr("silva.feed.ranks.all_have_one", lambda have, group: have)
    rows = sv.from_columns({"x": range(200)}).derive(y=lambda x: x).filter(lambda x: x % 2 == 0)
    rows = rows.filter(lambda y: y % 3 == 0).batch(4)
    loader = replanned(rows.loader(rank=0, world=2, group="auto", backend="inline"), seed=1)
    changes = []
    monkeypatch.setattr(
        loader._planner,
        "look",
        lambda epoch, look=loader._planner.look: _noted(changes, look(epoch)),
    )
    for step, _ in enumerate(loader, start=1):
        assert loader.state_dict()["step"] == step
    assert any(changes)


def _noted(changes: list[bool], changed: bool) -> bool:
    changes.append(changed)
    return changed
