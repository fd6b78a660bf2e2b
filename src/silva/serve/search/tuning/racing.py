"""Which configurations of a pipeline go on to more rows, and which of them are shown to be worse.

All answer the first rows, and those that go on then answer more of the same rows, until the rows
are used up. One is left out for good only by evidence (`paired.py`) that another one, which keeps
the constraints and costs no more, scores more, by every metric. These claims may be made after any
number of rows, and the chance that any of them is wrong is at most `delta`.

A budget decides who goes on, and claims nothing. The fewer are left, the more rows each answers: so
many that `left` times `rows` stays the same until the rows are used up (as successive rejects do,
Audibert et al., 2010). The one that lacks most to the front stays behind, then the next, down to
the front and one more. The schedule is made anew after each step, since the front changes, and
steps that are shared cost less than was expected.
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
_STEP = 1.1
"""How many times as many rows a step takes: models want batches, and the last ones to stay behind
hardly gain by smaller steps."""
_LOOK = 1.5
"""How many times as many rows there are until the evidence is looked at again, which takes time
with the square of the number of configurations."""


class Contest(Protocol):
    """Who answers rows, and what that costs."""

    def answer(self, candidate: int, rows: Sequence[int]) -> np.ndarray:
        """The scores of a candidate on rows that it has not answered, each between 0 and 1: a row
        for each row, a column for each metric."""

    def costs(self, candidate: int) -> np.ndarray:
        """The mean costs of a request, one of each kind."""

    def costs_no_more(self, candidate: int, other: int) -> bool:
        """Whether the measurements show that it costs no more than another one."""

    def meets(self, candidate: int) -> bool:
        """Whether the measurements show that it keeps all constraints."""

    def misses(self, candidate: int) -> str | None:
        """Which constraint the measurements show that it breaks."""

    def seems_to_miss(self, candidate: int) -> str | None:
        """Which constraint it breaks in the rows so far, shown or not."""

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
    """For each candidate, a row for each row that it has answered, a column for each metric."""
    beaten_by: dict[int, int] = field(default_factory=dict)
    """For each candidate that is shown to be worse, one that is better."""
    missed: dict[int, str] = field(default_factory=dict)
    """Candidates that are shown to break a constraint, and which."""

    def __post_init__(self) -> None:
        self.scores = [np.empty((0, 1)) for _ in range(self.count)]
        self.needed = needed_evidence(self.count, self.delta)

    @property
    def racing(self) -> list[int]:
        """Those that may still be worth having."""
        return [i for i in range(self.count) if i not in self.beaten_by and i not in self.missed]

    def run(self) -> None:
        rows = min(FIRST, len(self.rows))
        going = [i for i in range(self.count) if self._take(i, rows)]
        looked = rows
        self._judge()
        while rows < len(self.rows):
            going, front = self._by_promise([i for i in going if i in self.racing])
            if not going:
                break
            left, further = self._next(len(going), min(front + 1, len(going)), rows)
            if further == rows:
                break
            rows = further
            going = [i for i in going[:left] if self._take(i, rows)]
            if rows >= min(_LOOK * looked, len(self.rows)):
                looked = rows
                self._judge()
        is_over = rows == len(self.rows)  # or else more rows for some would leave others behind
        behind = [i for i in self.racing if is_over and len(self.scores[i]) < rows]
        for i in self._by_promise(behind)[0]:  # what the schedule has not spent
            if not self._take(i, len(self.rows)):
                break
        self._judge()

    def _take(self, i: int, rows: int) -> bool:
        """Takes a candidate to so many rows, if the budget lasts. The very first ones always go."""
        fresh = self.rows[len(self.scores[i]) : rows]
        if not self._fits(len(fresh)):
            return False
        if fresh:
            found = self.contest.answer(i, fresh)
            self.scores[i] = np.concatenate([self.scores[i].reshape(-1, found.shape[1]), found])
        return True

    def _fits(self, answers: int) -> bool:
        return not any(map(len, self.scores)) or 0 < self._left() >= answers

    def _left(self) -> float:
        """How many more answers the budget allows, by what they have cost so far."""
        if self.budget is None:
            return np.inf
        spent, answers = self.contest.spent(), sum(map(len, self.scores))
        return max(self.budget - spent, 0.0) * answers / spent if spent else np.inf

    def _next(self, count: int, fewest: int, rows: int) -> tuple[int, int]:
        """How many of so many candidates go on, at least so few, and to how many rows."""
        most, answers = len(self.rows), self._left()
        far = min(2 * rows, most)  # to look at the evidence, and at what is left of the budget
        if count * (most - rows) <= answers:
            return count, far
        left = np.arange(count, fewest - 1, -1)
        low, high = 0.0, float(count * most)
        for _ in range(50):
            middle = (low + high) / 2
            steps = np.diff(np.clip(middle / left, rows, most), prepend=rows)
            low, high = (middle, high) if steps @ left <= answers else (low, middle)
        goals = np.clip(low / left, rows, most).astype(int)
        enough = np.flatnonzero(goals >= min(max(_STEP * rows, rows + 1), most))
        if not len(enough):  # the rest, shared out
            return fewest, min(rows + int(answers // fewest), most)
        return int(left[enough[0]]), int(min(goals[enough[0]], far))

    def _by_promise(self, some: Sequence[int]) -> tuple[list[int], int]:
        """Candidates in the order of how little they lack to the front, and how many lack nothing.
        What seems to break a constraint comes last."""
        count = min((len(self.scores[i]) for i in some), default=0)
        if not count:
            return list(some), len(some)
        misses = np.array([self.contest.seems_to_miss(i) is not None for i in some])
        costs = np.stack([self.contest.costs(i) for i in some])
        cheaper = np.all(costs[None, :] <= GAIN * costs[:, None], axis=2) & ~misses[None, :]
        np.fill_diagonal(cheaper, False)
        lacks = np.where(cheaper, _lacks([self.scores[i][:count] for i in some]), -np.inf)
        worst = lacks.max(axis=1)
        front = int(((worst <= 0) & ~misses).sum())
        return [some[place] for place in np.lexsort((np.array(some), worst, misses))], front

    def _judge(self) -> None:
        """Leaves out what is shown to be worse, or to break a constraint."""
        for i in self.racing:
            missed = self.contest.misses(i) if len(self.scores[i]) else None
            if missed is not None:
                self.missed[i] = missed
        for i in sorted(self.racing, key=lambda i: len(self.scores[i])):
            better = self._better(i)
            if better is not None:
                self.beaten_by[i] = better

    def _better(self, i: int) -> int | None:
        """A candidate that is shown to score more, to keep the constraints, and to cost no more."""
        for length in {len(self.scores[j]) for j in self.racing if len(self.scores[j])}:
            count = min(length, len(self.scores[i]))
            others = [j for j in self.racing if j != i and len(self.scores[j]) == length]
            if not count or not others:
                continue
            all_scores = np.stack([self.scores[j][:count] for j in others], axis=1)
            won = all_scores - self.scores[i][:count, None]
            ahead = won.sum(axis=0).min(axis=-1) >= self.needed  # as log(1 + x) ≤ x, others cannot
            if not ahead.any():
                continue
            others = [j for j, may in zip(others, ahead, strict=True) if may]
            evidence = log_evidence(won[:, ahead]).min(axis=-1)  # by every metric
            for place in np.argsort(-evidence):
                if evidence[place] < self.needed:
                    break
                j = others[int(place)]
                if self.contest.meets(j) and self.contest.costs_no_more(j, i):
                    return j
        return None


def _lacks(scores: Sequence[np.ndarray]) -> np.ndarray:
    """By how many standard errors each candidate scores less than each other one, in the same rows:
    by the metric where it lacks least, of those that tell the two apart."""
    every = np.stack(scores, axis=2)  # rows, metrics, candidates
    count = len(every)
    means = every.mean(axis=0)
    less = means[:, None, :] - means[:, :, None]
    products = np.einsum("rmi,rmj->mij", every, every) / count
    squares = np.einsum("mii->mi", products)
    apart = squares[:, :, None] + squares[:, None, :] - 2 * products
    # equal scores on few rows may yet differ
    spread = np.maximum(np.sqrt(np.maximum(apart - less**2, 0.0)), 1 / count)
    lacks = less / spread * np.sqrt(count)
    same = apart < 1e-12
    return np.asarray(np.where(same & ~same.all(axis=0), np.inf, lacks).min(axis=0))


def off_the_front(means: Sequence[np.ndarray], costs: Sequence[np.ndarray]) -> dict[int, int]:
    """Of candidates that have answered the same rows, those that another one does as well as by
    every metric, and costs no more than, by the means; and that other one.

    >>> means = [np.array([0.8]), np.array([0.8]), np.array([0.7])]
    >>> off_the_front(means, [np.array([2.0]), np.array([1.0]), np.array([0.5])])
    {0: 1}
    """
    front: list[int] = []
    found = {}
    for i in sorted(range(len(means)), key=lambda i: (*-means[i], *costs[i], i)):
        better = [
            j for j in front if np.all(means[j] >= means[i]) and np.all(costs[j] <= GAIN * costs[i])
        ]
        if better:
            found[i] = better[0]
        else:
            front.append(i)
    return found
