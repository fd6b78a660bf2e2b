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
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.environments import NotInstalled, python_of
from benchmarks.machine import OtherLoad
from benchmarks.resident import PeakWatch
from benchmarks.workload import Contestant, Metric, Target, Workload

_DEADLINE, _QUICK_DEADLINE = 600.0, 60.0
"""Seconds for one run: a hang is a result too."""

_SCRATCH = "sb-"
"""Short: Ray keeps sockets there, and their names must not be long."""

Run = dict[str, Any]
"""wall, first, cpu: seconds; cpu_row: of one row; rows; checksum; form: type and shape of the first
batch; peak: bytes; rate: rows a second; steady: the same after the first batch; notes; parameters;
other_load: share of the CPUs that others used."""

_ROOT = Path(__file__).parents[1]
_PINNED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""Libraries use one thread in each worker: how work is spread is what is compared."""


class NoEnd(RuntimeError):
    """A run had not ended by its deadline, and was killed."""


@dataclass
class Outcome:
    """What a workload's rounds gave: `runs[name]` has one entry a round, None where it failed."""

    workload: Workload
    runs: dict[str, list[Run | None]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Contestants whose environment could not be made, and why."""
    data: str = ""

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
    deadline = _QUICK_DEADLINE if quick else _DEADLINE
    outcome = Outcome(workload, {c.name: [] for c in workload.contestants})
    for contestant in workload.contestants:
        try:
            python_of(contestant.environment)
        except NotInstalled as error:
            outcome.missing[contestant.name] = str(error)
    with workload.setting(quick) as given:
        parameters = {name: value for name, value in given.items() if name != "data"}
        outcome.data = given.get("data", "")
        hanging: set[str] = set()
        for number in range(rounds):
            turn = number % len(workload.contestants)
            for contestant in workload.contestants[turn:] + workload.contestants[:turn]:
                if contestant.name in outcome.missing or contestant.name in hanging:
                    outcome.runs[contestant.name].append(None)
                    continue
                say(f"{workload.name}, round {number + 1} of {rounds}: {contestant.name}")
                try:
                    run = run_once(workload, contestant, parameters, deadline)
                except RuntimeError as error:
                    if isinstance(error, NoEnd):  # another round would hang as long
                        hanging.add(contestant.name)
                    outcome.errors.append(f"{contestant.name}, round {number + 1}: {error}")
                    outcome.runs[contestant.name].append(None)
                else:
                    outcome.runs[contestant.name].append(run)
    outcome.errors += disagreements(outcome)
    return outcome


def run_once(
    workload: Workload,
    contestant: Contestant,
    parameters: dict[str, Any],
    deadline: float = _DEADLINE,
    source: Path = _ROOT / "src",
) -> Run:
    """One run in a new process, of the silva that lies in `source` (whatever is installed);
    RuntimeError with what it said if it fails."""
    given = parameters | contestant.given
    if contestant.share != 1:
        given["rows"] = int(given["rows"] * contestant.share)
    order = {"workload": workload.name, "contestant": contestant.name, "parameters": given}
    path = os.pathsep.join((str(source), str(_ROOT)))  # also for workers that peers start
    load, before = OtherLoad(), _our_cpu()
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, ignore_cleanup_errors=True) as scratch:
        # files, not pipes: a daemon that outlives the run would keep a pipe open
        written, said = Path(scratch, "out"), Path(scratch, "err")
        with written.open("w") as stdout, said.open("w") as stderr:
            process = subprocess.Popen(
                [python_of(contestant.environment), "-m", "benchmarks.child", json.dumps(order)],
                stdout=stdout, stderr=stderr, text=True, start_new_session=True,
                env=os.environ | _PINNED
                | {"PYTHONPATH": path, "TMPDIR": scratch, "SILVA_PROFILES": scratch}, cwd=_ROOT,
            )  # fmt: skip
        watch = PeakWatch(process.pid, workload.shared_once)
        try:
            process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise NoEnd(f"no end after {deadline:.0f} s") from None
        finally:
            watch.stop()
            if process.poll() is None:
                _kill(process, watch.seen)
        out, err = written.read_text(errors="replace"), said.read_text(errors="replace")
    if process.returncode != 0 or not out.strip():
        raise RuntimeError(f"ended with {process.returncode}: {err.strip()[-2000:]}")
    run: Run = json.loads(out.strip().splitlines()[-1])
    run |= {"peak": watch.peak, "rate": run["rows"] / run["wall"], "parameters": given}
    run["cpu_row"] = run["cpu"] / run["rows"]
    run["other_load"] = round(load.share(_our_cpu() - before), 3)
    return run


def _kill(process: subprocess.Popen[str], seen: set[psutil.Process]) -> None:
    """Ends a run with all that it started: its session, and daemons that left it."""
    os.killpg(process.pid, signal.SIGKILL)
    for daemon in seen:
        with suppress(psutil.Error):  # it has ended, or its number is another's by now
            daemon.kill()
    process.wait()


def disagreements(outcome: Outcome) -> list[str]:
    """Runs that did not do the work that was expected, or that others of their group did."""
    workload = outcome.workload
    known: dict[tuple[str, float], tuple[int, float]] = {}
    found = []
    for contestant in workload.contestants:
        for run in outcome.runs[contestant.name]:
            if run is None:
                continue
            if workload.shape is not None and not fits(run["form"], workload):
                found.append(f"{contestant.name} gave batches of {run['form']}")
            given = (run["rows"], run["checksum"])
            if workload.expected is not None:
                wanted = workload.expected(**run["parameters"])
            else:
                wanted = known.setdefault((contestant.group, contestant.share), given)
            tolerance = workload.tolerance
            if given[0] != wanted[0] or not math.isclose(given[1], wanted[1], rel_tol=tolerance):
                found.append(f"{contestant.name} gave (rows, checksum) {given}, not {wanted}")
    return found


def fits(form: list[Any], workload: Workload) -> bool:
    """Whether a first batch is of the workload's type, and its rows of the workload's shape."""
    assert workload.shape is not None
    dtype, (_, *shape) = form
    pairs = zip(shape, workload.shape, strict=False)
    same = len(shape) == len(workload.shape) and all(b in (a, None) for a, b in pairs)
    return bool(same and dtype == workload.dtype)


def _our_cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)
