"""An explanation as HTML: the plan as written beside the plan as run, why they differ, and what was
measured. A fragment carries its own style, so that it looks the same in any notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from silva.insight.explain import on
from silva.insight.fragment import bar, fragment, rows_table
from silva.insight.html import cards, decision_list, page, panel
from silva.insight.measured_lines import overall_lines, stage_lines
from silva.insight.stages import StageFacts, StepFacts
from silva.insight.trees import Tree
from silva.insight.words import percent, seconds, size, wrapped

if TYPE_CHECKING:
    from silva.insight.explanation import Explained

_COLUMN = 58
"""Characters that fit into half of a page."""


def explain_page(facts: Explained) -> str:
    """A page that needs nothing but itself."""
    head = "<header><p>silva</p><h1>What is run, and why</h1></header>"
    return page("silva explain", head + _body(facts))


def explain_fragment(facts: Explained) -> str:
    """A part of somebody else's page."""
    return fragment(_body(facts))


def _body(facts: Explained) -> str:
    ran = [text for stage in _stages(facts.run) for text in stage["steps"]]
    moved = _moved(list(_steps(facts.written)), ran)
    before = "".join(_written(facts.written, {_left(text) for text in ran}))
    after = "".join(_run(facts.run, moved))
    written = panel("As written", f'<ul class="plan">{before}</ul>')
    run = panel("As run", f'<ul class="plan">{after}</ul>')
    parts = [
        f'<div class="two">{written}{run}</div>',
        panel("Why they differ", decision_list(facts.decisions)),
        *_measured(facts),
    ]
    return "".join(parts)


def _stages(tree: Tree) -> Iterator[Tree]:
    """From the sources up."""
    for child in tree["inputs"]:
        yield from _stages(child)
    if tree["stage"] is not None:
        yield tree


def _steps(tree: Tree) -> Iterator[str]:
    """Derivations and filters as stages show them, in the order in which they are written."""
    for child in tree["inputs"]:
        yield from _steps(child)
    if tree["verb"] in ("derive", "filter"):
        yield tree["text"].removeprefix("derive ")


def _moved(written: list[str], ran: list[str]) -> set[str]:
    """Filters that come before a step that was written before them."""
    at = {_left(text): place for place, text in enumerate(ran)}
    there = [_left(text) for text in written if _left(text) in at]
    return {
        text
        for i, text in enumerate(there)
        if text.startswith("filter ") and any(at[text] < at[other] for other in there[:i])
    }


def _written(tree: Tree, kept: set[str]) -> Iterator[str]:
    """A line a node; derivations of columns that nothing derives any more are struck out."""
    text = tree["text"]
    gone = tree["verb"] == "derive" and _left(text.removeprefix("derive ")) not in kept
    shown = _code(text)
    yield f"<li>{f'<s>{shown}</s>' if gone else shown}</li>"
    yield from _below(tree, [_written(child, kept) for child in tree["inputs"]])


def _left(text: str) -> str:
    """The columns that a step derives; all of a filter."""
    return text if text.startswith("filter ") else text.partition(" = ")[0]


def _run(tree: Tree, moved: set[str]) -> Iterator[str]:
    if tree["stage"] is None:
        yield f"<li>{_code(tree['text'])}</li>"
    else:
        steps = "".join(
            f"<li{' class=moved' if step in moved else ''}>{_code(step)}</li>"
            for step in reversed(tree["steps"])
        )
        yield f'<li class="stage"><b>{escape(tree["text"])}</b><ul>{steps}</ul></li>'
    yield from _below(tree, [_run(child, moved) for child in tree["inputs"]])


def _code(text: str) -> str:
    """Code in lines that fit, a line for each call of a long chain."""
    return f"<code>{escape(chr(10).join(wrapped(text, width=_COLUMN)))}</code>"


def _below(tree: Tree, branches: list[Iterator[str]]) -> Iterator[str]:
    if len(branches) == 1:
        yield from branches[0]
        return
    for branch in branches:
        yield f'<li class="branch"><ul>{"".join(branch)}</ul></li>'


def _measured(facts: Explained) -> Iterator[str]:
    if facts.overall is None:
        return
    if facts.analyzed:
        yield cards(
            [
                ("rows a second", f"{facts.overall.rows_per_second:,.0f}"),
                ("the consumer waited", percent(facts.overall.waited / facts.overall.seconds)),
                ("rows", f"{facts.overall.rows:,}"),
                ("seconds", f"{facts.overall.seconds:,.1f}"),
            ]
        )
        limit = overall_lines(facts.overall, facts.model)[1:]
        yield "".join(f'<p class="note">{escape(line)}</p>' for line in limit)
    for stage in facts.stages:
        yield panel(_title(stage), _stage(stage, facts.analyzed))


def _title(stage: StageFacts) -> str:
    return f"{stage.name} {on(stage.backend, stage.workers, stage.width)}: {stage.reason}"


def _stage(stage: StageFacts, analyzed: bool) -> str:
    lines = list(stage_lines(stage)) if analyzed else []
    said = "".join(f'<p class="note">{escape(line)}</p>' for line in lines)
    head = ("step", "share", "", "time a row", "CPU", "writes", "keeps")
    body = [cells for step in stage.steps for cells in _step(step, analyzed)]
    return said + rows_table(head, body)


def _step(step: StepFacts, analyzed: bool) -> Iterator[tuple[str, ...]]:
    yield (
        _code(step.label),
        bar(step.share),
        percent(step.share),
        seconds(step.seconds),
        seconds(step.cpu),
        size(step.nbytes) if step.nbytes else "",
        percent(step.keeps) if step.filters else "",
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
