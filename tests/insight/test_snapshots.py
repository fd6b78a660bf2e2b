"""What every renderer makes of the same facts, compared with files in `snapshots/`.

The pipeline really runs; then every measured number is replaced by a fixed one. After a change that
should show, write the files again and read the difference:

    SILVA_SNAPSHOTS=write python -m pytest tests/insight/test_snapshots.py
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import silva as sv
from silva.cost.model import Work
from silva.facts.loop import Interval, LoopFacts
from silva.facts.model import ForecastFacts, Limit, OperatorFacts, RunFacts, StageFacts, StepFacts
from silva.facts.text import stage_stats
from silva.facts.why import why
from silva.insight.explanation import Explanation
from silva.insight.headroom import Headroom, StepHeadroom
from silva.insight.pages import write_report
from silva.insight.what_if import what_if
from silva.plan.decision import Decision, Quantity

FOLDER = Path(__file__).parent / "snapshots"
LOOP = LoopFacts(12, 1200, 0.5, 3.0, tuple(Interval(i, 1.0, 400 + i, 0.1 * i) for i in range(3)))
FORECAST = ForecastFacts(1200.0, "cores", 1000.0, True, 0.2)
STATE = {"epoch": 1, "step": 3, "outline": "not shown", "cursors": [{"next": 96}]}


def double(x):
    return 2 * x


def broken(x):
    if x == 30:
        raise ValueError("a < b & c")
    return x


def pipeline() -> sv.Pipeline:
    left = sv.from_columns({"x": range(90), "unused": range(90)}).shuffle(seed=1)
    left = left.derive(y=double, z=broken, dropped=double, reads="x")
    left = left.derive(n=sv.num("x").clip(0, 50).log1p()).filter(sv.col("x") % 3 == 0)
    right = sv.from_columns({"x": range(30)}).derive(y=double, z=double, n=double, reads="x")
    both = sv.concat([left.select("x", "y", "z", "n"), right.select("x", "y", "z", "n")])
    return both.batch(10).filter(lambda x: x[0] >= 0)


def fixed_step(number: int, step: StepFacts) -> StepFacts:
    spent = 1e-3 * (number + 1)
    operators = tuple(
        OperatorFacts(name, share, share * spent)
        for name, share in zip(sorted(o.name for o in step.operators), (0.75, 0.25), strict=False)
    )
    return replace(
        step,
        share=0.5 / (number + 1),
        seconds=spent,
        cpu=spent / 2,
        nbytes=1000.0 * number,
        busy=10 * spent,
        uncertainty=0.01,
        operators=operators,
        by_byte=2e-9 if number == 1 else None,
    )


def fixed_decisions() -> tuple[Decision, ...]:
    predicted, measured, bound, default = map(Quantity, (1200.0, 1000.0, 1400.0, 250.0))
    why = "it is the fastest"
    used = Decision("threads", why, predicted, measured, bound, default, kind="backend")
    other = replace(used, why="another backend for the stage", measured=None)
    not_tried = "not tried: it was not expected to be faster"
    return (
        used,
        replace(other, what="inline", predicted=None, measured=default, why_not="slower"),
        replace(other, what="processes", predicted=Quantity(1100.0), why_not=not_tried),
    )


def fixed_stage(number: int, stage: StageFacts) -> StageFacts:
    load = Work(0.004, 0.003, 0.002)
    totals = replace(
        stage.totals, blocks=4, bytes_out=90_000, busy=2.0 + number, cpu=1.5, elapsed=4.0,
        starved=1.0, blocked=2, queue_fill=1.5,
    )  # fmt: skip
    changed: dict[str, Any] = {}
    if number == 0:
        changed = {"backend": "threads", "workers": 4, "width": 3, "reason": "it is the fastest"}
        changed |= {"earlier": 0.01, "forecast": FORECAST, "errors": (0.2,), "from_disk": 5000.0}
    else:
        changed = {"forecast": None, "errors": (), "from_disk": 0.0, "earlier": None}
    steps = tuple(fixed_step(i, step) for i, step in enumerate(stage.steps))
    return replace(
        stage, totals=totals, load=load, alone=None, bytes_in=16.0, from_network=0.0, steps=steps,
        block_rows=25, epoch_rows=None, decisions=() if number else fixed_decisions(), **changed,
    )  # fmt: skip


@pytest.fixture(scope="module")
def ran() -> RunFacts:
    with pipeline().loader(backend="inline", on_error=sv.Skip()) as loader:
        list(loader)
        facts = loader.facts()
    stages = tuple(fixed_stage(i, stage) for i, stage in enumerate(facts.stages))
    assert facts.consumer is not None
    loads = tuple(
        replace(placed, work=stage.load, backend=stage.backend, workers=stage.workers)
        for placed, stage in zip(facts.consumer.stages, stages, strict=True)
    )
    consumer = replace(
        facts.consumer, seconds=4.0, waited=3.0, own=1e-4, steady=15.5, stages=loads, own_cpu=5e-5,
        own_queued=0.0,
    )  # fmt: skip
    failures = tuple(replace(failure, traceback="Traceback …") for failure in facts.failures)
    return replace(
        facts, stages=stages, consumer=consumer, loop=LOOP, cores=4, workers=4, failures=failures,
        planning=replace(facts.planning, plans=0.02, backends=5e-3, checks=0.01, cpu=4.0),
    )  # fmt: skip


@pytest.fixture(scope="module")
def planned() -> RunFacts:
    with pipeline().loader() as loader:
        return replace(loader.facts(), workers=4)


def headroom() -> Headroom:
    steps = (
        StepHeadroom("y = double(x)  [train.py:3]", "stage 1", "workers", 500.0, 0.75, 2.0, True),
        StepHeadroom("batch 10", None, "consumer", 9000.0),
    )
    return Headroom(400.0, Limit("the threads", "stage 1", 0.93), steps, 5.0)


def report(facts: RunFacts, folder: Path) -> str:
    page = write_report(facts, STATE, folder / "report.html").read_text(encoding="utf-8")
    return re.sub(r"on \d{4}-\d\d-\d\d at \d\d:\d\d", "on DAY at TIME", page)


def data(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)


SHOWN: dict[str, Callable[[RunFacts, Path], str]] = {
    "explain.txt": lambda facts, _: Explanation(facts),
    "analyze.txt": lambda facts, _: Explanation(facts, analyze=True),
    "explain.json": lambda facts, _: Explanation(facts).to_json(1),
    "explain.html": lambda facts, _: Explanation(facts).to_html(),
    "analyze.html": lambda facts, _: Explanation(facts, analyze=True)._repr_html_(),
    "report.html": report,
    "why.txt": lambda facts, _: "\n\n".join(
        why(facts, name) for name in ("y#0", "x", "n", "clip", "dropped", "stage 1", "filter#0")
    ),
    "what_if.txt": lambda facts, _: str(what_if(facts, {"log1p": 0.5, "workers": 2})),
    "what_if.html": lambda facts, _: what_if(facts, {"log1p": 0.5, "workers": 2})._repr_html_(),
    "what_if.json": lambda facts, _: data(what_if(facts, {"cores": 2}).to_dict()),
    "stats.json": lambda facts, _: data([stage_stats(stage) for stage in facts.stages]),
    "headroom.txt": lambda _, __: str(headroom()),
    "headroom.json": lambda _, __: data(headroom().to_dict()),
    "headroom.html": lambda _, __: headroom()._repr_html_(),
}


def split_tags(page: str) -> str:
    """A page with a line per tag, without its style, so that differences can be read."""
    return re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL).replace("><", ">\n<")


def compare(name: str, text: str) -> None:
    path = FOLDER / name
    text = (split_tags(text) if name.endswith(".html") else str(text)).rstrip("\n") + "\n"
    if os.environ.get("SILVA_SNAPSHOTS") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SHOWN)
def test_a_run_is_rendered_as_before(name: str, ran: RunFacts, tmp_path: Path) -> None:
    compare(name, SHOWN[name](ran, tmp_path))


@pytest.mark.parametrize("name", ["explain.txt", "analyze.txt", "explain.html", "report.html"])
def test_a_plan_that_has_not_run_is_rendered_as_before(
    name: str, planned: RunFacts, tmp_path: Path
) -> None:
    compare(f"planned_{name}", SHOWN[name](planned, tmp_path))
