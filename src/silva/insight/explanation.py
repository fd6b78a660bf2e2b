"""What `explain()` returns: text, a page in a notebook, and plain data."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from silva.facts.model import RunFacts, StageFacts, StepFacts, pick
from silva.facts.plans import run_tree, written_tree
from silva.facts.text import explain_text, titled
from silva.insight.forecast import forecast_line
from silva.plan.decision import Decision

VERSION = 1
"""The version of the form of `to_dict()`."""


class Explanation(str):
    """Text that is also a page and plain data.

    >>> import silva as sv
    >>> print(sv.from_columns({"x": range(9)}).shuffle(seed=1).batch(4).explain())
    Plan as written
      batch 4
      shuffle seed=1, kind=auto, window=4096
      source columns of 9 rows
    <BLANKLINE>
    Rules
      none
    <BLANKLINE>
    Plan as run
      batch 4
      stage 1: its backend is chosen once its first rows are measured
        · read x
      feed columns of 9 rows: global shuffle (seed 1)
    """

    facts: RunFacts
    analyzed: bool

    def __new__(
        cls, facts: RunFacts, analyze: bool = False, expected: Decision | None = None
    ) -> Explanation:
        """`expected`: the forecast of a run that has not begun."""
        text = explain_text(facts, analyze)
        if expected is not None:
            text += "\n\n" + titled({"Before it runs": [forecast_line(expected)]})
        made = super().__new__(cls, text)
        made.facts, made.analyzed = facts, analyze
        return made

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data; docs/explain.md describes its form."""
        facts = self.facts
        whole = None
        if facts.consumer is not None and facts.model is not None:
            whole = {
                **pick(facts.consumer, "rows seconds rows_per_second"),
                "settled": facts.consumer.steady,
                "waited": facts.consumer.waited,
                "model": pick(facts.model, "rows_per_second limit stage"),
                "planning": pick(facts.planning, "plans backends checks share"),
            }
        return {
            "version": VERSION,
            "written": written_tree(facts.written),
            "run": run_tree(facts.plan),
            "decisions": [_decision(decision) for decision in facts.decisions],
            "history": [_decision(decision) for decision in facts.history],
            "stages": [_stage(stage) for stage in facts.stages],
            "overall": whole,
        }

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def to_html(self) -> str:
        """A whole page."""
        from silva.insight.pages import explain_page

        return explain_page(self.facts, self.analyzed)

    def _repr_html_(self) -> str:
        from silva.insight.html import fragment
        from silva.insight.pages import explain_body

        return fragment(explain_body(self.facts, self.analyzed))


def _decision(found: Decision) -> dict[str, Any]:
    return {
        **pick(found, "kind name"),
        "reason": found.why,
        **pick(found, "notes applied why_not pending"),
        "predicted": found.predicted_gain,
        "measured": found.measured_gain,
        "of": found.of,
    }


def _placement(found: Decision) -> dict[str, Any]:
    shown = pick(found, "kind what why why_not")
    quantities = pick(found, "predicted measured bound default")
    return {**shown, **{name: one and one.value for name, one in quantities.items()}}


def _stage(stage: StageFacts) -> dict[str, Any]:
    return {
        **pick(stage, "name backend workers width reason"),
        **pick(stage.totals, "blocks rows_in rows_out"),
        **pick(stage.load, "seconds cpu"),
        **pick(stage, "bytes_in bytes_out from_disk from_network"),
        **pick(stage.totals, "queue_fill elapsed waited blocked"),
        "earlier": stage.earlier,
        "forecast": None if stage.forecast is None else asdict(stage.forecast),
        "decisions": [_placement(decision) for decision in stage.decisions],
        "steps": [_step(step) for step in stage.steps],
    }


def _step(step: StepFacts) -> dict[str, Any]:
    return {
        **pick(step, "label share seconds cpu rows_in rows_out nbytes filters"),
        "operators": [asdict(operator) for operator in step.operators],
        "by_byte": step.by_byte,
    }
