"""`tune`: the configurations of a pipeline that are worth having, found by racing.

`sharing.py` runs them on rows, `racing.py` decides who goes on and what is shown to be worse, and
`tuned.py` is what comes out: the front of those that nothing beats in all scores and in cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.plan.arguments import share
from silva.plan.choice import Choice, choices_of, configurations, resolve
from silva.plan.node import Node
from silva.serve.search.metrics import metric_of
from silva.serve.search.rows import Row
from silva.serve.search.tuning.constraints import Budget, Constraint, constraints_of
from silva.serve.search.tuning.contest import Configurations
from silva.serve.search.tuning.racing import Race, off_the_front
from silva.serve.search.tuning.sharing import Shared
from silva.serve.search.tuning.tuned import Candidate, Tuned, words


def tune(
    plan: Node,
    dev: Sequence[Row],
    maximize: Any,
    *,
    subject_to: Sequence[Constraint] = (),
    budget: Budget | None = None,
    delta: float = 0.05,
    seed: int = 0,
) -> Tuned:
    """Searches all configurations. `maximize` is a metric, or a list of several."""
    several_given = isinstance(maximize, list | tuple)
    metrics = [metric_of(one) for one in (maximize if several_given else [maximize])]
    rows, every, constraints = list(dev), configurations(plan), constraints_of(subject_to)
    if not metrics:
        raise PlanError("tune(maximize=…) needs at least one metric")
    if len(every) < 2:
        raise PlanError("tune needs a pipeline with choices: k=sv.choice(1, 3, 5)")
    if not rows:
        raise PlanError("tune needs at least one row with a known answer")
    share("tune(delta=…)", delta)
    if not (budget is None or isinstance(budget, Budget)):
        raise PlanError(f"tune(budget=…) takes sv.Budget(seconds=60), not {budget!r}")
    each = delta / 2 if constraints else delta  # for claims about scores, and about constraints
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    shared = Shared(plan, rows)
    contest = Configurations(shared, metrics, every, constraints, each, budget)
    race = Race(contest, len(every), order, each, None if budget is None else 1.0)
    race.run()
    a_row = shared.asked.total() / max(sum(map(len, race.scores)), 1)
    return Tuned(
        tuple(metric.name for metric in metrics),
        _ordered(_candidates(plan, race, contest)),
        shared.ran.total(),
        round(a_row * len(rows) * len(every)),
        delta,
        race.needed,
    )


def _candidates(plan: Node, race: Race, contest: Configurations) -> list[Candidate]:
    """All configurations, with why they are not on the front."""
    choices = choices_of(plan)
    unfit = {i: contest.seems_to_miss(i) for i in race.racing if len(race.scores[i])}
    most = max((len(race.scores[i]) for i, why in unfit.items() if why is None), default=0)
    last = [i for i, why in unfit.items() if why is None and len(race.scores[i]) == most]
    means = [race.scores[i].mean(axis=0) for i in last]
    costs = [np.nan_to_num(contest.costs(i)) for i in last]
    beaten = {last[i]: last[j] for i, j in off_the_front(means, costs).items()}

    def why_not(i: int) -> str | None:
        if i in race.missed:
            return race.missed[i]
        if i in race.beaten_by:
            instead = _instead(contest.every, race.beaten_by[i], i, choices)
            return f"{instead} scores more and costs no more"
        if i not in unfit:
            return "the budget ended before it was run"
        if unfit[i] is not None:
            return unfit[i]
        if i not in last:
            return f"the budget left it at {len(race.scores[i])} rows: others promised more"
        if i in beaten:
            instead = _instead(contest.every, beaten[i], i, choices)
            return f"{instead} scores no less and costs no more in these rows, which do not show it"
        return None

    return [
        Candidate(
            resolve(plan, contest.every[i]),
            contest.every[i],
            race.scores[i],
            contest.spending[i],
            why_not(i),
            i in race.racing and unfit.get(i) is None,
            i in unfit and contest.meets(i),
            choices,
        )
        for i in range(race.count)
    ]


def _instead(
    every: Sequence[Mapping[str, Any]], better: int, than: int, choices: Mapping[str, Choice]
) -> str:
    """The values of one configuration that differ from those of another one."""
    other = every[than]
    differ = {name: value for name, value in every[better].items() if value is not other[name]}
    return words(differ, choices)


def _ordered(found: list[Candidate]) -> tuple[Candidate, ...]:
    """The front first, then what has answered most rows, then the better first score."""

    def place(one: Candidate) -> tuple[bool, int, float]:
        mean = float(one.scores[:, 0].mean()) if len(one.scores) else 0.0
        return one.why_not is not None, -len(one.scores), -mean

    return tuple(sorted(found, key=place))
