"""Claims about training steps on distinct rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.claims import Finding
from benchmarks.measure import Children, ratio
from benchmarks.store.setting import Sizes

_CHILD = "benchmarks.store.child"
_FEW = 3
"""Rounds on two threads, which say little where others use the machine."""


def training(sizes: Sizes) -> Iterator[Finding]:
    yield from _steps(sizes, Children(_CHILD), "1 thread")


def training_on_two_threads(sizes: Sizes) -> Iterator[Finding]:
    yield from _steps(sizes, Children(_CHILD, threads=2), "2 threads")


def training_on_two_threads_asleep(sizes: Sizes) -> Iterator[Finding]:
    """The same where threads do not spin: the figure to look at on a machine that is shared."""
    children = Children(_CHILD, threads=2, asleep=True)
    yield from _steps(sizes, children, "2 threads that sleep while they wait")


def _steps(sizes: Sizes, children: Children, threads: str) -> Iterator[Finding]:
    """Steps on all rows and on distinct ones take turns within each process."""
    for unchanged, least, goal in ((0.9, 2.0, ", goal 2.5"), (0.0, 0.95, "")):
        found = [
            children.run("training", unchanged=unchanged, steps=sizes.steps, seed=seed)
            for seed in range(sizes.rounds if children.threads == 1 else min(sizes.rounds, _FEW))
        ]
        every, distinct = ([one[name] for one in found] for name in ("every", "distinct"))
        faster = ratio(every, distinct)
        yield Finding(
            f"training step, histories {unchanged:.0%} unchanged, torch on {threads}: times as "
            "fast on distinct rows",
            f"≥ {least:g}{goal}",
            f"{faster}; {1e3 * statistics.median(distinct):.0f} of "
            f"{1e3 * statistics.median(every):.0f} ms",
            faster.median,
            faster.median >= least,
        )


def equality(sizes: Sizes) -> Iterator[Finding]:
    found = Children(_CHILD).run("equality", unchanged=0.9, steps=sizes.steps)
    for what in ("loss", "gradients"):
        yield Finding(
            f"{what} of {sizes.steps} batches, on distinct rows and on all: greatest difference",
            "≤ 1e-6",
            f"{found[what]:.1e}",
            found[what],
            found[what] <= 1e-6,
        )
