"""Why the plan as run is not the plan as written: rules, choices of the planner, and what both left
undone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from silva.insight.words import WIDTH, error, tidy, times, wrapped
from silva.optimize.rule import Outcome
from silva.planning.choose import Choice
from silva.planning.compare import Difference
from silva.planning.gains import CacheGain
from silva.run.cutting import Cutting

_CHOICES = {
    "order": "rows that are dropped early cost nothing later, by what was measured",
    "cache": "what is kept need not be computed again, by what was measured",
    "cut": "what holds Python's lock and what makes large arrays run apart, by what was measured",
}
_WRONG = 0.1
"""Of a prediction: less is not worth a word."""
_APART = "how far the plan as run is from the plan as written, on the rows that were compared"


@dataclass(frozen=True)
class Decision:
    kind: Literal["rule", "choice", "check"]
    name: str
    reason: str
    notes: tuple[str, ...]
    """What it changed or would change, a line each."""
    applied: bool
    why_not: str | None = None
    pending: bool = False
    """Not used yet, but soon, if it passes its check."""
    predicted: float | None = None
    """How many times as fast, by the search that chose it."""
    measured: float | None = None
    """How many times as fast it turned out, where there was a before."""
    of: str = ""
    """What they speak of, where it is not all that is to come."""

    @property
    def unused(self) -> str:
        """That it is not used, and why."""
        return f"not used{' yet' if self.pending else ''}: {self.why_not}"

    @property
    def line(self) -> str:
        """Its first line: what, why, and what it brings.

        >>> Decision("choice", "order", "drop early", (), True, predicted=2.61).line
        'order: drop early (predicted 2.6×)'
        >>> Decision("choice", "order", "drop early", (), True, predicted=3.0, measured=2.0).line
        'order: drop early (predicted 3.0×, measured 2.0×, 50 % too high)'
        """
        if not self.applied:
            return f"{self.name}: {self.reason} ({self.unused})"
        brings = ", ".join(self._brings())
        of = f"{self.of}: " if self.of else ""
        return f"{self.name}: {self.reason}" + (f" ({of}{brings})" if brings else "")

    def _brings(self) -> Iterator[str]:
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
    apart: Iterable[Difference] = (),
    cuts: Iterable[tuple[str, Cutting]] = (),
    cache_gain: CacheGain | None = None,
) -> tuple[Decision, ...]:
    """All that changed the plan, and what would have.

    `gains` are those measured of stages whose steps changed while they ran, `unchecked` the rules
    that are compared with the plan as written before they are used, `apart` what came of that for
    those that are close, `cuts` what each stage makes of being cut in two, and `cache_gain` what
    came of a cache.
    """
    found = [_rule(outcome, unchecked) for outcome in outcomes]
    measured = gains[0] if len(gains) == 1 else None
    found += [_choice(choice, measured, cache_gain) for choice in choices]
    found += [decision for name, cutting in cuts for decision in _cut(name, cutting)]
    differs = tuple(map(str, apart))
    if differs:
        found.append(Decision("check", "close", _APART, differs, True))
    for text in rejected:
        name, _, why = text.partition(": ")
        found.append(Decision("choice", name, _CHOICES.get(name, name), (), False, why))
    return tuple(found)


def _rule(outcome: Outcome, unchecked: Collection[str]) -> Decision:
    rule, why = outcome.rule, outcome.why
    pending = outcome.applied and rule.name in unchecked
    if pending:
        why = "it is first compared on rows of the source"
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
    of = "" if choice.epoch is None else "an epoch from it"
    return Decision(
        "choice", choice.name, reason, notes, True, predicted=predicted, measured=measured, of=of
    )


def _cut(stage: str, cutting: Cutting) -> Iterator[Decision]:
    """A stage that is cut in two, or was for a while."""
    reason = _CHOICES["cut"]
    notes = (f"{stage} {cutting.reason}",)
    if cutting.chosen is not None and cutting.proposal is not None:
        gain = cutting.proposal.gain
        yield Decision("choice", "cut", reason, notes, True, predicted=gain, measured=cutting.gain)
    elif cutting.refused is not None:
        yield Decision("choice", "cut", reason, notes, False, cutting.refused)


def decision_lines(found: Iterable[Decision], width: int = WIDTH) -> list[str]:
    """A line for each, and its notes below it."""
    lines: list[str] = []
    for decision in found:
        lines += wrapped(decision.line, width=width)
        for note in decision.notes:
            lines += wrapped(note, "  · ", "    ", width)
    return lines or ["none"]
