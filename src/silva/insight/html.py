"""Pieces of silva's pages. Everything that comes from a plan, a row or a file is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from silva.insight.decisions import Decision
from silva.insight.explain import written_lines
from silva.insight.steps import StepTime
from silva.insight.style import CSS
from silva.insight.words import percent, seconds, times, wrapped
from silva.plan.node import Node
from silva.plan.schema import types


def page(title: str, body: str) -> str:
    """A whole page that needs nothing but itself."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def with_code(text: str) -> str:
    """Text in which `backquotes` are code.

    >>> with_code("step `a < b` is slow")
    'step <code>a &lt; b</code> is slow'
    """
    parts = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def cards(values: Sequence[tuple[str, str]]) -> str:
    """Numbers with what they mean below them."""
    each = (f"<b>{escape(value)}</b><span>{escape(name)}</span>" for name, value in values)
    inner = "".join(f'<div class="card">{one}</div>' for one in each)
    return f'<div class="cards">{inner}</div>'


def panel(title: str, body: str, subtitle: str = "") -> str:
    below = f"<p>{with_code(subtitle)}</p>" if subtitle else ""
    return f'<div class="panel"><h3>{escape(title)}</h3>{below}{body}</div>'


def pre(lines: Sequence[str], css: str = "") -> str:
    return f'<pre class="{css}">{escape(chr(10).join(lines))}</pre>'


def decision_list(found: Sequence[Decision]) -> str:
    """A line for each rule and choice, with its notes below it."""
    if not found:
        return '<p class="note">nothing: it is run as it was written</p>'
    return f'<ul class="decisions">{"".join(map(_decision, found))}</ul>'


def _decision(found: Decision) -> str:
    notes = "".join(f"<li><code>{escape(note)}</code></li>" for note in found.notes)
    if not found.applied:
        end = f' <span class="unused">not used: {escape(found.why_not or "")}</span>'
    else:
        told = (("predicted", found.predicted), ("measured", found.measured))
        gains = ", ".join(f"{name} {times(gain)}" for name, gain in told if gain is not None)
        end = f' <span class="gain">{gains}</span>' if gains else ""
    return (
        f"<li><b>{escape(found.name)}</b>: {escape(found.reason)}{end}"
        f"{f'<ul>{notes}</ul>' if notes else ''}</li>"
    )


def step_table(steps: Sequence[StepTime]) -> str:
    """A row a step, with a bar for its share of the stage's time."""
    return f'<table class="steps">{"".join(map(_step_row, steps))}</table>' if steps else ""


def _step_row(step: StepTime) -> str:
    bar = f'<div class="track"><div class="fill" style="width:{step.share * 100:.1f}%"></div></div>'
    label = escape("\n".join(wrapped(step.label, width=72)))
    spent = "" if step.seconds is None else seconds(step.seconds)
    share = "" if step.seconds is None else percent(step.share)
    return (
        f"<tr><td><code>{label}</code></td>"
        f'<td class="bar">{bar if step.seconds is not None else ""}</td>'
        f'<td class="number">{share}</td><td class="number">{spent}</td></tr>'
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def pipeline_html(plan: Node) -> str:
    """A pipeline in a notebook: its plan as written and its columns. Runs nothing."""
    shown = ", ".join(f"{n}: {t}" if t else n for n, t in types(plan).items())
    lines = escape("\n".join(written_lines(plan)))
    return (
        '<div style="font: 13px/1.5 system-ui, sans-serif">'
        f"<b>silva pipeline</b> <span style='opacity:.65'>{escape(shown)}</span>"
        "<pre style='margin:.5em 0 0; padding:.7em 1em; border-left:3px solid #2f7d4f; "
        f"background:transparent; line-height:1.5'>{lines}</pre></div>"
    )
