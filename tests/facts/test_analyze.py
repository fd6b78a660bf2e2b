"""Explanations of a run: times by step and operator, gains and predictions beside what came of
them; as text, page and data."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from busy import spin

import silva as sv
from silva.cost.model import Prediction
from silva.facts.collect import decisions
from silva.facts.model import ForecastFacts, OperatorFacts, StepFacts
from silva.facts.text import (
    decision_line,
    decision_lines,
    explain_text,
    forecast_line,
    operator_lines,
    step_note,
)
from silva.insight.explanation import Explanation
from silva.plan.decision import Decision, Quantity
from silva.planner.choose import WHY
from silva.planner.compare_blocks import Difference
from silva.run.placement.measured import Counters, Forecast, Forecasts

HOSTILE = "<script>alert('x')</script>"


def costly(x):
    return spin(0.2)(x) % 2 == 0


def cheap(x):
    return x % 10 == 0


def reordered():
    """A pipeline whose filters change places once they are measured."""
    return sv.from_columns({"x": range(60_000)}).filter(costly).filter(cheap).batch(16)


def test_a_choice_of_the_planner_has_a_line_with_its_gains() -> None:
    loader = reordered().loader(backend="inline")
    for count, _ in enumerate(loader):
        if count > 300:
            break
    text = " ".join(loader.explain(analyze=True).split())
    assert "order: cheap filters that drop many rows run first" in text
    assert re.search(r"predicted \d+(\.\d)?×, measured \d+(\.\d)?×", text)
    assert "cheap(x) [test_analyze.py" in text
    (found,) = (d for d in loader.explain().facts.decisions if d.name == "order")
    assert found.predicted is not None
    assert found.measured is not None
    # ten to one by construction, and the slow filter half of what is left
    assert found.measured_gain > 3


def changed(rows: int, why: str) -> Decision:
    found = Quantity(300.0), Quantity(200.0), None, Quantity(100.0)
    notes = (f"after {rows:,} rows",)
    return Decision("order and cache", why, *found, kind="change", notes=notes, after=rows)


@pytest.mark.parametrize(
    "why", ["short", "a long label " * 40, "lambda x: (\n    x + 1\n) [/a/b.py:3]"]
)
@pytest.mark.parametrize("count", [1, 3, 9])
def test_the_history_is_at_most_three_lines_however_long_its_labels(why: str, count: int) -> None:
    facts = reordered().loader(backend="inline").facts()
    history = tuple(changed(1000 * n, why) for n in range(count))
    text = explain_text(replace(facts, history=history), analyze=True)
    (found,) = (part for part in text.split("\n\n") if part.startswith("Changes while it ran"))
    title, *lines = found.splitlines()
    assert len(lines) == min(count, 3)
    assert all(line.startswith("  after ") and len(line) <= 100 for line in lines)
    assert all(line.endswith("(predicted 3.0×, measured 2.0×)") for line in lines)
    assert f"after {1000 * (count - 1):,} rows" in lines[-1]
    assert ("latest 3 of 9" in title) == (count == 9)


def test_the_lines_of_decisions() -> None:
    cache = Decision(
        "cache", WHY["cache"], Quantity(261.0), default=Quantity(100.0),
        notes=("in memory after y: all rows",),
    )  # fmt: skip
    made = decisions([], [cache], [Decision("order", WHY["order"], why_not="it fails")])
    assert decision_lines(made) == [
        "cache: rows are cached instead of computed in every epoch (predicted 2.6×)",
        "  · in memory after y: all rows",
        "order: cheap filters that drop many rows run first (not used: it fails)",
    ]
    assert decision_lines(()) == ["none"]
    apart = decisions([], [], [], differences=[Difference("image", 16, 3, 2.0, 0.125)])
    assert decision_lines(apart)[-1] == (
        "  · image: 3 of 16 rows differ, by at most 2, on average 0.125"
    )


def test_lines_about_a_step_and_its_operators() -> None:
    decode, resize = OperatorFacts("a.decode", 0.75, 3e-3), OperatorFacts("a.resize", 0.25, 1e-3)
    step = StepFacts("a = …", 0.9, 4e-3, 3e-3, 100, 100, 2048.0, False, (decode, resize))
    assert step_note(step) == "4.0 ms per row, 3.0 ms of it CPU, writes 2.0 KiB"
    assert operator_lines(step, "  ") == ["  a.decode  75 %  3.0 ms", "  a.resize  25 %  1.0 ms"]
    kept = StepFacts("filter x", 0.1, 1e-5, 1e-5, 100, 25, 0.0, True, ())
    assert step_note(kept) == "10 µs per row, keeps 25 %"
    assert operator_lines(kept, "") == []


def test_a_wrong_prediction_is_shown_as_wrong() -> None:
    wrong = ForecastFacts(500.0, "cores", 1000.0, True, -0.5)
    assert forecast_line(wrong).endswith("measured 1,000 rows/s: 50 % too low")
    idle = ForecastFacts(500.0, "cores", 10.0, False, None)
    assert forecast_line(idle).endswith("the consumer needed only 10.0 rows/s")
    assert forecast_line(ForecastFacts(500.0, "cores", None, False, None)).endswith(
        "measured since then"
    )
    assert forecast_line(None).startswith("stage rate: not predicted")


def test_a_prediction_within_its_interval_is_not_called_wrong() -> None:
    near = ForecastFacts(1200.0, "cores", 1000.0, True, 0.2, interval=0.25)
    assert not near.wrong
    assert forecast_line(near).endswith("measured 1,000 rows/s: right within ±25 %")
    far = ForecastFacts(1300.0, "cores", 1000.0, True, 0.3, interval=0.25)
    assert far.wrong
    assert forecast_line(far).endswith("30 % too high")


def test_the_interval_of_a_prediction_narrows_as_more_is_measured() -> None:
    made = Forecast(Prediction(200.0, 0.0, "cores"), "threads", 2, at(1.0, 100))
    after = [made.uncertainty(at(2.0, 100 + blocks), spread=0.5) for blocks in (8, 80, 8000)]
    assert after == sorted(after, reverse=True)
    assert after[0] > 0.5, "eight blocks that differ by a half show little"
    assert after[-1] < 0.15
    assert made.uncertainty(at(2.0, 180), spread=0.0) == pytest.approx(2 / 80)


def at(seconds: float, rows: int, waited: float = 1.0) -> Counters:
    return Counters(rows, seconds, waited * seconds, seconds, seconds, rows)


def test_a_prediction_is_judged_only_by_what_comes_after_it() -> None:
    forecasts = Forecasts()
    assert forecasts.due(at(1.0, 100))
    forecasts.add(Prediction(200.0, 0.0, "cores"), "threads", 2, at(1.0, 100))
    forecasts.learn(at(1.5, 100), starting=True)
    for block in range(4):  # the first blocks of a worker are cold
        assert not forecasts.due(at(2.0 + block, 100))
        forecasts.learn(at(2.0 + block, 100), starting=False)
    assert forecasts.first is not None
    assert forecasts.first.since == at(5.0, 100)
    assert forecasts.first.seen(at(5.01, 101)) is None
    assert forecasts.first.error(at(6.0, 200)) == pytest.approx(1.0)  # 200 said, 100 measured
    assert not forecasts.due(at(5.3, 130))
    forecasts.add(Prediction(100.0, 0.0, "cores"), "threads", 2, at(6.0, 200))
    assert forecasts.errors(at(8.0, 400)) == pytest.approx([1.0, 0.0])


def test_a_stage_that_nobody_waits_for_contradicts_no_prediction_but_one_too_low() -> None:
    forecast = Forecast(Prediction(200.0, 0.0, "cores"), "threads", 2, at(0.0, 0))
    assert forecast.error(at(1.0, 100, waited=0.0)) is None
    assert forecast.error(at(1.0, 400, waited=0.0)) == pytest.approx(-0.5)


def test_analyze_runs_the_pipeline_and_stops_in_time() -> None:
    endless = sv.from_columns({"x": range(10_000_000)}).derive(y=spin(0.1)).batch(4)
    text = endless.explain(analyze=True, seconds=0.3, backend="inline")
    assert re.search(r"per row: .* CPU and .* waiting; 8 B in", text)
    assert re.search(r"predicted .* rows/s \(limit: the consumer's thread\)", text)
    assert re.search(r"Measured\n  [\d,]+ rows in .*: .* rows/s; the consumer waited \d+ %", text)
    assert re.search(r"the trainer gets: .* rows/s \(limit: the consumer's thread, stage 1", text)
    assert max(map(len, text.splitlines())) <= 100
    with pytest.raises(sv.PlanError, match="seconds"):
        endless.explain(analyze=True, seconds=0)


def test_a_loader_explains_what_it_has_measured_so_far() -> None:
    loader = sv.from_columns({"x": range(100)}).derive(y=abs, reads="x").batch(4).loader(workers=0)
    assert loader.explain(analyze=True).endswith("Measured\n  nothing has run yet")
    list(loader)
    assert "100 rows in" in loader.explain(analyze=True)


def test_operators_stand_below_their_expression() -> None:
    chain = sv.num("x").clip(0, 50).log1p()
    rows = sv.from_columns({"x": [float(i) for i in range(5000)]}).derive(y=chain).batch(100)
    text = rows.explain(analyze=True, backend="inline")
    assert re.search(r"\n +num\.clip +\d+ %  ", text)
    assert re.search(r"\n +num\.log1p +\d+ %  ", text)


def test_an_explanation_is_text() -> None:
    found = sv.from_columns({"x": [1]}).explain()
    assert isinstance(found, Explanation)
    assert isinstance(found, str)
    assert repr(found) == str(found)
    assert "Plan as run" in found


def keys(value: object) -> object:
    """The shape of plain data: names and types."""
    if isinstance(value, dict):
        return {name: keys(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [keys(value[0])] if value else []
    return type(value).__name__


def test_the_form_of_the_data() -> None:
    rows = sv.from_columns({"x": range(60_000)}).derive(y=spin(0.1), z=abs_of, reads="x")
    rows = rows.filter(cheap)
    found = rows.select("y").batch(10).explain(analyze=True, backend="inline")
    data = json.loads(found.to_json())
    assert data == json.loads(json.dumps(found.to_dict()))
    assert data["version"] == 1
    assert [node["verb"] for node in chain_of(data["written"])] == [
        "batch", "select", "filter", "derive", "derive", "source",
    ]  # fmt: skip
    stage = next(node for node in chain_of(data["run"]) if node["stage"] == "stage 1")
    assert stage["steps"][0] == "read x"
    assert {d["name"]: d["applied"] for d in data["decisions"]}["drop_unread"] is True
    (measured,) = data["stages"]
    assert keys(measured) == {
        "name": "str", "backend": "str", "workers": "int", "width": "int", "reason": "str",
        "blocks": "int", "rows_in": "int", "rows_out": "int", "seconds": "float", "cpu": "float",
        "bytes_in": "float", "bytes_out": "float", "from_disk": "float", "from_network": "float",
        "queue_fill": "float", "elapsed": "float",
        "waited": "float", "blocked": "int", "earlier": "NoneType",
        "forecast": {
            "predicted": "float", "limit": "str", "measured": "float", "limits": "bool",
            "error": "float", "interval": "float",
        },
        "decisions": [{
            "kind": "str", "what": "str", "why": "str", "why_not": "NoneType",
            "predicted": "float", "measured": "float", "bound": "float", "default": "float",
        }],
        "steps": [{
            "label": "str", "share": "float", "seconds": "float", "cpu": "float",
            "rows_in": "int", "rows_out": "int", "nbytes": "float", "by_byte": "NoneType",
                "filters": "bool",
            "operators": [],
        }],
    }  # fmt: skip
    assert keys(data["overall"]) == {
        "rows": "int", "seconds": "float", "rows_per_second": "float",
        "settled": "NoneType", "waited": "float",
        "model": {"rows_per_second": "float", "limit": "str", "stage": "str"},
        "planning": {"plans": "float", "backends": "float", "checks": "float", "share": "float"},
    }  # fmt: skip
    assert keys(data["decisions"][0]) == {
        "kind": "str", "name": "str", "reason": "str", "notes": ["str"], "applied": "bool",
        "why_not": "NoneType", "pending": "bool", "predicted": "NoneType", "measured": "NoneType",
            "of": "str",
    }  # fmt: skip


def abs_of(x):
    return abs(x)


def chain_of(tree: dict) -> list[dict]:
    """The nodes of a plan without branches, from the top."""
    return [tree, *(node for child in tree["inputs"] for node in chain_of(child))]


def test_names_cannot_become_part_of_a_page() -> None:
    rows = sv.from_columns({HOSTILE: range(100)})
    rows = rows.derive(abs_of, reads=HOSTILE, into=f"{HOSTILE}2").filter(sv.col(HOSTILE) >= 0)
    rows = rows.derive(abs_of, reads=HOSTILE, into="unread").drop("unread").batch(4)
    found = rows.explain(analyze=True, backend="inline")
    for page in (found._repr_html_(), found.to_html()):
        assert "<script" not in page
        assert "&lt;script&gt;" in page
    with rows.loader(backend="inline") as loader:
        list(loader)
        assert "<script" not in loader.what_if(**{f"{HOSTILE}2": 0.5})._repr_html_()
    assert "<script" not in rows.headroom(seconds=0.2, backend="inline")._repr_html_()


def test_a_page_shows_what_was_dropped_and_what_was_moved() -> None:
    rows = sv.from_columns({"x": range(9)}).derive(y=abs_of, reads="x").filter(cheap).select("x")
    page = sv.from_columns({"x": range(9)}).derive(y=abs_of, reads="x").select("x").explain()
    assert re.search(r"<s><code>derive y = abs_of\(x\)", page._repr_html_())
    shared = sv.from_columns({"x": range(9)}).derive(y=sv.col("x") + 0.0, z=sv.col("x") + 0.0)
    assert "<s>" not in shared.explain()._repr_html_()  # in another form, but still there
    moved = rows.derive(z=abs_of, reads="x").filter(sv.col("x") > 2).batch(2).explain()
    assert re.search(r"<li class=moved><code>filter x &gt; 2", moved._repr_html_())


def test_a_fragment_styles_nothing_outside_itself() -> None:
    style = sv.from_columns({"x": [1]}).explain()._repr_html_().split("</style>")[0]
    outside = re.sub(r"@media[^{]*\{|/\*.*?\*/", "", style.removeprefix("<style>"))
    selectors = [part for rule in outside.split("}") for part in rule.split("{")[0].split(",")]
    assert all(s.strip().startswith(".silva") for s in selectors if s.strip())


def test_a_law_that_is_still_to_be_checked_is_not_used_yet() -> None:
    chain = sv.num("x").clip(0, 50).clip(10, 40)
    rows = sv.from_columns({"x": [float(i) for i in range(2000)]}).derive(y=chain).batch(100)
    loader = rows.loader(backend="inline")
    (before,) = loader.explain().facts.decisions
    assert before.pending
    assert "(not used yet: it is checked on real rows first)" in decision_line(before)
    list(loader)
    (after,) = loader.explain().facts.decisions
    assert after.applied
    assert not after.pending


def test_a_decision_that_was_left_out_says_why() -> None:
    found = Decision("recognise", "they mean the same", kind="rule", why_not="needs more")
    assert decision_line(found) == "recognise: they mean the same (not used: needs more)"
