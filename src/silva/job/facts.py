"""What a run has measured, and its text."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from silva.facts.formatting import percent, plural, seconds
from silva.train.plan import Plan

_RECENT = 64
"""Steps over which rates are taken."""


@dataclass
class Facts:
    """Counters of a run on one rank."""

    plan: Plan
    steps: int = 0
    rows: int = 0
    loss: float = float("nan")
    skipped: int = 0
    """Steps that were left out, since their loss or gradients were no numbers."""
    waited: float = 0.0
    """Seconds that the trainer waited for rows."""
    stepped: float = 0.0
    """Seconds of the steps themselves."""
    saved: int = 0
    """Checkpoints that were written."""
    resumed_at: int | None = None
    """The step from which it went on; None if it began anew."""
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    """The mean loss on other rows, by step."""
    recent: deque[tuple[float, float, int]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """Seconds of waiting, seconds of the step, and rows of the latest steps."""

    def add(self, waited: float, stepped: float, rows: int, loss: float) -> None:
        self.steps, self.rows, self.loss = self.steps + 1, self.rows + rows, loss
        self.waited, self.stepped = self.waited + waited, self.stepped + stepped
        self.recent.append((waited, stepped, rows))

    @property
    def rows_per_second(self) -> float:
        spent = sum(w + s for w, s, _ in self.recent)
        return sum(rows for *_, rows in self.recent) / spent if spent else 0.0

    @property
    def supply(self) -> float:
        """Rows per second that the pipeline could give, at least: it had them ready otherwise."""
        waits = sum(w for w, _, _ in self.recent)
        rows = sum(r for *_, r in self.recent)
        return rows / waits if waits else float("inf")

    @property
    def demand(self) -> float:
        """Rows per second that the steps could take if they never waited."""
        spent = sum(s for _, s, _ in self.recent)
        return sum(r for *_, r in self.recent) / spent if spent else 0.0

    def line(self) -> str:
        """One line of progress."""
        waits = sum(w for w, _, _ in self.recent)
        spent = waits + sum(s for _, s, _ in self.recent) or 1.0
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return (
            f"step {self.steps:,}: loss {self.loss:.4f}, {self.rows_per_second:,.0f} rows/s, "
            f"{percent(waits / spent)} waiting for rows{skipped}"
        )

    def explain(self) -> str:
        """The plan, and what was measured beside what was predicted."""
        lines = [self.plan.explain(), "", "Measured"]
        if not self.recent:
            return "\n".join([*lines, "  no step was taken yet"])
        step = sum(s for _, s, _ in self.recent) / len(self.recent)
        wait = sum(w for w, _, _ in self.recent) / len(self.recent)
        predicted = self.plan.price
        said = f", predicted {seconds(predicted.seconds)}" if predicted is not None else ""
        lines.append(f"  {plural(self.steps, 'step')}; a step takes {seconds(step)}{said}")
        rate = f"{self.rows_per_second:,.0f} rows/s"
        lines.append(f"  it waited {seconds(wait)} for its rows: {rate}")
        limit = "the pipeline" if wait > step else "the step"
        lines.append(f"  demand of the step: {self.demand:,.0f} rows/s; {limit} limits")
        if self.skipped:
            lines.append(f"  {plural(self.skipped, 'step')} left out: no numbers")
        return "\n".join(lines)


class Stopwatch:
    """Seconds between calls."""

    def __init__(self) -> None:
        self._at = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        spent, self._at = now - self._at, now
        return spent
