"""Inputs of stages, kept while a pipeline runs, and its steps run again one by one on them.

The latest few inputs of each stage are kept, bounded in number and bytes: the first ones of a run
are small, and libraries are imported while they are processed.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from silva.columns import Block, Column
from silva.facts.plans import Segment, late_label
from silva.lifetime import Thread
from silva.physical.stage.batch_steps import BatchStage
from silva.physical.stage.batch_value import BatchValue
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.physical.stage.read import Places, ReadPlaces, UnitRows
from silva.physical.stage.rows import Rows
from silva.physical.stage.stage import Runs, Stage
from silva.physical.stage.steps import RowStep

_MAX_INPUTS = 8
_MAX_BYTES = 256 << 20

Payload = Block | Places | UnitRows | BatchValue
"""The input of a stage: rows, the places of rows that it reads, or a batch."""
Input = Payload | Sized
Given = TypeVar("Given", bound=Input)
Work = Callable[[int, Worker], Iterator[int]]
"""Runs a step on the input with this number, and yields the number of rows done."""


@dataclass
class KeptInputs:
    """The latest inputs of every stage."""

    max_bytes: int = _MAX_BYTES
    by_stage: dict[str, deque[Payload]] = field(default_factory=dict)
    _stages: dict[str, Runs] = field(default_factory=dict)

    def keep(self, node: Segment, payload: Payload) -> None:
        if self._stages.get(node.name) is not node.stage:  # the plan has changed
            self._stages[node.name], self.by_stage[node.name] = node.stage, deque()
        kept = self.by_stage[node.name]
        kept.append(payload)
        while len(kept) > 1 and (len(kept) > _MAX_INPUTS or _nbytes(kept) > self.max_bytes):
            kept.popleft()

    def of(self, stage: str) -> list[Payload]:
        return list(self.by_stage.get(stage, ()))


def _nbytes(payloads: deque[Payload]) -> int:
    return sum(int(getattr(payload, "nbytes", 0)) for payload in payloads)


@dataclass(frozen=True, eq=False)
class StepReplay:
    """A step that can be run alone, as often as needed."""

    label: str
    work: Work
    rows: int
    """Rows that reach the step when every kept input is run once."""


@dataclass(frozen=True, eq=False)
class StageReplay:
    """The steps of a stage, and what it returned."""

    steps: list[StepReplay]
    rows: int
    """Rows that the stage returned."""
    blocks: list[Block]


def replay_stage(stage: Runs, payloads: list[Payload], context: Context) -> StageReplay:
    """Runs the kept inputs once, and records what reaches each step."""
    if isinstance(stage, Stage):
        return _replay_rows(stage, payloads, context)
    parts: list[Runs] = [stage]
    if isinstance(stage, BatchStage):
        parts = [BatchStage((node,)) for node in stage.nodes]
    worker = Worker(shares_generators=False)
    steps: list[StepReplay] = []
    for part in parts:
        steps.append(_replay(part.label, payloads, partial(_drain, part, context)))
        made = [r.block for payload in payloads for r in part.run(payload, context, worker)]
        payloads = [value for block in made for value in block.columns["batch"].rows()]
    return StageReplay(steps, sum(map(_rows, payloads)), [])


def _drain(stage: Runs, context: Context, payload: Payload, worker: Worker) -> None:
    for _ in stage.run(payload, context, worker):
        pass


def _rows(payload: Input) -> int:
    return payload.rows if isinstance(payload, BatchValue) else len(payload)


def repeat(inputs: Sequence[Given], run: Callable[[Given, Worker], Iterable[int] | None]) -> Work:
    """Runs on each input in turn. `run` returns the rows of each part, or None for all at once."""

    def work(turn: int, worker: Worker) -> Iterator[int]:
        given = inputs[turn % len(inputs)]
        parts = run(given, worker)
        yield from (_rows(given),) if parts is None else parts

    return work


def _replay(
    label: str, inputs: Sequence[Given], run: Callable[[Given, Worker], Iterable[int] | None]
) -> StepReplay:
    return StepReplay(label, repeat(inputs, run), sum(map(_rows, inputs)))


@dataclass(frozen=True, eq=False)
class _Snapshot:
    """Rows as they reached a step."""

    columns: dict[str, Column]
    ids: np.ndarray
    places: np.ndarray | None
    index: np.ndarray | None

    @staticmethod
    def of(rows: Rows) -> _Snapshot:
        return _Snapshot(dict(rows.columns), rows.ids, rows.places, rows.index)

    def __len__(self) -> int:
        return len(self.ids)

    def restore(self, context: Context) -> Rows:
        return Rows(
            context, dict(self.columns), self.ids, self.places, len(self.ids), index=self.index
        )


def _replay_rows(stage: Stage, payloads: list[Payload], context: Context) -> StageReplay:
    worker = Worker(shares_generators=False)
    reached: list[list[_Snapshot]] = [[] for _ in stage.steps]
    fetched: list[_Snapshot] = []
    blocks: list[Block] = []
    nbytes = 0
    for rows in _begin(stage, payloads, context, worker):
        for number, step in enumerate(stage.steps):
            late = number == stage.late_at and rows.index is not None
            if late and isinstance(stage.read, ReadPlaces):
                fetched.append(_Snapshot.of(rows))
                stage.read.fetch(rows, stage.late)
            reached[number].append(_Snapshot.of(rows))
            step.apply(rows, worker)
            nbytes += sum(c.nbytes for n, c in rows.columns.items() if n in step.writes)
        blocks.append(rows.block())
        if nbytes > _MAX_BYTES:
            break

    def read(payload: Payload, worker: Worker) -> Iterator[int]:
        return map(len, _begin(stage, [payload], context, worker))

    def fetch(snapshot: _Snapshot, worker: Worker) -> None:
        assert isinstance(stage.read, ReadPlaces)
        stage.read.fetch(snapshot.restore(context), stage.late)

    def apply(step: RowStep, snapshot: _Snapshot, worker: Worker) -> None:
        step.apply(snapshot.restore(context), worker)

    steps = []
    places = [payload for payload in payloads if not isinstance(payload, Block)]
    if places and stage.read is not None:
        steps.append(_replay(stage.read.label, places, read))
    if fetched:
        steps.append(_replay(late_label(stage.late), fetched, fetch))
    for step, snapshots in zip(stage.steps, reached, strict=True):
        if step.label:
            steps.append(_replay(step.label, snapshots, partial(apply, step)))
    steps.append(_replay("put rows into columns", blocks, _settle_only))
    return StageReplay(steps, sum(map(len, blocks)), [_settle(block) for block in blocks])


def _begin(
    stage: Stage, payloads: Sequence[Payload], context: Context, worker: Worker
) -> Iterator[Rows]:
    """The rows with which the steps of a stage begin."""
    for payload in payloads:
        assert not isinstance(payload, BatchValue)
        yield from (rows for rows, _ in stage.begin(payload, context, worker))


def _settle_only(block: Block, worker: Worker) -> None:
    _settle(block)


def _settle(block: Block) -> Block:
    return block.with_columns({name: c.settled() for name, c in block.columns.items()})


def measure_rate(work: Work, width: int, seconds: float) -> float:
    """Rows per second of some work that is repeated for so long on `width` threads.

    >>> def work(turn, worker):
    ...     yield 10
    >>> measure_rate(work, 1, 0.01) > 0
    True
    """
    single = width <= 1
    workers = [Worker(shares_generators=not single) for _ in range(max(width, 1))]
    turns = itertools.count()
    for worker in workers:
        next(work(next(turns), worker), 0)  # objects that are built once are not measured
    done = [0] * len(workers)
    failed: list[BaseException] = []
    began = time.perf_counter()

    def run(number: int) -> None:
        try:
            while not failed:
                for rows in work(next(turns), workers[number]):
                    done[number] += rows
                    if time.perf_counter() - began >= seconds:
                        return
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            failed.append(error)

    if single:
        run(0)
    else:
        threads = [Thread(run, f"replay-{i}", (i,)) for i in range(len(workers))]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException as error:
            failed.append(error)  # ends all threads
            raise
    if failed:
        raise failed[0]
    return sum(done) / max(time.perf_counter() - began, 1e-9)
