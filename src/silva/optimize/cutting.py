"""Where a stage should be cut in two, by what its steps cost.

Threads share Python's lock; processes have one each, but what they make must come over. So a stage
with a long step that holds the lock and another that makes large arrays is slow on either:

    read → tags = parse(text) → image = decode.resize → keep image, tags
           holds the lock        hands on 600 kB

Cut before `image`, the first part runs in processes and hands on a few tags, and the second on
threads, where an image is handed on as it is. What crosses the cut is paid for, in bytes and for
each block; a cut is only proposed where it gains more than the model can be wrong about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from silva.optimize.model import NOTHING_SHARED, PROCESS_START, Backend, Load, duration
from silva.optimize.system import Loaded, throughput

MARGIN = 1.15
"""Predicted, of the stage in one piece: less is within what the model can tell."""
HANDOVER = 3e-4
"""Seconds to hand a block over to another worker."""
WAYS: tuple[tuple[Backend, Backend], ...] = (("threads", "processes"), ("processes", "threads"))


@dataclass(frozen=True)
class StepLoad:
    """What a step costs for each row that comes into its stage."""

    seconds: float
    cpu: float
    lock: float
    """Seconds that it holds Python's lock."""


@dataclass(frozen=True)
class Crossing:
    """Bytes for each row that comes into the stage, at one place where it may be cut."""

    handed: float
    """That the first part has made and is needed later."""
    sent: float
    """Of these, what the second part reads."""
    made: float
    """That the second part makes and that goes out."""
    picked: float = 0.0
    """That passes the second part by, and of which its filters leave only some rows."""
    ways: tuple[tuple[Backend, Backend], ...] = WAYS
    """What is possible: Python objects had better stay in their process."""


@dataclass(frozen=True)
class Proposal:
    """A stage in two parts."""

    at: int
    """Steps before the cut."""
    backends: tuple[Backend, Backend]
    first: Load
    second: Load
    rows_per_second: float
    limit: str
    """What would end first."""
    whole: float
    """Rows a second of the stage in one piece, in the best place for that."""

    @property
    def gain(self) -> float:
        return self.rows_per_second / self.whole


def propose(
    steps: Sequence[StepLoad],
    crossings: Mapping[int, Crossing],
    whole: Load,
    *,
    workers: int,
    cores: int,
    consumer: float = 0.0,
    block_rows: int = 1,
    left: float = float("inf"),
) -> Proposal | None:
    """The best cut, where one is clearly better than none.

    `steps` are reading and then each step; a cut at `n` comes after the first `n` of the latter.
    `whole` is the stage in one piece, `left` how many rows are still to come.

    >>> python, native = StepLoad(2e-3, 2e-3, 2e-3), StepLoad(2e-3, 2e-3, 1e-4)
    >>> whole = Load(4e-3, 4e-3, 0.52, nbytes=3e6, crossing=5e-10)
    >>> found = propose(
    ...     [StepLoad(0.0, 0.0, 0.0), python, native],
    ...     {1: Crossing(handed=100, sent=100, made=3e6)},
    ...     whole, workers=4, cores=4, block_rows=25,
    ... )
    >>> found.at, found.backends, round(found.gain, 1)
    (1, ('processes', 'threads'), 1.5)
    """
    one = max(
        throughput([Loaded("", whole, backend, workers)], cores, consumer).rows_per_second
        for backend in ("inline", "threads", "processes")
    )
    over = HANDOVER / max(block_rows, 1)
    found = [
        _cut(steps, at, crossing, ways, whole, one, workers, cores, consumer, over)
        for at, crossing in crossings.items()
        for ways in crossing.ways
    ]
    best = max(found, key=lambda one: one.rows_per_second, default=None)
    if best is None or best.gain < MARGIN:
        return None
    saved = left * (1 / best.whole - 1 / best.rows_per_second)
    return best if saved > 2 * PROCESS_START else None


def _cut(
    steps: Sequence[StepLoad],
    at: int,
    crossing: Crossing,
    backends: tuple[Backend, Backend],
    whole: Load,
    one: float,
    workers: int,
    cores: int,
    consumer: float,
    over: float,
) -> Proposal:
    # what all share is the same in one piece or two: it is counted with the first
    first = _load(whole, steps[: at + 1], crossing.handed, over=0.0)
    second = _load(whole, steps[at + 1 :], crossing.sent + crossing.made, over)
    second = replace(second, shared=NOTHING_SHARED)
    parts = [
        Loaded("first", first, backends[0], workers),
        Loaded("second", second, backends[1], workers),
    ]
    found = throughput(parts, cores, consumer + crossing.picked * whole.crossing)
    return Proposal(at, backends, first, second, found.rows_per_second, found.limit, one)


def _load(whole: Load, steps: Sequence[StepLoad], nbytes: float, over: float) -> Load:
    seconds, cpu = sum(s.seconds for s in steps), sum(s.cpu for s in steps)
    lock = sum(s.lock for s in steps)
    return replace(
        whole,
        seconds=seconds + over,
        cpu=cpu + over,
        lock_share=min(lock / max(seconds, 1e-12), 1.0),
        nbytes=nbytes,
        objects=0.0,
    )


def told(found: Proposal, before: str) -> str:
    """A proposal in a sentence; `before` names the step before the cut."""
    first, second = found.first, found.second
    return (
        f"cut after {before}: {duration(first.seconds)} a row with the lock held "
        f"{first.lock_share:.0%} of the time, then {duration(second.seconds)} with "
        f"{second.lock_share:.0%}; {found.rows_per_second:,.0f} rows/s instead of "
        f"{found.whole:,.0f} in one piece, predicted"
    )
