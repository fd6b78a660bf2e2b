"""Why the plan as run differs from the plan as written: rules, choices of the planner, and what
was considered and not used."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from silva.facts.formatting import error, tidy, times
from silva.planner.cache_gains import CacheGain
from silva.planner.choose import Choice
from silva.planner.compare_blocks import Difference
from silva.rewrite.rule import Outcome

_CHOICES = {
    "order": "cheap filters that drop many rows run first",
    "cache": "rows are cached instead of computed in every epoch",
}
_WRONG = 0.1
"""Share of the measurement: a smaller error of a prediction is not shown."""
_DIFFERENCES = (
    "the difference between the plan as run and the plan as written, on rows that were compared"
)


@dataclass(frozen=True)
class Decision:
    """A change of the plan that was made, or was considered."""

    kind: Literal["rule", "choice", "check"]
    name: str
    reason: str
    notes: tuple[str, ...]
    """What it changes, one line each."""
    applied: bool
    why_not: str | None = None
    pending: bool = False
    """It is used as soon as it passes its check."""
    predicted: float | None = None
    """The predicted speed-up, as a factor."""
    measured: float | None = None
    """The measured speed-up, where the run before the change was measured too."""
    of: str = ""
    """The work that both are about, where it is not all that is left."""

    @property
    def unused(self) -> str:
        """Why it is not used."""
        return f"not used{' yet' if self.pending else ''}: {self.why_not}"

    @property
    def line(self) -> str:
        """Its first line: what, why, and the speed-up.

        >>> Decision("choice", "order", "drop early", (), True, predicted=2.61).line
        'order: drop early (predicted 2.6×)'
        >>> Decision("choice", "order", "drop early", (), True, predicted=3.0, measured=2.0).line
        'order: drop early (predicted 3.0×, measured 2.0×, 50 % too high)'
        """
        if not self.applied:
            return f"{self.name}: {self.reason} ({self.unused})"
        speedup = ", ".join(self._speedup())
        of = f"{self.of}: " if self.of else ""
        return f"{self.name}: {self.reason}" + (f" ({of}{speedup})" if speedup else "")

    def _speedup(self) -> Iterator[str]:
        if self.predicted is not None:
            yield f"predicted {times(self.predicted)}"
        if self.measured is not None:
            yield f"measured {times(self.measured)}"
        if self.predicted is not None and self.measured:
            wrong = self.predicted / self.measured - 1
            if abs(wrong) >= _WRONG:
                yield error(wrong)


def decisions(
    outcomes: Iterable[Outcome],
    choices: Iterable[Choice],
    rejected: Iterable[str],
    gains: Sequence[float] = (),
    unchecked: Collection[str] = (),
    differences: Iterable[Difference] = (),
    cache_gain: CacheGain | None = None,
) -> tuple[Decision, ...]:
    """All decisions about a plan.

    `gains` are the measured speed-ups of stages whose steps changed while they ran. `unchecked`
    are rules whose result is still to be compared with the plan as written, `differences` what that
    comparison found for close rules. `cache_gain` is the speed-up by a cache.
    """
    found = [_rule(outcome, unchecked) for outcome in outcomes]
    measured = gains[0] if len(gains) == 1 else None
    found += [_choice(choice, measured, cache_gain) for choice in choices]
    lines = tuple(map(str, differences))
    if lines:
        found.append(Decision("check", "close", _DIFFERENCES, lines, True))
    for text in rejected:
        name, _, why = text.partition(": ")
        found.append(Decision("choice", name, _CHOICES.get(name, name), (), False, why))
    return tuple(found)


def _rule(outcome: Outcome, unchecked: Collection[str]) -> Decision:
    rule, why = outcome.rule, outcome.why
    pending = outcome.applied and rule.name in unchecked
    if pending:
        why = "it is checked on real rows first"
    notes = tuple(map(tidy, outcome.notes))
    return Decision("rule", rule.name, rule.reason, notes, why is None, why, pending)


def _choice(choice: Choice, order_gain: float | None, cache_gain: CacheGain | None) -> Decision:
    notes = tuple(map(tidy, choice.note.split("; ")))
    reason = _CHOICES.get(choice.name, choice.name)
    predicted, measured = choice.gain, order_gain if choice.name == "order" else None
    if choice.epoch is not None:
        predicted = choice.epoch.without / choice.epoch.within
    if choice.epoch is not None and cache_gain is not None:
        predicted, measured = cache_gain.predicted, cache_gain.measured
    of = "" if choice.epoch is None else "epochs that read it"
    return Decision(
        "choice", choice.name, reason, notes, True, predicted=predicted, measured=measured, of=of
    )
