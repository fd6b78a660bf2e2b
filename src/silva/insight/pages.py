"""Facts as pages: an explanation, a pipeline in a notebook, and the report of a run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from silva.facts.formatting import percent, plural, seconds, size, tidy, times
from silva.facts.loop import LoopFacts
from silva.facts.model import RunFacts, StageFacts, StepFacts
from silva.facts.plans import Tree, run_tree, segments, shown_labels, written_tree
from silva.facts.text import (
    consumer_lines,
    counters,
    place,
    stage_lines,
    unused,
    verdict,
    written_lines,
)
from silva.folders import write_file
from silva.insight.html import (
    bar,
    cards,
    code,
    fragment,
    header,
    line_chart,
    note,
    page,
    panel,
    pre,
    table,
)
from silva.plan.decision import Decision
from silva.plan.node import Node
from silva.plan.schema import types

_ADVICE = "The report is incomplete: free some space, or write it to another disk"
_FAILURES = 20
"""Failed rows that are shown; the loader's file holds all."""


# An explanation.


def explain_page(facts: RunFacts, analyzed: bool) -> str:
    return page(
        "silva explain", header("silva", "What runs, and why") + explain_body(facts, analyzed)
    )


def explain_body(facts: RunFacts, analyzed: bool) -> str:
    return plans(facts) + "".join(_measured(facts, analyzed))


def pipeline_html(plan: Node) -> str:
    """A pipeline in a notebook: its plan as written, and its columns. Runs nothing."""
    shown = ", ".join(f"{n}: {t}" if t else n for n, t in types(plan).items())
    return fragment(panel("silva pipeline", pre("\n".join(written_lines(plan))), shown))


def plans(facts: RunFacts) -> str:
    """The plan as written beside the plan as run, and why they differ."""
    written, run = written_tree(facts.written), run_tree(facts.plan)
    ran = [label for found in segments(facts.plan) for label in shown_labels(found.stage)]
    moved = _moved(list(_steps(written)), ran)
    before = "".join(_written(written, {_left(text) for text in ran}))
    after = "".join(_run(run, moved))
    left = panel("As written", f'<ul class="plan">{before}</ul>')
    right = panel("As run", f'<ul class="plan">{after}</ul>')
    reasons = panel("Why they differ", decision_list(facts.decisions))
    return f'<div class="two">{left}{right}</div>{reasons}'


def _steps(tree: Tree) -> Iterator[str]:
    """Derivations and filters as stages show them, in the order in which they are written."""
    for child in tree["inputs"]:
        yield from _steps(child)
    if tree["verb"] in ("derive", "filter"):
        yield tree["text"].removeprefix("derive ")


def _moved(written: list[str], ran: list[str]) -> set[str]:
    """Filters that run before a step that was written before them."""
    at = {_left(text): place for place, text in enumerate(ran)}
    both = [_left(text) for text in written if _left(text) in at]
    return {
        text
        for i, text in enumerate(both)
        if text.startswith("filter ") and any(at[text] < at[other] for other in both[:i])
    }


def _written(tree: Tree, kept: set[str]) -> Iterator[str]:
    """A line per node; a derivation that the plan as run does not contain is struck out."""
    text = tree["text"]
    gone = tree["verb"] == "derive" and _left(text.removeprefix("derive ")) not in kept
    shown = code(text)
    yield f"<li>{f'<s>{shown}</s>' if gone else shown}</li>"
    yield from _below([_written(child, kept) for child in tree["inputs"]])


def _left(text: str) -> str:
    """The columns that a step derives, or the whole text of a filter."""
    return text if text.startswith("filter ") else text.partition(" = ")[0]


def _run(tree: Tree, moved: set[str]) -> Iterator[str]:
    if tree["stage"] is None:
        yield f"<li>{code(tree['text'])}</li>"
    else:
        steps = "".join(
            f"<li{' class=moved' if step in moved else ''}>{code(step)}</li>"
            for step in reversed(tree["steps"])
        )
        yield f'<li class="stage"><b>{escape(tree["text"])}</b><ul>{steps}</ul></li>'
    yield from _below([_run(child, moved) for child in tree["inputs"]])


def _below(branches: list[Iterator[str]]) -> Iterator[str]:
    if len(branches) == 1:
        yield from branches[0]
        return
    for branch in branches:
        yield f'<li class="branch"><ul>{"".join(branch)}</ul></li>'


def decision_list(found: Sequence[Decision]) -> str:
    """A line for each decision, with its notes below it."""
    if not found:
        return note("They do not differ: the plan is run as it was written.")
    return f'<ul class="decisions">{"".join(map(_decision, found))}</ul>'


def _decision(found: Decision) -> str:
    notes = "".join(f"<li><code>{escape(line)}</code></li>" for line in found.notes)
    if not found.applied:
        end = f' <span class="unused">{escape(unused(found))}</span>'
    else:
        both = (("predicted", found.predicted_gain), ("measured", found.measured_gain))
        gains = ", ".join(f"{name} {times(gain)}" for name, gain in both if gain is not None)
        end = f' <span class="gain">{gains}</span>' if gains else ""
    return (
        f"<li><b>{escape(found.what)}</b>: {escape(found.why)}{end}"
        f"{f'<ul>{notes}</ul>' if notes else ''}</li>"
    )


def _measured(facts: RunFacts, analyzed: bool) -> Iterator[str]:
    consumer = facts.consumer
    if consumer is None:
        return
    if analyzed:
        yield cards(
            [
                ("rows per second", f"{consumer.rows_per_second:,.0f}"),
                ("of the time spent waiting", percent(consumer.waited / consumer.seconds)),
                ("rows", f"{consumer.rows:,}"),
                ("seconds", f"{consumer.seconds:,.1f}"),
            ]
        )
        yield from map(note, consumer_lines(facts)[1:])
    for stage in facts.stages:
        yield stage_panel(stage, analyzed)


def stage_panel(stage: StageFacts, analyzed: bool) -> str:
    """Where a stage runs, what it did, and the time of its steps."""
    notes = "".join(map(note, stage_lines(stage))) if analyzed else ""
    head = ("step", "share", "", "time per row", "CPU", "writes", "keeps")
    rows = [cells for step in stage.steps for cells in _step(step, analyzed)]
    return panel(
        f"{stage.name} {place(stage)}", notes + table(head, rows, measured=True), counters(stage)
    )


def _step(step: StepFacts, analyzed: bool) -> Iterator[tuple[str, ...]]:
    yield (
        code(step.label),
        bar(step.share),
        percent(step.share),
        seconds(step.seconds),
        seconds(step.cpu),
        size(step.nbytes) if step.nbytes else "",
        percent(step.selectivity) if step.filters else "",
    )
    for found in step.operators if analyzed and len(step.operators) > 1 else ():
        yield (
            f'<code class="operator">{escape(found.name)}</code>',
            bar(found.share * step.share),
            percent(found.share * step.share),
            seconds(found.seconds),
            "",
            "",
            "",
        )


# The report of a run.


def write_report(facts: RunFacts, state: Mapping[str, Any], path: Path) -> Path:
    """Writes the page to `path`, and returns that path.

    >>> import silva as sv, tempfile
    >>> loader = sv.from_columns({"x": range(8)}).batch(4).loader(workers=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     loader.report(f"{folder}/report.html").read_text()[:15]
    '<!doctype html>'
    """
    parts = [
        header("silva report", verdict(facts)),
        cards(_numbers(facts)),
        *_charts(facts.loop),
        *_titled("Stages", [stage_panel(stage, analyzed=True) for stage in facts.stages]),
        "<h2>Plans</h2>",
        plans(facts),
        *_failures(facts),
        *_state(state),
        f"<footer>Written by silva on {time.strftime('%Y-%m-%d at %H:%M')}.</footer>",
    ]
    return write_file(path, page("silva report", "".join(parts)), _ADVICE)


def _numbers(facts: RunFacts) -> list[tuple[str, str]]:
    loop, totals = facts.loop, [stage.totals for stage in facts.stages]
    found: list[tuple[str, str]] = []
    if loop.seconds:
        found += [
            ("rows per second", f"{loop.rows / loop.seconds:,.0f}"),
            ("of the time spent waiting", percent(loop.wait_share)),
            ("batches", f"{loop.batches:,}"),
            ("rows", f"{loop.rows:,}"),
        ]
    elif facts.consumer is not None and facts.consumer.seconds:
        found += [
            ("rows per second", f"{facts.consumer.rows_per_second:,.0f}"),
            ("of the time spent waiting", percent(facts.consumer.wait_share)),
            ("rows", f"{facts.consumer.rows:,}"),
        ]
    elif totals:
        found.append(("rows read", f"{max(stage.rows_in for stage in totals):,}"))
    busy = sum(stage.busy for stage in totals)
    return [*found, ("seconds of work", f"{busy:,.1f}"), ("epoch", str(facts.epoch))]


def _charts(loop: LoopFacts) -> Iterator[str]:
    if len(loop.samples) < 2:
        return
    ends = [(at, s) for s in loop.samples for at in (s.start, s.start + s.seconds)]
    speed = [(at, s.rows / s.seconds) for at, s in ends]
    wait = [(at, s.waited / s.seconds) for at, s in ends]
    yield "<h2>Over time</h2>"
    yield panel("Rows per second", line_chart(speed, css="speed"))
    yield panel("Share of time the trainer waited", line_chart(wait, css="wait", percent=True))


def _titled(title: str, panels: list[str]) -> list[str]:
    return [f"<h2>{title}</h2>", *panels] if panels else []


def _failures(facts: RunFacts) -> Iterator[str]:
    if not facts.failures:
        return
    shown = facts.failures[:_FAILURES]
    rows = [
        (
            f"<code>{escape(f.key)}</code>",
            f"<code>{escape(tidy(f.step))}</code>",
            f'<span class="error">{escape(f.error)}</span>'
            f"<details><summary>traceback</summary>{pre(f.traceback)}</details>",
        )
        for f in shown
    ]
    count = plural(max(facts.failed, len(facts.failures)), "row")
    more = f"{count} failed; the first {len(shown)} are shown." if len(shown) < facts.failed else ""
    yield "<h2>Failures</h2>"
    yield panel(f"{count} failed", table(("row", "step", "error"), rows), more)


def _state(state: Mapping[str, Any]) -> Iterator[str]:
    shown = {name: value for name, value in state.items() if name != "outline"}
    text = json.dumps(shown, indent=2, ensure_ascii=False)
    yield "<h2>State</h2>"
    yield panel(f"The loader is at epoch {state['epoch']}, step {state['step']}", pre(text))
