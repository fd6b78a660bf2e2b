"""Facts as text: the plan as written, why it changed, the plan as run, and what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from silva.facts.formatting import (
    WIDTH,
    error,
    percent,
    plural,
    rate,
    seconds,
    shortened,
    size,
    tidy,
    times,
    wrapped,
)
from silva.facts.model import ForecastFacts, PlanningFacts, RunFacts, StageFacts, StepFacts, pick
from silva.facts.plans import Segment, node_line, shown_labels
from silva.physical.plan import PhysicalNode
from silva.plan import expr
from silva.plan.decision import Decision
from silva.plan.node import Batch, Node, Shuffle, Source, walk
from silva.plan.operator import Grouping, Promising
from silva.plan.show import show_plan
from silva.plan.turn import every_part

INDENT = "  "
INNER = WIDTH - len(INDENT)
"""Characters that fit below a title."""
_BAR = 10
"""Characters of a bar."""
_WRONG = 0.1
"""Share of the measurement: a smaller error of a prediction is not shown."""
_WAITS = 0.05
"""Share of a step's time: a shorter wait is not shown."""
_SHORT = 2e-6
"""Seconds: a shorter wait is not shown."""
_FEW = 256
"""Bytes per row: fewer from a disk or network are not those of the rows."""
_LONG = 1e-3
"""Seconds per MiB: a step that takes less does not depend on the size of its rows."""
_CHANGES = 3
"""Changes of the plan that are shown: the latest ones."""
_KEEPS_UP = 0.05
"""Share of its time that a trainer may wait and still count as supplied in time."""

_HOW = (
    "seconds and CPU were measured in every block by the worker that ran it, shares of operators "
    "on a few of its rows; predictions were made before, when the stage was placed",
    "rows/s are those that the trainer gets, its own loop included; a stage rate counts rows that "
    "enter the stage, as if nothing else limited it",
)
"""How the figures of a run were measured."""
_TORN = (
    "The shuffle spreads equal rows over all batches, so that grouped= has little to share: "
    "shuffle(by='column'), with the column that a table is grouped by, keeps a group together."
)


def explain_text(facts: RunFacts, analyze: bool) -> str:
    """The whole explanation; with `analyze`, with everything that was measured."""
    parts = {
        "Plan as written": written_lines(facts.written) + _torn_groups(facts.written),
        **_told(facts.written),
        "Rules": decision_lines(facts.decisions, INNER),
        "Plan as run": run_lines(facts, facts.plan, analyze=analyze),
    }
    if facts.history:
        parts[_changes_title(facts.history)] = history_lines(facts.history)
    if analyze:
        lines = (wrapped(line, width=INNER) for line in consumer_lines(facts))
        parts["Measured"] = [piece for pieces in lines for piece in pieces]
    return titled(parts)


def titled(parts: dict[str, list[str]]) -> str:
    """Titles with indented lines below them."""
    return "\n\n".join(
        "\n".join([title, *(INDENT + line for line in lines)]) for title, lines in parts.items()
    )


def _changes_title(history: Sequence[Decision]) -> str:
    several = f" (the latest {_CHANGES} of {len(history)})" if len(history) > _CHANGES else ""
    return f"Changes while it ran{several}"


def history_lines(history: Sequence[Decision], width: int = INNER) -> list[str]:
    """A line for each of the latest changes: when, what, why, and the predicted and measured gain.
    A reason that does not fit is shortened, so that they are as many lines as changes.

    >>> from silva.plan.decision import Quantity
    >>> found = Quantity(300.0), Quantity(200.0), None, Quantity(100.0)
    >>> made = Decision("order", "y takes 10× as long", *found, notes=("after 9 rows",))
    >>> history_lines([made])
    ['after 9 rows: order, since y takes 10× as long (predicted 3.0×, measured 2.0×)']
    >>> history_lines([made], width=64)
    ['after 9 rows: order, since y ta… (predicted 3.0×, measured 2.0×)']
    """
    lines = []
    for change in history[-_CHANGES:]:
        gains = {"predicted": change.predicted_gain, "measured": change.measured_gain}
        shown = ", ".join(f"{how} {times(gain)}" for how, gain in gains.items() if gain is not None)
        shown = f" ({shown})" if shown else ""
        why = f"{', '.join(change.notes)}: {change.what}, since {tidy(change.why)}"
        lines.append(shortened(why, width - len(shown)) + shown)
    return lines


# Plans.


def written_lines(plan: Node, width: int = INNER) -> list[str]:
    """The plan as written, one line per node."""
    lines = []
    for line in tidy(show_plan(plan)).split("\n"):
        branch = line[: len(line) - len(line.lstrip("│├└─ "))]
        rest = branch.replace("├─ ", "│  ").replace("└─ ", "   ") + "    "
        lines += wrapped(line[len(branch) :], branch, rest, width)
    return lines


def _told(plan: Node) -> dict[str, list[str]]:
    """What the parameters of steps promise of results that are not exact, where one does, and how
    rows share work by their order."""
    steps = [node.runs for node in walk(plan)]
    parts = (part for step in steps if step is not None for part in every_part(step))
    calls = (part for part in parts if isinstance(part, expr.Call))
    values = [value for call in calls for _, value in call.params]
    told = {
        "Promises": [value.promise for value in values if isinstance(value, Promising)],
        "Order of prompts": [value.grouping for value in values if isinstance(value, Grouping)],
    }
    lines = {
        title: [
            piece for text in dict.fromkeys(texts) if text for piece in wrapped(text, width=INNER)
        ]
        for title, texts in told.items()
    }
    return {title: shown for title, shown in lines.items() if shown}


def _torn_groups(plan: Node) -> list[str]:
    """A sentence for each grouped batch whose rows a global shuffle has spread over all batches."""
    lines = []
    for batch in walk(plan):
        below = list(walk(batch.input)) if isinstance(batch, Batch) and batch.grouped else []
        indexed = all(n.source.access == "indexed" for n in below if isinstance(n, Source))
        kinds = ("global", None) if indexed else ("global",)
        if any(isinstance(n, Shuffle) and n.by is None and n.kind in kinds for n in below):
            lines += wrapped(_TORN, width=INNER)
    return lines


def run_lines(
    facts: RunFacts, plan: PhysicalNode, width: int = INNER, *, analyze: bool = False
) -> list[str]:
    """The plan as run, one line per node; below a stage, its steps and their measurements."""
    if isinstance(plan, Segment):
        lines = _segment_lines(facts, plan, width, analyze)
    else:
        lines = wrapped(tidy(node_line(plan)), width=width)
    below = plan.inputs
    if len(below) == 1:
        return lines + run_lines(facts, below[0], width, analyze=analyze)
    for i, child in enumerate(below):
        last = i == len(below) - 1
        first, *rest = run_lines(facts, child, width - 3, analyze=analyze)
        lines.append(("└─ " if last else "├─ ") + first)
        lines += [("   " if last else "│  ") + line for line in rest]
    return lines


def _segment_lines(facts: RunFacts, node: Segment, width: int, analyze: bool) -> list[str]:
    stage = facts.stage(node.name)
    if stage is None:
        lines = wrapped(f"{node.name}{_place_before_run(facts)}", width=width)
    else:
        lines = wrapped(f"{node.name} {place(stage)}", width=width)
        lines += wrapped(counters(stage), INDENT, INDENT * 2, width)
        for line in stage_lines(stage, _rows_for_one(facts, stage)) if analyze else ():
            lines += wrapped(line, INDENT, INDENT * 2, width)
    if stage is None or not stage.steps:
        for label in shown_labels(node.stage):
            lines += wrapped(label, f"{INDENT}· ", " " * 8, width)
        return lines
    for step in stage.steps:
        mark = f"{bar(step.share)} {percent(step.share):>5}"
        lines += wrapped(step.label, f"{INDENT}{mark} ", " " * (len(mark) + 7), width)
        if analyze:
            lines += wrapped(step_note(step), " " * 21, " " * 23, width)
            lines += operator_lines(step, " " * 21)
    return lines


def _place_before_run(facts: RunFacts) -> str:
    if facts.backend == "ray":
        return " on the cluster: as asked for"
    if facts.backend is not None:
        return f" {on(facts.backend, facts.workers)}: as asked for"
    if facts.workers == 0:
        return " inline: no workers were requested"
    return ": its backend is chosen once its first rows are measured"


def place(stage: StageFacts) -> str:
    """Where a stage runs, and why."""
    return f"{on(stage.backend, stage.workers, stage.width)}: {stage.reason}"


def on(backend: str, workers: int, width: int | None = None) -> str:
    """A backend with its number of workers, and how many of them are in use.

    >>> on("threads", 4), on("threads", 4, width=3), on("inline", 4)
    ('on 4 threads', 'on 3 of 4 threads', 'inline')
    >>> on("ray", 8)
    'on 8 actors'
    """
    if backend == "inline":
        return "inline"
    of = f"{workers} {'actors' if backend == 'ray' else backend}"
    return f"on {of}" if width in (None, workers) else f"on {width} of {of}"


def bar(share: float) -> str:
    """A share as a bar of ten characters."""
    full = round(share * _BAR)
    return "█" * full + "░" * (_BAR - full)


def decision_lines(found: Iterable[Decision], width: int = WIDTH) -> list[str]:
    """A line for each decision, and its notes below it."""
    lines: list[str] = []
    for decision in found:
        lines += wrapped(decision_line(decision), width=width)
        for note in decision.notes:
            lines += wrapped(note, "  · ", "    ", width)
    return lines or ["none"]


def decision_line(found: Decision) -> str:
    """The first line of a decision: what, why, and the speed-up.

    >>> from silva.plan.decision import Quantity
    >>> predicted, measured, default = map(Quantity, (300.0, 200.0, 100.0))
    >>> decision_line(Decision("order", "drop early", predicted, default=default))
    'order: drop early (predicted 3.0×)'
    >>> decision_line(Decision("order", "drop early", predicted, measured, default=default))
    'order: drop early (predicted 3.0×, measured 2.0×, 50 % too high)'
    """
    if not found.applied:
        return f"{found.what}: {found.why} ({unused(found)})"
    predicted, measured = found.predicted_gain, found.measured_gain
    parts = [] if predicted is None else [f"predicted {times(predicted)}"]
    parts += [] if measured is None else [f"measured {times(measured)}"]
    wrong = predicted / measured - 1 if predicted and measured else 0.0
    if abs(wrong) >= _WRONG:
        parts.append(error(wrong))
    of = f"{found.of}: " if found.of else ""
    return f"{found.what}: {found.why}" + (f" ({of}{', '.join(parts)})" if parts else "")


def unused(found: Decision) -> str:
    """Why a decision is not used."""
    return f"not used{' yet' if found.pending else ''}: {found.why_not}"


# Measurements.


def counters(stage: StageFacts) -> str:
    """What a stage did since the loader began."""
    totals = stage.totals
    rows = plural(totals.rows_in, "row")
    if totals.rows_out != totals.rows_in:
        rows += f" in, {totals.rows_out:,} out"
    parts = [rows, size(totals.bytes_out), f"{seconds(totals.busy)} of work"]
    if totals.busy:
        parts.append(f"stage rate {totals.rows_in / totals.busy:,.0f} rows/s per worker")
    if totals.starved >= 1e-3:
        parts.append(f"the consumer waited {seconds(totals.starved)} for it")
    if totals.blocked:
        parts.append(f"blocked by the memory limit {plural(totals.blocked, 'time')}")
    return ", ".join(parts)


def _rows_for_one(facts: RunFacts, stage: StageFacts) -> float:
    """Rows that enter a stage for one that the trainer gets; 1 before it got any."""
    placed = () if facts.consumer is None else facts.consumer.stages
    return next((one.rows for one in placed if one.name == stage.name), 1.0)


def stage_lines(stage: StageFacts, rows: float = 1.0) -> Iterator[str]:
    """Where the time of a stage went, and whether it was as fast as predicted; `rows` of it make
    one for the trainer."""
    load = stage.load
    there = "" if stage.backend == "inline" else " on its workers"
    yield (
        f"per row{there}: {seconds(load.seconds)}, of which {seconds(load.cpu)} CPU and "
        f"{seconds(stage.waits)} waiting; {size(stage.bytes_in)} in, {size(stage.bytes_out)} out"
    )
    fetched = {"disks": stage.from_disk, "object stores": stage.from_network}
    parts = [f"{size(nbytes)} from {where}" for where, nbytes in fetched.items() if nbytes >= _FEW]
    if parts:
        yield f"fetched per row: {', '.join(parts)}"
    if stage.earlier is not None and load.seconds:
        gain = times(stage.earlier / load.seconds)
        yield f"before its steps changed: {seconds(stage.earlier)} per row, now {gain} as fast"
    if stage.backend != "inline":
        totals = stage.totals
        yield (
            f"queue: {totals.queue_fill:.1f} finished blocks on average when the consumer asked "
            f"for one; it waited {percent(totals.waited)} of {seconds(totals.elapsed)}"
        )
    yield forecast_line(stage.forecast)
    backends = [made for made in stage.decisions if made.kind == "backend"]
    if len(backends) > 1:
        yield from (candidate_line(found, rows) for found in backends)


def candidate_line(found: Decision, rows: float = 1.0) -> str:
    """A backend that was compared with others: what the trainer was expected to get with it, what
    it got, and why it is not used. `rows` that enter the stage make one for the trainer.

    >>> from silva.plan.decision import Quantity
    >>> made = Decision("threads", "", Quantity(190.0), Quantity(150.0), why_not="slower")
    >>> candidate_line(made)
    'candidate threads: predicted 190 rows/s, measured 150 rows/s; slower'
    >>> candidate_line(made, rows=10)  # a filter keeps a tenth
    'candidate threads: predicted 19.0 rows/s, measured 15.0 rows/s; slower'
    """
    parts = {"predicted": found.predicted, "measured": found.measured}
    known = {name: one.value / max(rows, 1e-12) for name, one in parts.items() if one is not None}
    shown = ", ".join(f"{name} {rate(value)}" for name, value in known.items())
    return f"candidate {found.what}: " + "; ".join(filter(None, (shown, found.why_not or "in use")))


def forecast_line(made: ForecastFacts | None) -> str:
    """A prediction, and how wrong it was.

    >>> forecast_line(ForecastFacts(1200.0, "cores", 1000.0, True, 0.2))
    'stage rate: predicted 1,200 rows/s (limit: cores), measured 1,000 rows/s: 20 % too high'
    """
    if made is None:
        return "stage rate: not predicted (too few rows measured, or the GIL sampled too briefly)"
    predicted = f"stage rate: predicted {rate(made.predicted)} (limit: {made.limit})"
    if made.measured is None:
        return f"{predicted}; too few rows were measured since then"
    if made.error is None:
        return f"{predicted}; the consumer needed only {rate(made.measured)}"
    if not made.wrong:
        return (
            f"{predicted}, measured {rate(made.measured)}: right within ±{percent(made.interval)}"
        )
    return f"{predicted}, measured {rate(made.measured)}: {error(made.error)}"


def step_note(step: StepFacts) -> str:
    """Times and bytes per row, and the share of rows that a filter keeps."""
    parts = [f"{seconds(step.seconds)} per row"]
    if step.waits > max(_WAITS * step.seconds, _SHORT):
        parts.append(f"{seconds(step.cpu)} of it CPU")
    if step.by_byte is not None and step.by_byte * 2**20 > _LONG:
        parts.append(f"{seconds(step.by_byte * 2**20)} more per MiB read")
    if step.nbytes:
        parts.append(f"writes {size(step.nbytes)}")
    if step.filters:
        parts.append(f"keeps {percent(step.selectivity)}")
    return ", ".join(parts)


def operator_lines(step: StepFacts, indent: str) -> list[str]:
    """A line for each operator of an expression, where there are several."""
    if len(step.operators) < 2:
        return []
    width = max(len(found.name) for found in step.operators)
    return [
        f"{indent}{found.name:<{width}} {percent(found.share):>5}  {seconds(found.seconds)}"
        for found in step.operators
    ]


def now_text(facts: RunFacts) -> Iterator[str]:
    """The throughput that the trainer sees, and what limits it; nothing before the first row."""
    if facts.consumer is not None and facts.limit is not None:
        yield f"{rate(facts.consumer.present_rate)} (limit: {facts.limit.with_share})"


def consumer_lines(facts: RunFacts) -> list[str]:
    """How fast the whole pipeline was, how long the consumer waited, and what limits."""
    found, model = facts.consumer, facts.model
    if found is None or model is None:
        return [facts.empty_filter or "nothing has run yet"]
    lines = [
        f"{plural(found.rows, 'row')} in {seconds(found.seconds)}: {rate(found.rows_per_second)}; "
        f"the consumer waited {percent(found.wait_share)} of the time"
    ]
    since = "" if found.steady is None else ", since the workers started"
    lines += [f"the trainer gets{since}: {now}" for now in now_text(facts)]
    keeps_up = "the stages keep up with it"
    if found.is_limited_by_stages:
        modelled = rate(model.rows_per_second)
        keeps_up = f"the cost model finds, from the same measurements, {modelled}"
    return [*lines, keeps_up, planning_line(facts.planning), *_HOW]


def planning_line(spent: PlanningFacts) -> str:
    """What planning took, and of what.

    >>> planning_line(PlanningFacts(plans=0.02, backends=1e-3, checks=0.0, cpu=4.0))
    'planning took 21.0 ms of CPU, 1 % of the run: plans 20.0 ms, backends 1.0 ms'
    """
    parts = pick(spent, "plans backends checks").items()
    shown = ", ".join(f"{name} {seconds(took)}" for name, took in parts if took)
    total = f"planning took {seconds(spent.seconds)} of CPU, {percent(spent.share)} of the run"
    return f"{total}: {shown}" if shown else total


def verdict(facts: RunFacts) -> str:
    """One sentence about a run: whether the trainer waited, and for what."""
    if not facts.stages:
        return "Nothing has run yet."
    slowest = _slowest(facts.stages)
    measured = facts.loop if facts.loop.seconds else facts.consumer
    if measured is None or not measured.seconds:
        return f"No row has come out yet; {slowest}."
    waited = f"The trainer waited {percent(measured.wait_share)} of the time"
    if measured.wait_share < _KEEPS_UP:
        return f"{waited}: the pipeline keeps up; {slowest}."
    return f"{waited}: the pipeline is too slow for it; {slowest}."


def _slowest(stages: Iterable[StageFacts]) -> str:
    stage = max(stages, key=lambda found: found.totals.busy)
    if not stage.steps:
        return f"the slowest stage is {stage.name}"
    step = max(stage.steps, key=lambda found: found.share)
    return f"the slowest step is `{short(step.label)}`, {percent(step.share)} of {stage.name}"


def short(label: str) -> str:
    """A step's label without arguments and place.

    >>> short("y = double(x)  [train.py:3]")
    'y = double'
    """
    return label.partition("(")[0].partition("  [")[0].rstrip()


def stage_stats(stage: StageFacts) -> dict[str, Any]:
    """The counters of one stage as a plain dict; times in seconds, summed over workers.

    >>> import silva as sv
    >>> loader = sv.from_columns({"x": range(8)}).derive(y=lambda x: x).batch(4).loader(workers=0)
    >>> _ = list(loader)
    >>> stats = loader.stats()["stage 1"]
    >>> stats["backend"], stats["rows_in"], stats["rows_out"]
    ('inline', 8, 8)
    """
    totals = stage.totals
    steps: dict[str, float] = {}
    for step in stage.steps:
        steps[step.label] = steps.get(step.label, 0.0) + step.busy
    return {
        **pick(stage, "backend workers width reason"),
        **pick(totals, "blocks rows_in rows_out bytes_out busy cpu starved blocked queue_fill"),
        "rows_per_second_busy": totals.rows_in / totals.busy if totals.busy else 0.0,
        "steps": steps,
    }
