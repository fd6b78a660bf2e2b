"""What `explain()` gives: text that is printed, a page in a notebook, and plain data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from silva.insight.decisions import Decision, decision_lines, decisions
from silva.insight.explain import INNER, explained, run_lines, written_lines
from silva.insight.measured_lines import overall_lines
from silva.insight.overall import Overall, lanes_of, overall
from silva.insight.stages import StageFacts, stage_facts
from silva.insight.trees import Tree, run_tree, written_tree
from silva.insight.words import wrapped
from silva.optimize.system import Throughput
from silva.profile.machine import Machine

VERSION = 1
"""Of the form of `to_dict()`."""


@dataclass(frozen=True)
class Explained:
    """All that an explanation says."""

    written: Tree
    run: Tree
    decisions: tuple[Decision, ...]
    stages: tuple[StageFacts, ...]
    overall: Overall | None
    model: Throughput | None
    analyzed: bool


class Explanation(str):
    """Text, and more where more can be shown.

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
      stage 1: where it runs is chosen once its first rows are measured
        · read x
      feed columns of 9 rows: global shuffle (seed 1)
    """

    facts: Explained

    def __new__(cls, text: str, facts: Explained) -> Explanation:
        made = super().__new__(cls, text)
        made.facts = facts
        return made

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data; docs/explain.md describes its form."""
        facts = self.facts
        whole = None
        if facts.overall is not None and facts.model is not None:
            whole = {
                "rows": facts.overall.rows,
                "seconds": facts.overall.seconds,
                "rows_per_second": facts.overall.rows_per_second,
                "settled": facts.overall.settled,
                "waited": facts.overall.waited,
                "model": asdict(facts.model),
            }
        return {
            "version": VERSION,
            "written": facts.written,
            "run": facts.run,
            "decisions": [asdict(decision) for decision in facts.decisions],
            "stages": [asdict(stage) for stage in facts.stages],
            "overall": whole,
        }

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def to_html(self) -> str:
        """A whole page."""
        from silva.insight.explain_html import explain_page

        return explain_page(self.facts)

    def _repr_html_(self) -> str:
        from silva.insight.explain_html import explain_fragment

        return explain_fragment(self.facts)


def explain_loader(loader: Any, analyze: bool = False) -> Explanation:
    """The plan of a loader as it is now, with what was measured so far."""
    plan, executor = loader._lowered(), loader._executor
    found = decisions_of(loader)
    whole = overall(plan, executor)
    model = None if whole is None else whole.model(Machine.here().cpus)
    parts = {
        "Plan as written": written_lines(loader._logical),
        "Rules": decision_lines(found, INNER),
        "Plan as run": run_lines(plan, executor, detail="all" if analyze else "counters"),
    }
    if analyze:
        said = overall_lines(whole, model)
        parts["Measured"] = [piece for line in said for piece in wrapped(line, width=INNER)]
    facts = Explained(
        written=written_tree(loader._logical),
        run=run_tree(plan),
        decisions=found,
        stages=tuple(stage_facts(lane) for lane in lanes_of(plan, executor)),
        overall=whole,
        model=model,
        analyzed=analyze,
    )
    return Explanation(explained(parts), facts)


def decisions_of(loader: Any) -> tuple[Decision, ...]:
    """Why the plan of a loader is not the one that was written."""
    planner = loader._planner
    lanes = lanes_of(loader._lowered(), loader._executor)
    gains = [
        lane.earlier.seconds / lane.average().seconds
        for lane in lanes
        if lane.earlier is not None and lane.average().seconds
    ]
    return decisions(
        loader.outcomes,
        planner.choices,
        planner.rejected,
        gains,
        planner.unchecked,
        planner.apart,
        [(lane.name, lane.cutting) for lane in lanes],
        planner.cache_gain,
    )
