"""Facts are read-only data, and renderers read nothing else."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest
from busy import spin

import silva as sv
from silva.facts.model import READ, RunFacts

ROOT = Path(sv.__file__).parent
RENDERERS = [
    path
    for room in ("facts", "insight", "feed")
    for path in sorted((ROOT / room).glob("*.py"))
    if path.name != "collect.py"  # the one place that reads lanes
]


def double(x):
    return x * 2


def pipeline():
    rows = sv.from_columns({"x": range(90)}).derive(y=double).filter(sv.col("x") % 3 == 0)
    return rows.batch(10).filter(lambda x: x[0] >= 0)


@pytest.mark.parametrize("path", RENDERERS, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_renderers_read_no_private_attribute_and_no_lane(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = {"self", "cls", "torch", "np"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            private = not node.attr.startswith("__") and node.attr != "_replace"  # a named tuple's
            assert not private or (isinstance(node.value, ast.Name) and node.value.id in own)
        if isinstance(node, ast.ImportFrom):
            assert node.module not in ("silva.run.executor", "silva.run.placement.lane")


def test_facts_are_a_snapshot_that_nobody_can_change() -> None:
    with pipeline().loader(backend="inline") as loader:
        before = loader.facts()
        list(loader)
        after = loader.facts()
    assert isinstance(before, RunFacts)
    assert before.stages == ()
    assert before.consumer is None
    assert after.consumer is not None
    assert after.consumer.rows == 30
    with pytest.raises(dataclasses.FrozenInstanceError):
        after.epoch = 3  # type: ignore[misc]
    assert {type(value) for value in vars(after).values()}.isdisjoint({list, dict, set})


def test_every_step_of_a_stage_is_measured_once_with_its_name() -> None:
    with pipeline().loader(backend="inline") as loader:
        for _ in range(3):
            list(loader)
        rows, batches = loader.facts().stages
    assert [step.id for step in rows.steps] == [READ, "filter#0", "y#0"]
    assert [step.filters for step in rows.steps] == [False, True, False]
    assert sum(step.share for step in rows.steps) == pytest.approx(1.0)
    assert rows.steps[1].selectivity == pytest.approx(1 / 3, abs=0.05)
    assert rows.steps[2].writes == ("y",)
    (only,) = batches.steps
    assert only.filters
    assert only.rows_out == only.rows_in


def test_columns_that_are_read_late_are_a_step_of_their_own(tmp_path) -> None:
    for number in range(60):
        (tmp_path / f"{number:02d}.bin").write_bytes(b"x" * 5000)
    rows = sv.read_files(str(tmp_path / "*.bin")).filter(lambda path: "1" in path)
    with rows.derive(n=lambda bytes: len(bytes)).batch(4).loader(backend="inline") as loader:
        for _ in range(3):
            list(loader)
        (stage,) = loader.facts().stages
        assert [step.id for step in stage.steps].count(READ) == 2
        late = next(step for step in stage.steps if step.label == "read bytes after the filters")
        assert late.label in loader.stats()["stage 1"]["steps"]
        assert late.label in loader.explain()
        assert loader.what_if(read=0.5).notes[1].startswith("read: ")


def test_rows_that_the_consumer_ran_before_workers_did_are_not_work_of_its_loop() -> None:
    rows = sv.from_columns({"x": range(64)}).derive(y=spin(1.0)).batch(8)
    with rows.loader(workers=2) as loader:
        list(loader)
        lane = loader._executor.lanes["stage 1"]
        before = loader.facts().consumer
        assert before is not None
        lane.move("threads", "as a test wants it")
        lane.decided = True
        after = loader.facts().consumer
    assert after is not None
    assert before.waited >= 0.064
    assert after.waited == before.waited
    assert after.own == before.own
