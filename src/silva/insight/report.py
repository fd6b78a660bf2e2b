"""One self-contained HTML page about a loader: what it was to do, what it did, and how fast."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from silva.insight.chart import line_chart
from silva.insight.explain import lane_counters, lane_place, run_lines, written_lines
from silva.insight.explanation import decisions_of
from silva.insight.html import cards, decision_list, page, panel, pre, step_table, table, with_code
from silva.insight.steps import stage_steps
from silva.insight.verdict import verdict
from silva.insight.watch import Watch
from silva.insight.words import percent, plural, tidy
from silva.physical.context import Failure
from silva.run.lane import Lane

_COLUMN = 62
"""Characters that fit into half of the page."""
_FAILURES = 20
"""Rows of the table of failures; the loader's file holds all."""


def write_report(loader: Any, path: Path) -> Path:
    """Writes the page about `loader` to `path`, and gives that path.

    >>> import silva as sv, tempfile
    >>> loader = sv.from_columns({"x": range(8)}).batch(4).loader(workers=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(loader, Path(folder) / "report.html").read_text()[:15]
    '<!doctype html>'
    """
    lanes = [lane for lane in loader._executor.lanes.values() if lane.stats.blocks]
    watch: Watch = loader._watch
    parts = [
        _header(verdict(watch, lanes)),
        cards(_numbers(watch, lanes, loader)),
        *_charts(watch),
        *_stages(lanes),
        *_plans(loader),
        *_failures(loader.failures, loader._failures.total),
        *_state(loader),
        f"<footer>Written by silva on {time.strftime('%Y-%m-%d at %H:%M')}.</footer>",
    ]
    path.write_text(page("silva report", "".join(parts)), encoding="utf-8")
    return path


def _header(sentence: str) -> str:
    return f"<header><p>silva report</p><h1>{with_code(sentence)}</h1></header>"


def _numbers(watch: Watch, lanes: list[Lane], loader: Any) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if watch.seconds:
        found += [
            ("rows a second", f"{watch.rows / watch.seconds:,.0f}"),
            ("of its time the trainer waited", percent(watch.wait_share)),
            ("batches", f"{watch.batches:,}"),
            ("rows", f"{watch.rows:,}"),
        ]
    elif lanes:
        found.append(("rows read", f"{max(lane.stats.rows_in for lane in lanes):,}"))
    busy = sum(lane.stats.busy for lane in lanes)
    return [*found, ("seconds of work", f"{busy:,.1f}"), ("epoch", str(loader.epoch))]


def _charts(watch: Watch) -> Iterator[str]:
    if len(watch.samples) < 2:
        return
    ends = [(at, s) for s in watch.samples for at in (s.start, s.start + s.seconds)]
    speed = [(at, s.rows / s.seconds) for at, s in ends]
    wait = [(at, s.waited / s.seconds) for at, s in ends]
    yield "<h2>Over time</h2>"
    yield panel("Rows a second", line_chart(speed, css="speed"))
    yield panel("Share of time the trainer waited", line_chart(wait, css="wait", percent=True))


def _stages(lanes: list[Lane]) -> Iterator[str]:
    if lanes:
        yield "<h2>Stages</h2>"
    for lane in lanes:
        body = step_table(stage_steps(lane.stage, lane.stats))
        yield panel(f"{lane.name} {lane_place(lane)}", body, lane_counters(lane))


def _plans(loader: Any) -> Iterator[str]:
    written = written_lines(loader._logical, _COLUMN)
    run = run_lines(loader._lowered(), loader._executor, _COLUMN, detail="none")
    rules = decision_list(decisions_of(loader))
    yield "<h2>Plans</h2>"
    yield f'<div class="two">{panel("As written", pre(written))}{panel("As run", pre(run))}</div>'
    yield f"<h2>Why they differ</h2>{rules}"


def _failures(kept: list[Failure], total: int) -> Iterator[str]:
    if not kept:
        return
    shown = kept[:_FAILURES]
    rows = [
        (
            f"<code>{escape(f.key)}</code>",
            f"<code>{escape(tidy(f.step))}</code>",
            f'<span class="error">{escape(f.error)}</span>'
            f"<details><summary>traceback</summary>{pre([f.traceback])}</details>",
        )
        for f in shown
    ]
    count = plural(max(total, len(kept)), "row")
    more = f"{count} failed; the first {len(shown)} are shown." if len(shown) < total else ""
    yield "<h2>Failures</h2>"
    yield panel(f"{count} failed", table(("row", "step", "error"), rows), more)


def _state(loader: Any) -> Iterator[str]:
    state = loader.state_dict()
    short = {name: value for name, value in state.items() if name != "outline"}
    text = json.dumps(short, indent=2, ensure_ascii=False)
    where = f"epoch {state['epoch']}, step {state['step']}"
    yield "<h2>State</h2>"
    yield panel(f"The loader stands at {where}", pre([text], "state"))
