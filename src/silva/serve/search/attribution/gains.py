"""What `what_if` answers for a pipeline that answers requests: a table of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from silva.serve.search.intervals import Interval

_WIDTHS = (20, 27, 27, 27, 9, 22, 16)
"""Characters of the columns."""


@dataclass(frozen=True)
class StepGain:
    """What one step could give."""

    step: str
    """The columns that it writes, with a number where they were written before (`hits#1`)."""
    label: str
    perfect: Interval | None
    """The gain in the metric if it were perfect; None without a gold value."""
    better: Interval | None
    """The gain if it made a tenth fewer errors."""
    removed: Interval | None
    """The gain, mostly a loss, if it were left out: its column stays as it was before, or empty."""
    seconds: Interval | None
    """What a row spends in it."""
    faster: Interval | None
    """The share of the latency that is saved if it takes half of its time."""
    cheaper: Interval | None
    """What a row costs less if its models cost half of their price."""


@dataclass(frozen=True)
class Asked:
    """The answer to a question of one's own."""

    changes: Mapping[str, Any]
    gain: Interval | None
    """In the metric."""
    faster: Interval | None
    """The share of the latency that is saved; below 0 if it grows."""


@dataclass(frozen=True, eq=False)
class QualityWhatIf:
    """A table of the steps, the one to work on next first."""

    metric: str | None
    base: Interval | None
    """The metric as it is."""
    latency: Interval | None
    """Seconds from the arrival of a request to its answer, as it is."""
    load: float | None
    """Requests per second that arrive; None for one at a time."""
    steps: tuple[StepGain, ...]
    rows: int
    asked: Asked | None = None

    @property
    def limit(self) -> str | None:
        """The step that limits quality: the one with the largest gain, if rows show it."""
        return _largest({one.step: one.perfect for one in self.steps})

    @property
    def bottleneck(self) -> str | None:
        """The step that limits the latency: the one that saves most if it is twice as fast."""
        return _largest({one.step: one.faster for one in self.steps})

    @property
    def next(self) -> str | None:
        """The step to work on next: the one that limits quality or, if rows show no gain, speed."""
        return self.limit or self.bottleneck

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    __repr__ = __str__


def _largest(gains: Mapping[str, Interval | None]) -> str | None:
    """The step with the largest gain of those whose gain the rows show."""
    shown = {name: one.value for name, one in gains.items() if one is not None and one.low > 0}
    return max(shown, key=shown.__getitem__) if shown else None


def _lines(found: QualityWhatIf) -> list[str]:
    top = []
    if found.base is not None:
        top.append(f"{found.metric}: {found.base} on {found.rows} rows")
    if found.latency is not None:
        how = "one request at a time" if found.load is None else f"{found.load:g} requests/s"
        top.append(f"latency: {_ms(found.latency)}, {how}")
    titles = ["step", "perfect", "10 % better", "removed", "ms a row", "2× as fast"]
    costs = any(one.cheaper is not None for one in found.steps)
    lines = [*top, "", _row(*titles, *(["half the price"] if costs else []))]
    for one in found.steps:
        cells = [
            one.step[: _WIDTHS[0]], _gain(one.perfect), _gain(one.better), _gain(one.removed),
            "–" if one.seconds is None else f"{1e3 * one.seconds.value:.3g}", _share(one.faster),
        ]  # fmt: skip
        if costs:
            cells.append("–" if one.cheaper is None else f"{-one.cheaper.value:.2g} a row")
        lines.append(_row(*cells))
    if found.asked is not None:
        words = ", ".join(f"{name}={change!r}" for name, change in found.asked.changes.items())
        gains = [
            "" if found.asked.gain is None else f"{found.metric} {_gain(found.asked.gain)}",
            "" if found.asked.faster is None else f"latency {_share(found.asked.faster)}",
        ]
        lines += ["", f"what if {words}: {', '.join(filter(None, gains))}"]
    return [*lines, "", *_verdict(found)]


def _verdict(found: QualityWhatIf) -> list[str]:
    """Which step to work on next, and why."""
    if found.next is None:
        return ["no step: these rows show no gain"]
    why = "it limits the quality" if found.limit else "it limits the latency"
    if found.limit and found.bottleneck == found.limit:
        why += " and the latency"
    lines = [f"work on {found.next} next: {why}"]
    if found.bottleneck and found.bottleneck != found.next:
        lines.append(f"to be faster, work on {found.bottleneck}")
    return lines


def _row(*cells: str) -> str:
    first, *rest = zip(cells, _WIDTHS, strict=False)
    return f"{first[0]:<{first[1]}}" + "".join(f" {cell:>{width}}" for cell, width in rest)


def _gain(found: Interval | None) -> str:
    return "–" if found is None else f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def _share(found: Interval | None) -> str:
    if found is None:
        return "–"
    return f"{-found.value:+.0%} ({-found.high:+.0%} to {-found.low:+.0%})"


def _ms(found: Interval) -> str:
    return f"{1e3 * found.value:.3g} ms ({1e3 * found.low:.3g} to {1e3 * found.high:.3g})"
