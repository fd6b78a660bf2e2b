"""Facts as HTML: pages that load nothing, and fragments for notebooks, made of the same pieces.

Everything that comes from a plan, a row or a file is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from silva.facts.decisions import Decision
from silva.facts.formatting import percent, seconds, size, times, wrapped
from silva.facts.model import RunFacts, StageFacts, StepFacts
from silva.facts.plans import Tree, run_tree, written_tree
from silva.facts.text import consumer_lines, counters, place, stage_lines, written_lines
from silva.insight.style import FRAGMENT, PAGE
from silva.plan.node import Node
from silva.plan.schema import types

_COLUMN = 58
"""Characters that fit into half of a page."""


# Pieces.


def page(title: str, body: str) -> str:
    """A whole page that loads nothing else."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{PAGE}</style></head>"
        f'<body><main class="silva">{body}</main></body></html>\n'
    )


def header(label: str, title: str) -> str:
    return f"<header><p>{escape(label)}</p><h1>{with_code(title)}</h1></header>"


def fragment(body: str) -> str:
    """A part of another page, such as a notebook, with its own style."""
    return f'<style>{FRAGMENT}</style><div class="silva">{body}</div>'


def with_code(text: str) -> str:
    """Text in which `backquotes` are code.

    >>> with_code("step `a < b` is slow")
    'step <code>a &lt; b</code> is slow'
    """
    parts = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def cards(values: Sequence[tuple[str, str]]) -> str:
    """Numbers, each with its meaning below it."""
    each = (f"<b>{escape(value)}</b><span>{escape(name)}</span>" for name, value in values)
    inner = "".join(f'<div class="card">{one}</div>' for one in each)
    return f'<div class="cards">{inner}</div>'


def panel(title: str, body: str, subtitle: str = "") -> str:
    return f'<div class="panel"><h3>{escape(title)}</h3>{note(subtitle)}{body}</div>'


def note(text: str) -> str:
    return f'<p class="note">{with_code(text)}</p>' if text else ""


def pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def bar(share: float) -> str:
    """A share as a bar.

    >>> bar(0.5)
    '<div class="track"><div class="fill" style="width:50.0%"></div></div>'
    """
    width = min(max(share, 0.0), 1.0) * 100
    return f'<div class="track"><div class="fill" style="width:{width:.1f}%"></div></div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def measured_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already: a text, a bar, and numbers."""
    top = "".join(f"<th{_css(i)}>{escape(name)}</th>" for i, name in enumerate(head))
    body = "".join(
        f"<tr>{''.join(f'<td{_css(i)}>{cell}</td>' for i, cell in enumerate(row))}</tr>"
        for row in rows
    )
    return f'<table class="measured"><tr>{top}</tr>{body}</table>'


def _css(column: int) -> str:
    return "" if column == 0 else ' class="bar"' if column == 1 else ' class="number"'


def _code(text: str) -> str:
    """Code in lines that fit; a long chain gets a line per call."""
    return f"<code>{escape(chr(10).join(wrapped(text, width=_COLUMN)))}</code>"


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
    ran = [text for stage in _stages(run) for text in stage["steps"]]
    moved = _moved(list(_steps(written)), ran)
    before = "".join(_written(written, {_left(text) for text in ran}))
    after = "".join(_run(run, moved))
    left = panel("As written", f'<ul class="plan">{before}</ul>')
    right = panel("As run", f'<ul class="plan">{after}</ul>')
    reasons = panel("Why they differ", decision_list(facts.decisions))
    return f'<div class="two">{left}{right}</div>{reasons}'


def _stages(tree: Tree) -> Iterator[Tree]:
    """The stages of a plan, from the sources up."""
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
    shown = _code(text)
    yield f"<li>{f'<s>{shown}</s>' if gone else shown}</li>"
    yield from _below([_written(child, kept) for child in tree["inputs"]])


def _left(text: str) -> str:
    """The columns that a step derives, or the whole text of a filter."""
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
        end = f' <span class="unused">{escape(found.unused)}</span>'
    else:
        both = (("predicted", found.predicted), ("measured", found.measured))
        gains = ", ".join(f"{name} {times(gain)}" for name, gain in both if gain is not None)
        end = f' <span class="gain">{gains}</span>' if gains else ""
    return (
        f"<li><b>{escape(found.name)}</b>: {escape(found.reason)}{end}"
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
                ("the consumer waited", percent(consumer.waited / consumer.seconds)),
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
        f"{stage.name} {place(stage)}", notes + measured_table(head, rows), counters(stage)
    )


def _step(step: StepFacts, analyzed: bool) -> Iterator[tuple[str, ...]]:
    yield (
        _code(step.label),
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
