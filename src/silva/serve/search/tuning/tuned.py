"""The result of a search: the configurations that are worth having, and what is known of the
others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from silva.errors import PlanError
from silva.facts.formatting import seconds as in_seconds
from silva.insight import html
from silva.plan.choice import Choice
from silva.plan.node import Node
from silva.serve.search.intervals import (
    AMOUNT,
    Interval,
    mean_interval,
    quantile_interval,
    score_interval,
)
from silva.serve.search.tuning.contest import Spending
from silva.serve.search.tuning.paired import log_evidence, rows_to_tell

if TYPE_CHECKING:
    from silva.pipeline import Pipeline

_NAMED = 3
"""Configurations that an error names."""
_LEFT_OUT = 8
"""Configurations that `print` shows although they are not on the front."""


@dataclass(frozen=True, eq=False, repr=False)
class Candidate:
    """One configuration with what was measured of it."""

    plan: Node
    configuration: Mapping[str, Any]
    scores: np.ndarray
    """Of the rows that it has answered, in the order in which all configurations answer them: a
    column for each metric."""
    spending: Spending
    why_not: str | None = None
    """Why it is not on the front; None if it is."""
    is_open: bool = False
    """Whether it may be the best all the same: it is not shown to be worse, or to break a
    constraint."""

    keeps_constraints: bool = True
    """Whether the rows show that it keeps the constraints, if there are any."""
    choices: Mapping[str, Choice] = field(default_factory=dict)
    """What its values are chosen from, by name."""

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline with these values, an ordinary one without choices."""
        from silva.pipeline import Pipeline

        return Pipeline(self.plan)

    @property
    def score(self) -> Interval:
        """By the first metric."""
        return score_interval(self.scores[:, 0])

    @property
    def by_metric(self) -> tuple[Interval, ...]:
        """The score by each metric."""
        return tuple(map(score_interval, self.scores.T))

    @property
    def latency(self) -> Interval:
        """The median of the seconds that a request takes alone."""
        return quantile_interval(self.spending.known_latency, 0.5)

    @property
    def p95(self) -> Interval:
        """The 95th percentile of the same. Few rows give it no upper end."""
        return quantile_interval(self.spending.known_latency, 0.95)

    @property
    def cost(self) -> Interval:
        """What the models of a request cost by their prices, on average."""
        return mean_interval(self.spending.money, AMOUNT)

    @property
    def tokens(self) -> Interval:
        """The tokens of a request's prompts and answers, on average."""
        return mean_interval(self.spending.tokens, AMOUNT)

    def __str__(self) -> str:
        return words(self.configuration, self.choices)

    def __repr__(self) -> str:
        told = (str(self), *filter(None, _measured(self)), self.why_not or "on the front")
        return f"<{'; '.join(told)}>"


@dataclass(frozen=True, eq=False)
class Tuned:
    """The result of `tune`."""

    metrics: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    """All configurations: the front first, and the best score by the first metric first."""
    executions: int
    """Rows that steps were run on."""
    exhaustive: int
    """Rows that they would have been run on without sharing and racing."""
    delta: float
    """The chance that any configuration is wrongly said to be worse, or to break a constraint."""
    needed: float
    """The logarithm of the evidence that it takes to say so."""

    @property
    def front(self) -> tuple[Candidate, ...]:
        """The configurations that no other one beats in all scores and in cost, in these rows."""
        return tuple(one for one in self.candidates if one.why_not is None)

    @property
    def tied(self) -> tuple[Candidate, ...]:
        """The configurations whose scores these rows cannot tell from those of the first."""
        return tuple(
            one
            for one in self.candidates[1:]
            if one.is_open and float(log_evidence(self._won(one)).min()) < self.needed
        )

    @property
    def best(self) -> Pipeline:
        """The pipeline with the best score, by every metric. Refuses where there is none, or these
        rows cannot tell which it is."""
        if not self.front:
            raise PlanError(
                "no configuration keeps the constraints: print(tuned) says which one each breaks"
            )
        means = np.stack([one.scores.mean(axis=0) for one in self.front])
        if (means[0] < means.max(axis=0)).any():
            raise PlanError(
                f"no configuration is the best by all of {', '.join(self.metrics)}: choose one of "
                "tuned.front, such as tuned.front[0].pipeline"
            )
        tied = self.tied
        if tied:
            raise PlanError(
                f"{len(self.front[0].scores)} rows cannot tell the best configuration, "
                f"{self.front[0]}, from {_listed(tied)}. {self._more_rows(tied)}. To take "
                "the first of the front all the same: tuned.front[0].pipeline"
            )
        return self.front[0].pipeline

    def plot(self, path: str | Path) -> Path:
        """Draws scores over latencies into a file, `.svg` or `.png`, with the front's intervals."""
        from silva.serve.search.tuning.plot import draw

        return draw(self, Path(path))

    def __str__(self) -> str:
        lines = [
            f"{', '.join(self.metrics)}: {len(self.front)} of {len(self.candidates)} configurations"
        ]
        lines += ["  " + "  ".join(_measured(one)) + f"  {one}" for one in self.front]
        left = [one for one in self.candidates if one.why_not is not None]
        shown = _LEFT_OUT if self.front else len(left)
        lines += [f"  left out: {one}: {one.why_not}" for one in left[:shown]]
        if len(left) > shown:
            lines.append(f"  and {len(left) - shown} more: see tuned.candidates")
        return "\n".join([*lines, *self._notes()])

    def _notes(self) -> list[str]:
        """What holds of all of them, a line each."""
        lines = []
        if self.front and (tied := self.tied):
            lines.append(f"  these rows cannot tell the first from {_listed(tied)}")
            lines.append(f"  {self._more_rows(tied)}")
        if self.front and not self.front[0].keeps_constraints:
            lines.append(
                "  the first keeps the constraints in these rows, which are too few to show it"
            )
        share = self.executions / max(self.exhaustive, 1)
        lines.append(
            f"  steps ran on {self.executions:,} rows, {share:.0%} of an exhaustive search; the "
            f"chance of a wrong claim is at most {self.delta:g}"
        )
        return lines

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            (
                f"<code>{escape(str(one))}</code>",
                *map(escape, _measured(one)),
                escape(one.why_not or "on the front"),
            )
            for one in self.candidates
        ]
        table = html.table(("configuration", "score", "latency", "cost", ""), rows)
        notes = "".join(map(html.note, self._notes()))
        return html.fragment(html.panel(f"Tuned for {', '.join(self.metrics)}", table) + notes)

    def _won(self, one: Candidate) -> np.ndarray:
        """By how much the first scores more, in the rows that both have answered."""
        first = self.candidates[0].scores
        count = min(len(one.scores), len(first))
        return np.asarray(first[:count] - one.scores[:count])

    def _rows_to_tell(self, one: Candidate) -> int | None:
        """How many more rows it takes to tell one from the first; None if that is not known."""
        counts = [rows_to_tell(won, self.needed) for won in self._won(one).T]
        known = [count for count in counts if count is not None]
        return max(known) if len(known) == len(counts) else None

    def _more_rows(self, tied: tuple[Candidate, ...]) -> str:
        """What it would take to tell them apart."""
        if any(len(one.scores) < len(self.front[0].scores) for one in tied):
            return "The budget left some of them at fewer rows: a larger one may tell"
        found = [self._rows_to_tell(one) for one in tied]
        counts = [rows for rows in found if rows is not None]
        if not counts:
            return "In these rows none scores more, so nothing says how many rows would tell"
        some = "" if len(counts) == len(found) else f" {len(counts)} of them"
        return f"About {max(counts):,} more rows like these would tell{some}"


def words(configuration: Mapping[str, Any], choices: Mapping[str, Choice]) -> str:
    """The values of choices, as they were written."""
    return ", ".join(f"{name}={choices[name].text(value)}" for name, value in configuration.items())


def _listed(found: tuple[Candidate, ...]) -> str:
    """Some configurations by their values."""
    shown = "; ".join(map(str, found[:_NAMED]))
    more = len(found) - _NAMED
    return f"{shown}; and {more} more" if more > 0 else shown


def _measured(one: Candidate) -> tuple[str, str, str]:
    """Score, latency and cost as text."""
    if not len(one.scores):
        return "not run", "", ""
    known = len(one.spending.known_latency)
    latency = f"{in_seconds(one.latency.value)} a request" if known else "not timed"
    cost = f"costs {one.cost.value:.3g}" if one.spending.money.any() else ""
    return ", ".join(map(str, one.by_metric)), latency, cost
