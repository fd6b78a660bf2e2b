"""Outcomes as plain JSON."""

from __future__ import annotations

import statistics
from datetime import UTC, datetime
from typing import Any

from benchmarks.environments import requirements
from benchmarks.harness import Outcome
from benchmarks.machine import describe_machine
from benchmarks.table import amount, describe, wanted

_LEFT_OUT = ("parameters",)
"""May hold paths."""


def as_json(outcomes: list[Outcome], *, quick: bool) -> dict[str, Any]:
    contestants = [c for outcome in outcomes for c in outcome.workload.contestants]
    used = sorted({c.environment for c in contestants if c.environment is not None})
    return {
        "quick": quick,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "environments": {name: requirements(name) for name in used},
        "workloads": [_workload(outcome) for outcome in outcomes],
    }


def merged(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Earlier results, with those workloads replaced that were run again.

    >>> old = {"workloads": [{"name": "a", "x": 1}, {"name": "b", "x": 1}], "environments": {}}
    >>> new = {"workloads": [{"name": "b", "x": 2}], "environments": {}}
    >>> merged(old, new)["workloads"]
    [{'name': 'a', 'x': 1}, {'name': 'b', 'x': 2}]
    """
    again = {workload["name"]: workload for workload in now["workloads"]}
    kept = [again.pop(old["name"], old) for old in before["workloads"]]
    environments = before["environments"] | now["environments"]
    return now | {"workloads": [*kept, *again.values()], "environments": environments}


def _workload(outcome: Outcome) -> dict[str, Any]:
    workload = outcome.workload
    return {
        "name": workload.name,
        "date": datetime.now(UTC).date().isoformat(),
        "title": workload.title,
        "metric": workload.metric,
        "remarks": workload.remarks,
        "data": outcome.data,
        "other_load": round(outcome.other_load, 3),
        "contestants": [
            {
                "name": c.name,
                "limit": c.limit,
                "missing": outcome.missing.get(c.name),
                "runs": [_run(r) for r in outcome.runs[c.name]],
            }
            for c in workload.contestants
        ],
        "targets": [_target(outcome, target) for target in workload.targets],
        "errors": [_without_trace(error) for error in outcome.errors],
    }


def _without_trace(error: str) -> str:
    """Who failed and the kind of error: the rest, which the console shows, names files."""
    first, *more = error.splitlines()
    return f"{first.rpartition(': ')[0]}: {more[-1].split(':')[0]}" if more else first


def _run(run: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if run is None else {k: v for k, v in run.items() if k not in _LEFT_OUT}


def _target(outcome: Outcome, target: Any) -> dict[str, Any]:
    values = outcome.of_target(target)
    median = statistics.median(values) if values else None
    return {
        "target": describe(target, outcome),
        "who": target.who,
        "wanted": wanted(target),
        "median": median,
        "shown": None if median is None else amount(target, median),
        "values": values,
        "reached": median is not None and target.reached(median),
    }
