"""What was measured of a stage, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from silva.insight.overall import Overall
from silva.insight.stages import ForecastFacts, StageFacts, StepFacts
from silva.insight.words import error, percent, plural, rate, seconds, size, times
from silva.optimize.system import Throughput

_WAITS = 0.05
"""Of a step's time: less is not worth a word."""
_SHORT = 2e-6
"""Seconds, neither."""
_FEW = 256
"""Bytes a row from outside: with less, it was something else than the rows."""
_LONG = 1e-3
"""Seconds for a MiB: what takes less takes it for something else than its bytes."""


def stage_lines(stage: StageFacts) -> Iterator[str]:
    """A few lines about where its time went and whether it was as fast as predicted."""
    yield (
        f"a row: {seconds(stage.seconds)}, of which {seconds(stage.cpu)} CPU and "
        f"{seconds(stage.waits)} waiting; {size(stage.bytes_in)} in, {size(stage.bytes_out)} out"
    )
    came = {"disks": stage.from_disk, "object stores": stage.from_network}
    told = [f"{size(nbytes)} from {where}" for where, nbytes in came.items() if nbytes >= _FEW]
    if told:
        yield f"fetched for a row: {', '.join(told)}"
    if stage.earlier is not None and stage.seconds:
        gain = times(stage.earlier / stage.seconds)
        yield f"with its steps as they were before: {seconds(stage.earlier)} a row, now {gain}"
    if stage.backend != "inline":
        yield (
            f"queue: {stage.queue_fill:.1f} blocks ready when the consumer came; it waited "
            f"{percent(stage.waited)} of {seconds(stage.elapsed)}"
        )
    yield forecast_line(stage.forecast)


def forecast_line(made: ForecastFacts | None) -> str:
    """What was predicted, and how wrong it was.

    >>> forecast_line(ForecastFacts(1200.0, "cores", 1000.0, True, 0.2))
    'predicted 1,200 rows/s (limit: cores), measured 1,000 rows/s: 20 % too high'
    """
    if made is None:
        return "not predicted: too little was seen, or who holds Python's lock is not known"
    said = f"predicted {rate(made.predicted)} (limit: {made.limit})"
    if made.measured is None:
        return f"{said}; too little was measured since"
    if made.error is None:
        return f"{said}; only {rate(made.measured)} were asked for"
    return f"{said}, measured {rate(made.measured)}: {error(made.error)}"


def step_note(step: StepFacts) -> str:
    """Times and bytes of a row, and what a filter keeps."""
    parts = [f"{seconds(step.seconds)} a row"]
    if step.waits > max(_WAITS * step.seconds, _SHORT):
        parts.append(f"{seconds(step.cpu)} of it CPU")
    if step.by_byte is not None and step.by_byte * 2**20 > _LONG:
        parts.append(f"{seconds(step.by_byte * 2**20)} more for each MiB read")
    if step.nbytes:
        parts.append(f"writes {size(step.nbytes)}")
    if step.filters:
        parts.append(f"keeps {percent(step.keeps)}")
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


def overall_lines(found: Overall | None, model: Throughput | None) -> list[str]:
    """The whole: how fast, how long the consumer waited, and what limits."""
    if found is None or model is None:
        return ["nothing was run yet"]
    share = percent(found.waited / found.seconds if found.seconds else 0.0)
    first = (
        f"{plural(found.rows, 'row')} in {seconds(found.seconds)}: {rate(found.rows_per_second)}; "
        f"the consumer waited {share} of the time"
    )
    if found.settled is not None:
        first += f"; {rate(found.settled)} since its workers run"
    if not found.limits:
        return [first, "the consumer itself limits: the stages keep up with it"]
    where = "" if model.stage is None else f", most of it for {model.stage}"
    at = rate(model.rows_per_second)
    return [first, f"the limit, by the cost model: {model.limit}{where}, at {at}"]
