"""Where the next gain is: how fast the pipeline would be if every step but one were free.

The pipeline is run for a while, and of each stage the latest blocks are kept as they arrive at each
step. Then each step is run alone on its blocks, as many at once as the stage has workers. All rates
are in rows that come out of the pipeline, so that a step before a filter and one after it compare.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

from silva.errors import PlanError
from silva.insight.alone import Alone, Jobs
from silva.insight.fragment import bar, fragment, rows_table
from silva.insight.overall import overall
from silva.insight.replay import Inputs
from silva.insight.trial import trial
from silva.insight.words import percent, rate, times, wrapped

_BAR = 10


@dataclass(frozen=True)
class Headroom:
    """Steps from the slowest to the fastest."""

    now: float
    """Rows a second that were measured."""
    steps: tuple[Alone, ...]
    seconds: float
    """That it took to find out."""

    @property
    def lowest(self) -> Alone:
        """The step that allows least: where the next gain is."""
        return self.steps[0]

    def __str__(self) -> str:
        lines = [
            f"{rate(self.now)} now. Each step alone, all others free:",
            "",
            f"  {'rows/s':>12}  {'share of all time':<17}  if free",
        ]
        for step in self.steps:
            full = round(step.share * _BAR)
            drawn = "█" * full + "░" * (_BAR - full)
            first = (
                f"  {step.rows_per_second:>12,.0f}  {drawn} {percent(step.share):>6}  "
                f"{times(step.gain):>7}  "
            )
            lines += wrapped(step.label, first, " " * (len(first) + 4))
        free = f"{times(self.lowest.gain)} as fast" if self.lowest.gain > 1.005 else "no faster"
        named = _short(self.lowest.label)
        lines += ["", *wrapped(f"The next gain is in `{named}`: were it free, {free}.")]
        if any(step.scaled for step in self.steps):
            lines.append("Steps in processes were measured on one, times their number.")
        return "\n".join(lines)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        return {
            "now": self.now,
            "seconds": self.seconds,
            "steps": [asdict(step) for step in self.steps],
            "lowest": self.lowest.label,
        }

    def _repr_html_(self) -> str:
        rows = [
            (
                f"<code>{escape(step.label)}</code>",
                bar(step.share),
                percent(step.share),
                f"{step.rows_per_second:,.0f}",
                times(step.gain),
            )
            for step in self.steps
        ]
        head = ("step, alone", "share of all time", "", "rows a second", "if it were free")
        said = f'<p class="note">{escape(rate(self.now))} now</p>'
        return fragment(f'<div class="panel"><h3>Headroom</h3>{said}{rows_table(head, rows)}</div>')


def _short(label: str) -> str:
    return label.partition("(")[0].partition("  [")[0].rstrip()


def headroom(loader: Any, seconds: float) -> Headroom:
    """Runs a loader for half of the time, and replays what came to its steps in the other half."""
    inputs = Inputs()
    loader._executor.keep = inputs.keep
    try:
        trial(loader, seconds / 2)
    finally:
        loader._executor.keep = None
    plan, executor = loader._lowered(), loader._executor
    found = overall(plan, executor)
    if found is None:
        raise PlanError(f"no row came out in {seconds / 2:g} s: give it more, seconds=…")
    jobs = Jobs(executor.lanes, inputs, found, loader._context(loader.epoch)).of(plan)
    each = seconds / 2 / max(len(jobs), 1)
    steps = [alone for job in jobs if (alone := job.measured(each)) is not None]
    return Headroom(found.now, _compared(steps), seconds)


def _compared(steps: list[Alone]) -> tuple[Alone, ...]:
    """From the slowest to the fastest, with what each would bring."""
    times = [1 / step.rows_per_second for step in steps]
    whole = _slowest(steps, times) or 1.0
    found = [
        replace(
            step,
            share=spent / (sum(times) or 1.0),
            gain=whole / max(_slowest(steps, [*times[:i], 0.0, *times[i + 1 :]]), 1e-12),
        )
        for i, (step, spent) in enumerate(zip(steps, times, strict=True))
    ]
    return tuple(sorted(found, key=lambda step: step.rows_per_second))


def _slowest(steps: list[Alone], times: list[float]) -> float:
    """Seconds for a row: steps of one resource add up, and the resource that takes longest
    counts."""
    spent: dict[str, float] = {}
    for step, seconds in zip(steps, times, strict=True):
        spent[step.resource] = spent.get(step.resource, 0.0) + seconds
    return max(spent.values(), default=0.0)
