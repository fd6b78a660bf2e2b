"""Blocks that came to a stage while it ran, kept to run its steps again one by one.

Kept are the latest few of each stage, bounded in number and bytes: the first blocks of a run are
small and their steps cold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silva.columns import Block, Column
from silva.insight.repeat import Work
from silva.physical.batch_value import BatchValue
from silva.physical.batches import BatchStage
from silva.physical.call import Worker
from silva.physical.context import Context
from silva.physical.places import ReadPlaces
from silva.physical.rows import Rows
from silva.physical.stage import Stage

_MOST_BLOCKS = 8
_MOST_BYTES = 256 << 20


@dataclass
class Inputs:
    """The latest inputs of every stage."""

    most_bytes: int = _MOST_BYTES
    kept: dict[str, deque[Any]] = field(default_factory=dict)
    _stages: dict[str, Any] = field(default_factory=dict)

    def keep(self, node: Any, payload: Any) -> None:
        if self._stages.get(node.name) is not node.stage:  # the plan has changed
            self._stages[node.name], self.kept[node.name] = node.stage, deque()
        mine = self.kept[node.name]
        mine.append(payload)
        while len(mine) > 1 and (len(mine) > _MOST_BLOCKS or _nbytes(mine) > self.most_bytes):
            mine.popleft()


def _nbytes(payloads: deque[Any]) -> int:
    return sum(int(getattr(payload, "nbytes", 0)) for payload in payloads)


@dataclass(frozen=True, eq=False)
class Arrived:
    """Rows as they came to a step."""

    columns: dict[str, Column]
    ids: np.ndarray
    places: np.ndarray | None
    index: np.ndarray | None

    @staticmethod
    def at(rows: Rows) -> Arrived:
        return Arrived(dict(rows.columns), rows.ids, rows.places, rows.index)

    def again(self, context: Context) -> Rows:
        return Rows(
            context, dict(self.columns), self.ids, self.places, len(self.ids), index=self.index
        )


@dataclass(frozen=True, eq=False)
class Replay:
    """One step, and what it needs to be run alone, over and over."""

    label: str
    work: Work
    rows: int
    """That come to it in one round over all that was kept."""


@dataclass(frozen=True, eq=False)
class StageReplay:
    """The steps of a stage, and what came out of it."""

    steps: list[Replay]
    rows: int
    """That came out of the stage."""
    blocks: list[Block]


def replay_stage(stage: Any, payloads: list[Any], context: Context) -> StageReplay:
    """Runs what was kept once, and takes note of what comes to each step on the way."""
    if isinstance(stage, Stage):
        return _row_stage(stage, payloads, context)
    nodes = stage.nodes if isinstance(stage, BatchStage) else (None,)
    worker = Worker(shares_generators=False)
    steps: list[Replay] = []
    for node in nodes:
        part = stage if node is None else BatchStage((node,))
        steps.append(_whole(part, payloads, context))
        made = [r.block for payload in payloads for r in part.run(payload, context, worker)]
        payloads = [value for block in made for value in block.columns["batch"].rows()]
    return StageReplay(steps, sum(map(_rows, payloads)), [])


def _rows(payload: Any) -> int:
    return payload.rows if isinstance(payload, BatchValue) else len(payload)


def _whole(stage: Any, payloads: list[Any], context: Context) -> Replay:
    """A stage of batches as one step."""

    def work(turn: int, worker: Worker) -> Iterator[int]:
        payload = payloads[turn % len(payloads)]
        list(stage.run(payload, context, worker))
        yield _rows(payload)

    return Replay(stage.label, work, sum(map(_rows, payloads)))


def _row_stage(stage: Stage, payloads: list[Any], context: Context) -> StageReplay:
    worker = Worker(shares_generators=False)
    late, at = stage._late
    came: list[list[Arrived]] = [[] for _ in stage.steps]
    fetched: list[Arrived] = []
    blocks: list[Block] = []
    spent = 0
    for rows in (r for payload in payloads for r, _ in stage._rows(payload, context, worker)):
        for number, step in enumerate(stage.steps):
            if number == at and isinstance(stage.read, ReadPlaces) and rows.index is not None:
                fetched.append(Arrived.at(rows))
                stage.read.fetch(rows, late)
            came[number].append(Arrived.at(rows))
            step.apply(rows, worker)
            spent += sum(
                c.nbytes for n, c in rows.columns.items() if n in getattr(step, "into", ())
            )
        blocks.append(rows.block())
        if spent > _MOST_BYTES:
            break
    read = [payload for payload in payloads if not isinstance(payload, Block)]
    steps = [_reading(stage, read, context)] if read else []
    if fetched:
        steps.append(_fetching(stage, fetched, late, context))
    for step, arrived in zip(stage.steps, came, strict=True):
        if step.label:
            steps.append(_stepping(step, arrived, context))
    steps.append(_settling(stage, blocks))
    return StageReplay(steps, sum(map(len, blocks)), [_settled(block) for block in blocks])


def _reading(stage: Stage, payloads: list[Any], context: Context) -> Replay:
    def work(turn: int, worker: Worker) -> Iterator[int]:
        for rows, _ in stage._rows(payloads[turn % len(payloads)], context, worker):
            yield len(rows)

    assert stage.read is not None
    return Replay(stage.read.label, work, sum(map(len, payloads)))


def _fetching(
    stage: Stage, arrived: list[Arrived], late: tuple[str, ...], context: Context
) -> Replay:
    def work(turn: int, worker: Worker) -> Iterator[int]:
        rows = arrived[turn % len(arrived)].again(context)
        assert isinstance(stage.read, ReadPlaces)
        stage.read.fetch(rows, late)
        yield len(rows)

    return Replay(f"read late {', '.join(late)}", work, sum(len(a.ids) for a in arrived))


def _stepping(step: Any, arrived: list[Arrived], context: Context) -> Replay:
    def work(turn: int, worker: Worker) -> Iterator[int]:
        rows = arrived[turn % len(arrived)].again(context)
        count = len(rows)
        step.apply(rows, worker)
        yield count

    return Replay(step.label, work, sum(len(a.ids) for a in arrived))


def _settling(stage: Stage, blocks: list[Block]) -> Replay:
    """What every stage does last."""

    def work(turn: int, worker: Worker) -> Iterator[int]:
        block = blocks[turn % len(blocks)]
        _settled(block)
        yield len(block)

    return Replay("put rows into columns", work, sum(map(len, blocks)))


def _settled(block: Block) -> Block:
    return block.with_columns({name: c.settled() for name, c in block.columns.items()})
