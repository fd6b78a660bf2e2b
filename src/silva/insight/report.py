"""One self-contained HTML page about a loader: its plans, what it did, and how fast."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from silva.facts.formatting import percent, plural, tidy
from silva.facts.loop import LoopFacts
from silva.facts.model import RunFacts
from silva.facts.text import verdict
from silva.folders import telling_full_disk
from silva.insight.html import cards, header, page, panel, plans, pre, stage_panel, table

_ADVICE = "The report is incomplete: free some space, or write it to another disk"
_FAILURES = 20
"""Failed rows that are shown; the loader's file holds all."""
_WIDTH, _HEIGHT = 960, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 24
"""Pixels of a chart, and of its margins."""


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
        *_stages(facts),
        "<h2>Plans</h2>",
        plans(facts),
        *_failures(facts),
        *_state(state),
        f"<footer>Written by silva on {time.strftime('%Y-%m-%d at %H:%M')}.</footer>",
    ]
    with telling_full_disk(path, _ADVICE):
        path.write_text(page("silva report", "".join(parts)), encoding="utf-8")
    return path


def _numbers(facts: RunFacts) -> list[tuple[str, str]]:
    loop, totals = facts.loop, [stage.totals for stage in facts.stages]
    found: list[tuple[str, str]] = []
    if loop.seconds:
        found += [
            ("rows per second", f"{loop.rows / loop.seconds:,.0f}"),
            ("of the time, the trainer waited", percent(loop.wait_share)),
            ("batches", f"{loop.batches:,}"),
            ("rows", f"{loop.rows:,}"),
        ]
    elif facts.consumer is not None and facts.consumer.seconds:
        found += [
            ("rows per second", f"{facts.consumer.rows_per_second:,.0f}"),
            ("of the time, the trainer waited", percent(facts.consumer.wait_share)),
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


def _stages(facts: RunFacts) -> Iterator[str]:
    if facts.stages:
        yield "<h2>Stages</h2>"
    for stage in facts.stages:
        yield stage_panel(stage, analyzed=True)


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


# A line over time as SVG, without a script.


def line_chart(points: Sequence[tuple[float, float]], *, css: str, percent: bool = False) -> str:
    """The points (seconds, value) as a filled line with labelled grid lines.

    >>> line_chart([], css="speed")
    ''
    """
    if len(points) < 2:
        return ""
    last = points[-1][0] or 1.0
    top = 1.0 if percent else _round_up(max(v for _, v in points))
    xy = [(_x(t, last), _y(v, top)) for t, v in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in xy)
    base = _y(0, top)
    area = f"{xy[0][0]:.1f},{base:.1f} {path} {xy[-1][0]:.1f},{base:.1f}"
    grid = "".join(_grid(top * i / 2, top, percent) for i in range(3))
    times = "".join(
        f'<text x="{_x(last * i / 4, last):.0f}" y="{_HEIGHT - 6}" text-anchor="{_anchor(i)}">'
        f"{last * i / 4:.{0 if last >= 8 else 1}f} s</text>"
        for i in range(5)
    )
    return (
        f'<svg class="chart {css}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'{grid}{times}<polygon points="{area}"/><polyline points="{path}"/></svg>'
    )


def _x(t: float, last: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * t / last


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * min(value / top, 1.0)


def _anchor(i: int) -> str:
    return "start" if i == 0 else "end" if i == 4 else "middle"


def _grid(value: float, top: float, percent: bool) -> str:
    y = _y(value, top)
    label = f"{value:.0%}" if percent else f"{value:,.0f}"
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 5, 10, 20, …"""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next((m * unit for m in (1, 2, 4, 5) if m * unit >= value), 10 * unit)
