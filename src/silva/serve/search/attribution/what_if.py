"""What-if on quality and speed: what the end result would gain if one step were perfect, a little
better or left out, and how much sooner it would come if a step took half of its time.

A step is made perfect by putting the gold value in the place of what it computes; everything after
it runs as it is. A perfect reader cannot answer from the wrong passage: where a step that it
depends on is wrong, what it computes stays. So the gain is the ceiling of all work on that step
alone. A step that is relieved of a tenth of its errors, whichever they are, gains a tenth of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.plan.arguments import amount, positive, shown
from silva.plan.node import Node
from silva.serve.search.attribution.gains import Asked, QualityWhatIf, StepGain
from silva.serve.search.attribution.gold import Gold
from silva.serve.search.attribution.interventions import (
    Answered,
    Edit,
    Pipeline,
    Row,
    Values,
    Written,
)
from silva.serve.search.attribution.recording import Recording, record
from silva.serve.search.intervals import (
    AMOUNT,
    Interval,
    gain_interval,
    mean_interval,
    score_interval,
)
from silva.serve.search.metrics import Metric, metric_of

_BETTER = 0.1
"""The share of its errors that a step is relieved of when it is called a little better."""
_FASTER = _CHEAPER = 0.5
_WORDS = ("perfect", "better", "removed", "wider")


def what_if(
    plan: Node,
    on: Sequence[Row],
    metric: Any,
    gold: Mapping[str, Any] | None,
    asked: Mapping[str, Any],
    *,
    load: float | None = None,
    seconds: float,
) -> QualityWhatIf:
    """`gold`: for a column or a step, the column of `on` with the values that it should have, or a
    function that makes one of a row. `asked`: for steps, a factor on their time, or a word. `load`:
    requests per second. `seconds` for which steps are timed; 0 leaves speed out."""
    rows = list(on)
    if not rows:
        raise PlanError("what_if(on=…) needs at least one row with a known answer")
    if gold is not None and not isinstance(gold, Mapping):
        raise PlanError(
            f'what_if(gold=…) takes a dict such as {{"hits": "passage"}}, not {shown(gold)}'
        )
    if gold and metric is None:
        raise PlanError("what_if(gold=…) needs metric=…: what a perfect step is to improve")
    for name, given in (gold or {}).items():
        if not isinstance(given, str) and not callable(given):
            raise PlanError(
                f"what_if(gold={{{name!r}: …}}) takes the name of a column or a function of a "
                f"row, not {shown(given)}"
            )
    if load is not None:
        positive("what_if(load=…): requests per second", load)
    amount("what_if(seconds=…)", seconds, finite=False)
    # before other runs, so that answers are kept with their times
    recording = record(plan, rows, seconds) if seconds > 0 else None
    pipeline = Pipeline(plan, rows)
    quality = None if metric is None else _Quality(pipeline, metric_of(metric), gold or {})
    ids = [one.id for one in pipeline.steps]
    speed = None if recording is None else _Speed(recording, load)
    timed = [] if recording is None else [one.id for one in recording.steps]
    others = [name for name in timed if name and name not in ids]
    labels = {one.id: one.unit.label for one in pipeline.steps}
    found = [
        StepGain(
            name,
            labels.get(name, name),
            *((None, None, None) if quality is None else quality.gains(name)),
            *((None, None, None) if speed is None else speed.gains(name)),
        )
        for name in [*ids, *others]
    ]
    found.sort(key=lambda one: (-_value(one.perfect), -_value(one.faster)))
    return QualityWhatIf(
        None if quality is None else quality.metric.name,
        None if quality is None else score_interval(quality.base),
        None if speed is None else mean_interval(speed.base, AMOUNT),
        load,
        tuple(found),
        len(rows),
        _ask(asked, [*ids, *others], quality, speed) if asked else None,
    )


class _Quality:
    """What steps would give in the metric."""

    def __init__(self, pipeline: Pipeline, metric: Metric, gold: Mapping[str, Any]) -> None:
        self.metric = metric
        self._pipeline = pipeline
        self._gold: dict[int, list[Gold]] = {}
        unknown = set(gold)
        for step in pipeline.steps:
            names = {step.id, *step.writes}
            given = {name: gold[name] for name in sorted(names & gold.keys())}
            unknown -= given.keys()
            columns = {name.partition("#")[0]: value for name, value in given.items()}
            if columns:
                self._gold[step.number] = [
                    Gold(pipeline, step, column, value, metric) for column, value in columns.items()
                ]
        if unknown:
            raise PlanError(
                f"gold= names {min(unknown)!r}, which no step writes; steps write "
                f"{', '.join(one.id for one in pipeline.steps)}"
            )
        self.base = self._scores(pipeline.base)

    def gains(self, name: str) -> tuple[Interval | None, Interval | None, Interval | None]:
        """The gain with a step perfect, a tenth better, and removed."""
        step = self._step(name)
        if step is None:
            return None, None, None
        removed = self._changed({step.number: "removed"})
        if step.number not in self._gold:
            return None, None, removed
        perfect = self._changed({step.number: "perfect"})
        better = Interval(*(_BETTER * x for x in (perfect.value, perfect.low, perfect.high)))
        return perfect, better, removed

    def gain(self, words: Mapping[str, str]) -> Interval:
        """The gain with several steps changed at once."""
        numbers = {}
        for name, word in words.items():
            step = self._step(name)
            if step is None or (word != "removed" and step.number not in self._gold):
                raise PlanError(f"what_if({name}={word!r}) needs the gold values of {name!r}")
            numbers[step.number] = word
        if "better" not in words.values():
            return self._changed(numbers)
        if len(words) > 1:
            raise PlanError("what_if(…='better') is about one step: ask for it alone")
        return self.gains(next(iter(words)))[1] or Interval(0.0, 0.0, 0.0)

    def _changed(self, words: Mapping[int, str]) -> Interval:
        """The gain if these steps give something else."""
        right: dict[int, dict[int, bool]] = {}
        edits: dict[int, Edit] = {
            step.number: self._edit(step, words.get(step.number), right)
            for step in self._pipeline.steps
            if step.number in words or step.number in self._gold
        }
        return gain_interval(self.base, self._scores(self._pipeline.run(edits)))

    def _edit(self, step: Written, word: str | None, right: dict[int, dict[int, bool]]) -> Edit:
        """What a step shall give; `right` notes for the steps after it where it is right."""
        gold = self._gold.get(step.number, [])
        mine = right.setdefault(step.number, {})
        before = [right[n] for n in sorted(step.ancestors) if n in self._gold]

        def edit(number: int, row: Row, after: Row | None) -> Values | None:
            made: Values | None = None
            if word == "perfect" and all(one.get(number, False) for one in before):
                empty = dict.fromkeys(step.writes) if after is None else {}
                made = empty | {one.column: one.values[number] for one in gold}
            if word == "removed":
                made = {} if step.is_filter and after is None else self._without(step, row)
                if step.is_filter and after is not None:
                    made = None
            known = self._pipeline.rows[number]
            seen = after if made is None else {**row, **(after or {}), **made}
            mine[number] = all(one.is_right(number, seen, known) for one in gold)
            return made

        return edit

    def _without(self, step: Written, row: Row) -> Values:
        """The columns of a step that is left out: as they were before, or empty."""
        return {name: row.get(name, self._empty(step, name)) for name in step.writes}

    def _empty(self, step: Written, name: str) -> Any:
        for i in range(len(self._pipeline.rows)):
            row = self._pipeline.base.row(step.number + 1, i)
            if row is not None and row[name] is not None:
                value = row[name]
                return type(value)() if isinstance(value, str | list | tuple | dict) else None
        return None

    def _step(self, name: str) -> Written | None:
        return next((one for one in self._pipeline.steps if one.id == name), None)

    def _scores(self, run: Answered) -> np.ndarray:
        """The metric of each row; 0 for one without an answer, or whose answer was removed."""
        answers = self._pipeline.answers
        pairs = zip(answers(run), answers(self._pipeline.base), strict=True)
        kept = [None if a is None or self._lacks(a, made) else a for a, made in pairs]
        return self.metric.scores(self._pipeline.rows, kept)

    def _lacks(self, answer: Row, made: Row | None) -> bool:
        """Whether nothing is left of a column that the metric reads."""
        names = [name for name in self.metric.reads if name in answer]
        return any(answer[n] is None and (made is None or made[n] is not None) for n in names)


class _Speed:
    """What steps would save of the latency."""

    def __init__(self, recording: Recording, load: float | None) -> None:
        self._recording, self._load = recording, load
        self.base = recording.latencies(load)
        self._steps = {one.id: one for one in recording.steps}

    def gains(self, name: str) -> tuple[Interval | None, Interval | None, Interval | None]:
        """What a row spends in a step, and what is saved if it takes or costs half."""
        step = self._steps.get(name)
        if step is None:
            return None, None, None
        cheaper = mean_interval(_CHEAPER * step.money, AMOUNT) if step.money.any() else None
        return mean_interval(step.seconds, AMOUNT), self.saved({name: _FASTER}), cheaper

    def saved(self, changes: Mapping[str, Any]) -> Interval:
        """The share of the latency that changes save."""
        changed = self._recording
        for name, change in changes.items():
            if change == "wider":
                changed = changed.changed(name, wider=2)
            elif change == "removed":
                changed = changed.changed(name, factor=0.0)
            elif isinstance(change, float):
                changed = changed.changed(name, factor=change)
        after = changed.latencies(self._load)
        saved = np.round((self.base - after) / max(float(self.base.mean()), 1e-12), 9)
        if (saved < 0).any():  # some requests wait longer
            return mean_interval(saved)
        found = mean_interval(saved, AMOUNT)
        return replace(found, high=min(found.high, 1.0))  # no more than all of it


def _ask(
    asked: Mapping[str, Any],
    ids: Sequence[str],
    quality: _Quality | None,
    speed: _Speed | None,
) -> Asked:
    changes: dict[str, Any] = {}
    for name, change in asked.items():
        if name not in ids:
            raise PlanError(f"what_if: there is no step {name!r}; there are {', '.join(ids)}")
        if isinstance(change, str) and change not in _WORDS:
            raise PlanError(
                f"what_if({name}=…) takes a factor for its time, such as 0.5, or one of "
                f"{', '.join(map(repr, _WORDS))}, not {shown(change)}"
            )
        is_word = isinstance(change, str)
        changes[name] = change if is_word else amount(f"what_if({name}=…): a factor", change)
    words = {n: c for n, c in changes.items() if c in ("perfect", "better", "removed")}
    if words and quality is None:
        raise PlanError(f"what_if({min(words)}={words[min(words)]!r}) needs metric=…")
    if len(words) < len(changes) and speed is None:
        raise PlanError("what_if(seconds=0) times no step: leave it out to ask about speed")
    return Asked(
        changes,
        quality.gain(words) if words and quality is not None else None,
        None if speed is None else speed.saved(changes),
    )


def _value(found: Interval | None) -> float:
    return -1.0 if found is None else found.value
