"""Claims about training steps on distinct rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.claims import Finding
from benchmarks.measure import Children, ratio
from benchmarks.store.setting import Sizes


def training(sizes: Sizes) -> Iterator[Finding]:
    """Steps on all rows and on distinct ones take turns within each process."""
    for threads in (1, 2):
        children = Children("benchmarks.store.child", threads)
        for unchanged, least, goal in ((0.9, 2.0, ", goal 2.5"), (0.0, 0.95, "")):
            found = [
                children.run("training", unchanged=unchanged, steps=sizes.steps, seed=seed)
                for seed in range(sizes.rounds)
            ]
            every, distinct = ([one[name] for one in found] for name in ("every", "distinct"))
            faster = ratio(every, distinct)
            yield Finding(
                f"training step, histories {unchanged:.0%} unchanged, torch on {threads} "
                f"thread{'s' * (threads > 1)}: times as fast on distinct rows",
                f"≥ {least:g}{goal}",
                f"{faster}; {1e3 * statistics.median(distinct):.0f} of "
                f"{1e3 * statistics.median(every):.0f} ms",
                faster.median,
                faster.median >= least,
            )


def equality(sizes: Sizes) -> Iterator[Finding]:
    found = Children("benchmarks.store.child").run("equality", unchanged=0.9, steps=sizes.steps)
    for what in ("loss", "gradients"):
        yield Finding(
            f"{what} of {sizes.steps} batches, on distinct rows and on all: greatest difference",
            "≤ 1e-6",
            f"{found[what]:.1e}",
            found[what],
            found[what] <= 1e-6,
        )
