"""What-if on quality: what the end result would gain if one step were perfect, a little better, or
left out, and what the step costs.

A step is made perfect by putting the known answer, the gold value, in the place of what it
computes; everything after it runs as it is. A perfect reader cannot answer from the wrong passage:
where a step before it is wrong, what it computes stays. So the gain is the ceiling of all work on
that step alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.plan.node import Node
from silva.plan.schema import columns
from silva.serve.search.evaluation import Interval, bootstrap
from silva.serve.search.metrics import metric_of
from silva.serve.search.sharing import Row, Shared

_BETTER = 0.1
"""The share of its errors that a step is relieved of when it is called a little better."""


@dataclass(frozen=True)
class StepGain:
    """What one step could give."""

    column: str
    step: str
    perfect: Interval | None
    """The gain in the metric if it were perfect; None without a gold value."""
    better: Interval | None
    """The gain if a tenth of its rows were perfect."""
    seconds: Interval
    """What a row spends in it: twice as fast saves half of that."""
    share: float
    """Its share of the time of a row."""


@dataclass(frozen=True, eq=False)
class QualityWhatIf:
    """A table of the steps, the one with the most to gain first."""

    metric: str
    base: Interval
    steps: tuple[StepGain, ...]
    rows: int

    @property
    def limit(self) -> str | None:
        """The column whose step limits quality: the one with the largest gain, if rows show it."""
        gains = [one for one in self.steps if one.perfect is not None and one.perfect.low > 0]
        return max(gains, key=lambda one: one.perfect.value).column if gains else None  # type: ignore[union-attr]

    def __str__(self) -> str:
        lines = [f"{self.metric}: {self.base} on {self.rows} rows", ""]
        lines.append(
            f"{'step':<16} {'perfect':>26} {'a tenth better':>26} {'ms a row':>9} {'share':>6}"
        )
        lines += (
            f"{one.column:<16} {_gain(one.perfect):>26} {_gain(one.better):>26} "
            f"{1e3 * one.seconds.value:>9.3g} {one.share:>6.0%}"
            for one in self.steps
        )
        limit = "no step: these rows show no gain" if self.limit is None else self.limit
        return "\n".join([*lines, "", f"work on {limit} next" if self.limit else limit])

    __repr__ = __str__


def what_if(
    plan: Node, on: Sequence[Row], metric: Any, gold: Mapping[str, Any], *, seed: int = 0
) -> QualityWhatIf:
    """`gold`: for a column, the column of `on` with the values it should have, or a function that
    makes one of a row."""
    chosen, rows = metric_of(metric), list(on)
    for column in gold:
        if column not in columns(plan):
            raise PlanError(f"gold= names {column!r}, which is no column of the pipeline")
    shared, numbers = Shared(plan, rows), range(len(rows))

    def scores(given: Mapping[str, Mapping[int, Any]] | None) -> tuple[np.ndarray, Any]:
        made = shared.run({}, numbers, given)
        found = [
            0.0 if answer is None else chosen({**row, **answer})
            for row, answer in zip(rows, made.answers, strict=True)
        ]
        return np.array(found), made

    base, outcomes = scores(None)
    right = {
        column: [
            _is_right(answer, column, _gold(by, row))
            for row, answer in zip(rows, outcomes.answers, strict=True)
        ]
        for column, by in gold.items()
    }
    drawn = np.random.default_rng(seed).random(len(rows)) < _BETTER
    total = outcomes.seconds.mean() or 1.0
    found = []
    steps = _steps(outcomes.by_step)
    for column, label in steps:
        perfect = better = None
        if column in gold:
            before = [
                right[name] for name, _ in steps[: steps.index((column, label))] if name in gold
            ]
            sees = [n for n in numbers if all(one[n] for one in before)]
            values = {n: _gold(gold[column], rows[n]) for n in sees}
            perfect = bootstrap(scores({column: values})[0] - base)
            some = {n: value for n, value in values.items() if drawn[n]}
            better = bootstrap(scores({column: some})[0] - base)
        seconds = np.array([spent.get(label, 0.0) for spent in outcomes.by_step])
        share = float(seconds.mean() / total)
        found.append(StepGain(column, label, perfect, better, bootstrap(seconds), share))
    found.sort(key=lambda one: (-(one.perfect.value if one.perfect else -1.0), -one.share))
    return QualityWhatIf(chosen.name, bootstrap(base), tuple(found), len(rows))


def _steps(by_step: Sequence[Mapping[str, float]]) -> list[tuple[str, str]]:
    """The columns that steps write, and the labels of the steps."""
    labels = dict.fromkeys(label for steps in by_step for label in steps if " = " in label)
    return [(label.partition(" = ")[0], label) for label in labels]


def _gold(given: Any, row: Row) -> Any:
    if callable(given):
        return given(row)
    if given not in row:
        raise PlanError(f"gold= names the column {given!r}, which the rows do not have")
    return row[given]


def _is_right(answer: Row | None, column: str, gold: Any) -> bool:
    """Whether a step has computed its gold value; hits are right if they hold the gold ids."""
    if answer is None or column not in answer:
        return False
    value = answer[column]
    if isinstance(value, Sequence) and value and isinstance(value[0], Mapping) and "id" in value[0]:
        ids = [hit["id"] for hit in value]
        wanted = gold if isinstance(gold, list | tuple) else [gold]
        return all((one["id"] if isinstance(one, Mapping) else one) in ids for one in wanted)
    return bool(np.all(value == gold))


def _gain(found: Interval | None) -> str:
    return "–" if found is None else f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
