"""Runs contestants in turn, each run in a new process, and settles what came out.

Interleaving matters more than repeating: on a shared machine the speed drifts by tens of per cent
within minutes, and only runs that lie side by side can be divided by each other.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.machine import OtherLoad
from benchmarks.resident import PeakWatch
from benchmarks.workload import Contestant, Metric, Target, Workload

_DEADLINE = 600.0
"""Seconds for one run: a hang is a result too."""

Run = dict[str, Any]
"""wall, first, cpu: seconds; rows; checksum; peak: bytes; rate: rows a second; notes;
parameters; other_load: share of the CPUs that others used."""


@dataclass
class Outcome:
    """What a workload's rounds gave: `runs[name]` has one entry a round, None where it failed."""

    workload: Workload
    runs: dict[str, list[Run | None]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def other_load(self) -> float:
        """The share of the CPUs that others used: the median of the runs."""
        shares = [run["other_load"] for runs in self.runs.values() for run in runs if run]
        return statistics.median(shares) if shares else 0.0

    def values(self, name: str, metric: str) -> list[float | None]:
        return [None if run is None else run[metric] for run in self.runs[name]]

    def known(self, name: str, metric: str) -> list[float]:
        return [value for value in self.values(name, metric) if value is not None]

    def of_target(self, target: Target) -> list[float]:
        """The target's value in each round where all that it needs succeeded."""
        names = (target.who, target.minus, self.best_of(target.of, target.metric))
        columns = [self.values(name, target.metric) for name in names if name is not None]
        found = []
        for row in zip(*columns, strict=True):
            if None in row:
                continue
            value, *others = row
            if target.minus is not None:
                value -= others.pop(0)
            found.append(value / others[0] if others else value)
        return found

    def best_of(self, names: str | tuple[str, ...] | None, metric: Metric) -> str | None:
        """The one contestant to compare with, where a target names several."""
        if names is None or isinstance(names, str):
            return names
        medians = {n: statistics.median(found) for n in names if (found := self.known(n, metric))}
        best = max if metric == "rate" else min
        return best(medians, key=medians.__getitem__, default=names[0])


def run_workload(
    workload: Workload, *, quick: bool, rounds: int, say: Callable[[str], None]
) -> Outcome:
    outcome = Outcome(workload, {c.name: [] for c in workload.contestants})
    with workload.setting(quick) as parameters:
        for number in range(rounds):
            turn = number % len(workload.contestants)
            for contestant in workload.contestants[turn:] + workload.contestants[:turn]:
                say(f"{workload.name}, round {number + 1} of {rounds}: {contestant.name}")
                try:
                    run = run_once(workload, contestant, parameters)
                except RuntimeError as error:
                    outcome.errors.append(f"{contestant.name}, round {number + 1}: {error}")
                    outcome.runs[contestant.name].append(None)
                else:
                    outcome.runs[contestant.name].append(run)
    outcome.errors += disagreements(outcome)
    return outcome


def run_once(workload: Workload, contestant: Contestant, parameters: dict[str, Any]) -> Run:
    """One run in a new process; RuntimeError with what it said if it fails."""
    given = dict(parameters)
    if contestant.share != 1:
        given["rows"] = int(given["rows"] * contestant.share)
    order = {"workload": workload.name, "contestant": contestant.name, "parameters": given}
    load, before = OtherLoad(), _our_cpu()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.child", json.dumps(order)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    watch = PeakWatch(process.pid, workload.shared_once)
    try:
        out, err = process.communicate(timeout=_DEADLINE)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no end after {_DEADLINE:.0f} s") from None
    finally:
        watch.stop()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: nobody else's processes
            process.communicate()
    if process.returncode != 0 or not out.strip():
        raise RuntimeError(f"ended with {process.returncode}: {err.strip()[-2000:]}")
    run: Run = json.loads(out.strip().splitlines()[-1])
    run |= {"peak": watch.peak, "rate": run["rows"] / run["wall"], "parameters": given}
    run["other_load"] = round(load.share(_our_cpu() - before), 3)
    return run


def disagreements(outcome: Outcome) -> list[str]:
    """Runs that did not do the work that was expected, or that others of their group did."""
    workload = outcome.workload
    known: dict[tuple[str, float], tuple[int, float]] = {}
    found = []
    for contestant in workload.contestants:
        for run in outcome.runs[contestant.name]:
            if run is None:
                continue
            given = (run["rows"], run["checksum"])
            if workload.expected is not None:
                wanted = workload.expected(**run["parameters"])
            else:
                wanted = known.setdefault((contestant.group, contestant.share), given)
            tolerance = workload.tolerance
            if given[0] != wanted[0] or not math.isclose(given[1], wanted[1], rel_tol=tolerance):
                found.append(f"{contestant.name} gave (rows, checksum) {given}, not {wanted}")
    return found


def _our_cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)
