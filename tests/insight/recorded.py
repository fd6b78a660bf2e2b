"""Facts of runs that are made up: the plan is that of a real loader, every number is given."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

import silva as sv
from silva.cost.model import Backend, Work
from silva.facts.model import RunFacts, StageFacts


def first(x):
    return x


def second(y):
    return y


@functools.cache
def base() -> RunFacts:
    """A run of two stages, one of rows and one of batches."""
    rows = sv.from_columns({"x": range(64)}).derive(y=first).derive(z=second)
    with rows.select("z").batch(8).derive(w=lambda z: z).loader(backend="inline") as loader:
        list(loader)
        return loader.facts()


def recorded(
    loads: Sequence[Work],
    backend: Backend,
    workers: int,
    *,
    cores: int = 2,
    rate: float = 100.0,
    own: float = 1e-5,
    waited: float = 0.9,
    asked_for: bool = True,
) -> RunFacts:
    """A run of 2,000 rows at so many rows per second, in which the trainer waited for a share of
    its time; `loads` are those of its stages."""
    facts, inline, seconds = base(), backend == "inline", 2000 / rate
    assert facts.consumer is not None

    def stage(found: StageFacts, load: Work) -> StageFacts:
        steps = tuple(
            replace(s, share=share, seconds=share * load.seconds, cpu=share * load.cpu, busy=share)
            for s, share in zip(found.steps, shares(len(found.steps)), strict=True)
        )
        totals = replace(
            found.totals, blocks=80, rows_in=2000, rows_out=2000, busy=2000 * load.seconds,
            cpu=2000 * load.cpu, elapsed=seconds, starved=0.0 if inline else waited * seconds,
        )  # fmt: skip
        return replace(
            found, backend=backend, workers=0 if inline else workers, totals=totals, load=load,
            width=0 if inline else workers, asked_for=asked_for, steps=steps, forecast=None,
            errors=(), block_rows=25, epoch_rows=None,
        )  # fmt: skip

    stages = tuple(stage(*pair) for pair in zip(facts.stages, loads, strict=False))
    placed = tuple(
        replace(one, work=load, backend=backend, workers=workers, rows=1.0)
        for one, load in zip(facts.consumer.stages, loads, strict=False)
    )
    consumer = replace(
        facts.consumer, rows=2000, seconds=seconds, waited=waited * seconds, own=own, stages=placed,
        steady=None if inline else rate, own_cpu=own / 2, own_queued=0.0,
    )  # fmt: skip
    asked: Any = backend if asked_for else None
    return replace(
        facts, stages=stages, consumer=consumer, cores=cores, workers=workers, backend=asked
    )


def shares(count: int) -> list[float]:
    """Shares of the time that add up to 1, the later the more."""
    return [2 * (i + 1) / (count * (count + 1)) for i in range(count)]


costs = st.floats(1e-5, 1e-2)
part = st.floats(0.0, 1.0)
loads = st.builds(
    lambda seconds, cpu, lock, queued: Work(
        seconds, cpu * seconds, min(lock, cpu) * seconds, queued=queued * (1 - cpu) * seconds
    ),
    costs, part, part, part,
)  # fmt: skip
runs = st.builds(
    recorded,
    st.lists(loads, min_size=1, max_size=2),
    st.sampled_from(["inline", "threads", "processes"]),
    st.integers(1, 16),
    cores=st.sampled_from([1, 2, 8]),
    rate=st.floats(1.0, 1e5),
    own=st.floats(0.0, 1e-3),
    waited=part,
    asked_for=st.booleans(),
)
