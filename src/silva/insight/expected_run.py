"""A run that has not begun: where its stages would be placed, and how fast they would be from the
first moment to the last.

What comes before the rate is steady counts as well, because short runs consist of it: stages are
measured on the consumer's thread first, worker processes start, and threads whose rows mostly wait
become more step by step.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from silva.cost.costs import BLOCK_SECONDS, ENOUGH_BLOCKS
from silva.cost.experiment import ENOUGH, SECONDS
from silva.cost.model import PROCESS_START, Backend, Placed, Work, choose_place, loop_work
from silva.cost.replay import Own, Replay
from silva.facts.model import ConsumerFacts


@dataclass(frozen=True)
class StageLoad:
    """What is known of a stage before the run."""

    name: str
    work: Work
    """The work of a row if nothing runs beside it."""
    rows: float = 1.0
    """Rows that enter the stage per row that the consumer gets."""
    block_rows: float = 1.0
    shares_generators: bool = False
    """Whether its functions draw from global random generators, which threads would share."""
    uncertainty: float = 0.0
    """The standard error of its seconds per row, as a share."""


@dataclass(frozen=True)
class Workers:
    """The workers that a run may use."""

    count: int
    most_threads: int
    """The threads of a stage whose rows mostly wait."""
    cores: int
    backend: Backend | None = None
    """The backend that was asked for; None where silva chooses."""


@dataclass(frozen=True)
class Trial:
    """What the beginning of the run did, or all of a short run, with workers."""

    seen: ConsumerFacts | None
    rows: float = 0.0
    seconds: float = 0.0
    """How long the rows took from the first moment on; 0 where nothing was tried."""
    ended: bool = False
    """Whether it came to the end of the last epoch: the run will be as long."""
    pace: float | None = None
    """Rows per second once workers ran; None where too few came to tell."""
    spread: float = 0.0
    """How much the rate differed between parts of it once workers ran, or between several trials of
    a short run, as a share: the run will differ from the trial by as much."""


def late(arrivals: Sequence[float]) -> Sequence[float]:
    """The latter half of batches that came at these moments: in the first, workers start."""
    return arrivals[len(arrivals) // 2 :]


def spread_of(arrivals: Sequence[float]) -> float:
    """The standard deviation of the rate of batches that came at these moments, between parts of
    the latter half, as a share of their mean. 0 for too few. They are as many parts as a
    measurement has blocks, and equally long: the batches of a block come together.

    >>> round(spread_of(range(100)), 9)
    0.0
    >>> round(spread_of([*range(75), *range(75, 125, 2)]), 2)  # half as fast at the end
    0.36
    """
    came = late(arrivals)
    if len(came) <= ENOUGH_BLOCKS or came[-1] <= came[0]:
        return 0.0
    edges = np.linspace(came[0], came[-1], ENOUGH_BLOCKS + 1)
    return share_of_mean(np.diff(np.interp(edges, came, np.arange(len(came)))).tolist())


def share_of_mean(values: Sequence[float]) -> float:
    """The standard deviation of a few values, as a share of their mean; 0 of one value.

    >>> round(share_of_mean([9.0, 10.0, 11.0]), 2)
    0.1
    """
    return statistics.stdev(values) / statistics.mean(values) if len(values) > 1 else 0.0


class ExpectedRun:
    """A run that has not begun, with its stages where they would be placed."""

    def __init__(
        self,
        loads: tuple[StageLoad, ...],
        own: Own,
        rows: float | None,
        workers: Workers,
        tried: Trial,
    ) -> None:
        self._loads, self._own, self._workers = loads, own, workers
        slowest = max(loads, key=lambda load: load.rows * load.work.seconds)
        self._block = slowest.block_rows / max(slowest.rows, 1e-12)
        self._blocks = None if rows is None else math.ceil(rows / self._block)
        self._rows = math.inf if rows is None else rows
        self._tried = tried
        self.placed = tuple(map(self._place, loads))
        """The stages, before their threads become more."""
        self._scale = 1.0
        """The measured rate of the stages, where they were tried, as a share of the modelled
        rate."""
        if tried.seen is not None:
            seen = {one.name: one for one in tried.seen.stages}
            self.placed = tuple(_as_seen(one, seen.get(one.name)) for one in self.placed)
        if tried.pace:
            long = Replay(self.placed, workers.cores, own, self._block)
            self._scale = tried.pace / long.run().rows_per_second

    def _place(self, load: StageLoad) -> Placed:
        workers, own = self._workers, self._own
        backend = workers.backend or ("inline" if not workers.count else None)
        if backend is None:
            rows = max(load.rows, 1e-12)
            backend = choose_place(
                load.work,
                workers.count,
                workers.cores,
                consumer=loop_work(own.seconds / rows, own.cpu / rows),
                left=self._rows * load.rows * load.work.seconds,
                shares_generators=load.shares_generators,
            ).backend
        return Placed(load.name, load.work, backend, workers.count, load.rows)

    def steady(self) -> float:
        """Rows per second once all workers run."""
        found = max(rate for rate, _ in self._growing(math.inf))
        may_return = self._workers.backend is None and not self._tried.pace
        return max(found, self._alone()) if may_return else found

    def seconds(self, rows: float) -> float:
        """How long it takes to the end. What was tried takes as long again."""
        left, passed = rows - self._tried.rows, self._tried.seconds
        if left <= 0:
            return passed
        for pace, during in self._phases():
            if pace * during >= left:
                return passed + left / pace
            left, passed = left - pace * during, passed + during
        raise AssertionError("the last phase has no end")

    def _phases(self) -> Iterator[tuple[float, float]]:
        """Rows per second, and for how many seconds, after what was tried."""
        if self._tried.pace:  # its workers run, where they are faster than one thread
            yield from self._growing(ENOUGH)
            return
        asked = self._workers.backend
        backends = {one.backend for one in self.placed}
        alone = self._alone()
        if asked is None and backends != {"inline"}:
            yield alone, BLOCK_SECONDS
        if "processes" in backends:  # the consumer works itself meanwhile, unless it must not
            yield (1e-12 if asked else alone), PROCESS_START
        if asked is None:  # a backend that was chosen is measured before its threads may grow
            chosen = self._rate(self.placed)
            yield chosen, SECONDS
            if alone > chosen:
                yield alone, math.inf
        yield from self._growing(ENOUGH)

    def _growing(self, each: float) -> Iterator[tuple[float, float]]:
        """Rates with more and more threads, for as long as that helps."""
        placed, most = self.placed, self._workers.most_threads
        pace = self._rate(placed)
        while True:
            more = tuple(map(self._doubled, placed))
            if more == placed or max(one.workers for one in more) > most:
                break
            faster = self._rate(more)
            if faster < pace * math.sqrt(2):  # what threads that double must bring to stay
                break
            yield pace, each
            placed, pace = more, faster
        yield pace, math.inf

    def _doubled(self, stage: Placed) -> Placed:
        if stage.backend != "threads":
            return stage
        return replace(stage, workers=min(2 * stage.workers, self._workers.most_threads))

    def _alone(self) -> float:
        """Rows per second if the consumer's thread runs all stages, which it goes back to where
        that is faster than workers."""
        inline = tuple(replace(one, backend="inline") for one in self.placed)
        return self._rate(inline)

    def _rate(self, stages: tuple[Placed, ...]) -> float:
        run = Replay(stages, self._workers.cores, self._own, self._block, self._blocks)
        return max(self._scale * run.run().rows_per_second, 1e-12)


def _as_seen(stage: Placed, seen: Placed | None) -> Placed:
    """A stage where a short run put it."""
    if seen is None:
        return stage
    return replace(stage, backend=seen.backend, workers=seen.workers)
