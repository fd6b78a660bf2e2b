"""Which configurations of a pipeline go on to more rows, and which of them are shown to be worse.

All answer the first rows, then twice as many, and so on, until the rows are used up. One is left
out for good only by evidence (`paired.py`) that another one, which keeps the bounds and costs no
more, scores more. These claims may be made after any number of rows, and the chance that any of
them is wrong is at most `delta`.

A budget decides who goes on, and claims nothing: after the first round, which all take part in,
each may spend the same part of what is left (sequential halving, Karnin et al., 2013), on those
that come closest to the front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from silva.serve.search.tuning.paired import log_evidence, needed_evidence

FIRST = 16
"""Rows of the first round: fewer seldom tell two configurations apart."""
GAIN = 1.1
"""How many times as cheap something must be to count as cheaper: less is no gain."""


class Contest(Protocol):
    """Who answers rows, and what that costs."""

    def answer(self, candidate: int, rows: Sequence[int]) -> np.ndarray:
        """The scores of a candidate on rows that it has not answered, each between 0 and 1."""

    def costs(self, candidate: int) -> np.ndarray:
        """The mean costs of a request, one of each kind."""

    def costs_no_more(self, candidate: int, other: int) -> bool:
        """Whether the measurements show that it costs no more than another one."""

    def meets(self, candidate: int) -> bool:
        """Whether the measurements show that it keeps all bounds."""

    def misses(self, candidate: int) -> str | None:
        """Which bound the measurements show that it breaks."""

    def seems_to_miss(self, candidate: int) -> str | None:
        """Which bound it breaks in the rows so far, shown or not."""

    def spent(self) -> float:
        """What has been spent of the budget."""


@dataclass(eq=False)
class Race:
    """Candidates that answer the same rows in the same order, some of them more rows."""

    contest: Contest
    count: int
    """How many candidates there are."""
    rows: Sequence[int]
    """Their numbers, in the order in which they are answered."""
    delta: float
    budget: float | None = None
    scores: list[np.ndarray] = field(init=False)
    beaten_by: dict[int, int] = field(default_factory=dict)
    """For each candidate that is shown to be worse, one that is better."""
    missed: dict[int, str] = field(default_factory=dict)
    """Candidates that are shown to break a bound, and which."""

    def __post_init__(self) -> None:
        self.scores = [np.empty(0) for _ in range(self.count)]
        self.needed = needed_evidence(self.count, self.delta)

    @property
    def racing(self) -> list[int]:
        """Those that may still be worth having."""
        return [i for i in range(self.count) if i not in self.beaten_by and i not in self.missed]

    def run(self) -> None:
        rounds = _rounds(len(self.rows))
        for number, rows in enumerate(rounds):
            self._round(rows, left=len(rounds) - number if number else 1)
            self._judge()
        for i in self._by_promise():  # what the rounds have not spent
            if not self._fits(i, len(self.rows), self._left()):
                break
            self._answer(i, len(self.rows))
        self._judge()

    def _round(self, rows: int, left: int) -> None:
        """Takes candidates to so many rows, while a fair part of the budget lasts."""
        most = self._left() / left
        began = self.contest.spent()
        for i in self._by_promise():
            if not self._fits(i, rows, most - (self.contest.spent() - began)):
                return
            self._answer(i, rows)

    def _left(self) -> float:
        return np.inf if self.budget is None else max(self.budget - self.contest.spent(), 0.0)

    def _fits(self, i: int, rows: int, most: float) -> bool:
        """Whether the next rows of a candidate cost no more than that, going by rows so far. The
        very first ones always do."""
        answered = sum(map(len, self.scores))
        if not answered:
            return True
        a_row = self.contest.spent() / answered
        return most > 0 and max(rows - len(self.scores[i]), 0) * a_row <= most

    def _answer(self, i: int, rows: int) -> None:
        fresh = self.rows[len(self.scores[i]) : rows]
        if fresh:
            self.scores[i] = np.concatenate([self.scores[i], self.contest.answer(i, fresh)])

    def _by_promise(self) -> list[int]:
        """Those that race, in the order of how little they lack to the front: in standard errors
        to the one that they lack most to, among those that cost no more. What seems to break a
        bound comes last."""
        racing = self.racing
        if not all(len(self.scores[i]) for i in racing):
            return racing
        costs = {i: self.contest.costs(i) for i in racing}
        misses = {i: self.contest.seems_to_miss(i) is not None for i in racing}
        lacks = {i: [-np.inf] for i in racing}
        for i in racing:
            for j in racing:
                if i != j and not misses[j] and np.all(costs[j] <= GAIN * costs[i]):
                    lacks[i].append(self._lack(i, j))
        return sorted(racing, key=lambda i: (misses[i], max(lacks[i]), i))

    def _lack(self, i: int, j: int) -> float:
        """By how many standard errors a candidate scores less than another one."""
        count = min(len(self.scores[i]), len(self.scores[j]))
        less = self.scores[j][:count] - self.scores[i][:count]
        spread = max(float(less.std()), 1 / count)  # equal scores on few rows may yet differ
        return float(less.mean() / spread * np.sqrt(count))

    def _judge(self) -> None:
        """Leaves out what is shown to be worse, or to break a bound."""
        for i in self.racing:
            missed = self.contest.misses(i) if len(self.scores[i]) else None
            if missed is not None:
                self.missed[i] = missed
        for i in sorted(self.racing, key=lambda i: len(self.scores[i])):
            better = self._better(i)
            if better is not None:
                self.beaten_by[i] = better

    def _better(self, i: int) -> int | None:
        """A candidate that is shown to score more, to keep the bounds, and to cost no more."""
        for length in {len(self.scores[j]) for j in self.racing if len(self.scores[j])}:
            count = min(length, len(self.scores[i]))
            others = [j for j in self.racing if j != i and len(self.scores[j]) == length]
            if not count or not others:
                continue
            all_scores = np.stack([self.scores[j][:count] for j in others], axis=1)
            evidence = log_evidence(all_scores - self.scores[i][:count, None])
            for place in np.argsort(-evidence):
                if evidence[place] < self.needed:
                    break
                j = others[int(place)]
                if self.contest.meets(j) and self.contest.costs_no_more(j, i):
                    return j
        return None


def _rounds(rows: int) -> list[int]:
    """How many rows are answered after each round."""
    found = [min(FIRST, rows)]
    while found[-1] < rows:
        found.append(min(2 * found[-1], rows))
    return found


def off_the_front(means: Sequence[float], costs: Sequence[np.ndarray]) -> dict[int, int]:
    """Of candidates that have answered the same rows, those that another one does as well as, and
    costs no more than, by the means; and that other one.

    >>> off_the_front([0.8, 0.8, 0.7], [np.array([2.0]), np.array([1.0]), np.array([0.5])])
    {0: 1}
    """
    front: list[int] = []
    found = {}
    for i in sorted(range(len(means)), key=lambda i: (-means[i], *costs[i], i)):
        better = [j for j in front if np.all(costs[j] <= GAIN * costs[i])]
        if better:
            found[i] = better[0]
        else:
            front.append(i)
    return found
