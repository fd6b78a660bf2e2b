"""`python -m benchmarks.what_if`: what-if against runs that were really changed.

Twelve runs, each with a question and the run that the question is about: the predicted gain beside
the one by the trainer's clock. For a quiet machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import silva as sv

_RIGHT = 0.2
"""The error of a prediction that counts as right, as a share of the trainer's clock."""
_WANTED = 10
"""Cases that should be right."""
_SIDE = 160
_MATRIX = np.random.default_rng(0).random((_SIDE, _SIDE))


def spin(milliseconds: float) -> Callable[[int], int]:
    """A step that computes in Python for so long, however busy the machine is."""

    def spinning(x):
        start = time.thread_time()
        while time.thread_time() - start < milliseconds / 1e3:
            pass
        return x

    return spinning


def rest(milliseconds: float) -> Callable[[int], int]:
    """A step that waits, as for a network: it needs neither a core nor the GIL."""

    def resting(x):
        time.sleep(milliseconds / 1e3)
        return x

    return resting


def compute(times: int) -> Callable[[int], int]:
    """A step that needs a core and releases the GIL: numpy sorts without it."""

    def computing(x):
        for _ in range(times):
            np.sort(_MATRIX, axis=0)
        return x

    return computing


class Case(NamedTuple):
    """A run, a question, and the run that the question is about."""

    steps: dict[str, Callable[[int], int]]
    options: dict[str, Any]
    asked: dict[str, Any]
    changed_steps: dict[str, Callable[[int], int]] | None = None
    own: float = 0.0
    """Milliseconds of the loop per batch of 8, waiting as for a GPU."""
    busy: float = 0.0
    """Milliseconds of the loop per batch, computing."""
    rows: int = 400

    def pipeline(self, steps: dict[str, Callable[[int], int]]) -> sv.Pipeline:
        rows = sv.from_columns({"x": range(self.rows)})
        for name, step in steps.items():
            rows = rows.derive(**{name: step})
        return rows.select(*steps).batch(8)

    def seconds(self, loader: sv.Loader) -> float:
        """The seconds of an epoch, by the trainer's clock."""
        loop_body = spin(self.busy) if self.busy else rest(self.own)
        began = time.perf_counter()
        for _ in loader:
            loop_body(0)
        return time.perf_counter() - began

    def error(self) -> float:
        """How much too high the predicted gain is, as a share of the real one. The epochs of both
        runs alternate, so that both meet the same machine; the first ones start the workers."""
        options = {n: v for n, v in self.asked.items() if n in ("workers", "backend")}
        changed = self.pipeline(self.changed_steps or self.steps)
        with (
            self.pipeline(self.steps).loader(**self.options) as now,
            changed.loader(**{**self.options, **options}) as then,
        ):
            epochs = [(self.seconds(now), self.seconds(then)) for _ in range(4)][1:]
            found = now.what_if(**self.asked)
        real = sum(before for before, _ in epochs) / sum(after for _, after in epochs)
        return found.gain / real - 1


THREADS, PROCESSES = {"backend": "threads"}, {"backend": "processes"}
TWO = {"workers": 2}
CASES = {
    "waits, 2 → 8 threads": Case({"y": rest(2)}, THREADS | TWO, {"workers": 8}, rows=800),
    "waits, 8 → 2 threads": Case({"y": rest(2)}, THREADS | {"workers": 8}, TWO, rows=600),
    "waits, 2 → 8 processes": Case({"y": rest(2)}, PROCESSES | TWO, {"workers": 8}, rows=800),
    "waits, inline → 8 threads": Case(
        {"y": rest(2)}, {"backend": "inline"}, THREADS | {"workers": 8}, rows=600
    ),
    "half as long": Case(
        {"y": rest(2), "z": rest(0.5)}, THREADS | TWO, {"y": 0.5}, {"y": rest(1), "z": rest(0.5)}
    ),
    "the loop limits, 2 → 8 threads": Case(
        {"y": rest(1)}, THREADS | TWO, {"workers": 8}, own=8, rows=600
    ),
    "loop and stage overlap": Case(
        {"y": rest(1)}, {"backend": "inline"}, THREADS | TWO, own=5, rows=500
    ),
    "Python holds the GIL, 2 → 8 threads": Case(
        {"y": spin(0.5)}, THREADS | TWO, {"workers": 8}, rows=800
    ),
    "Python on two cores, 2 → 8 processes": Case(
        {"y": spin(1)}, PROCESSES | TWO, {"workers": 8}, rows=800
    ),
    "Python and waits, 2 → 8 threads": Case(
        {"y": spin(0.4), "z": rest(2)}, THREADS | TWO, {"workers": 8}, rows=800
    ),
    "numpy on two cores, 2 → 8 threads": Case(
        {"y": compute(12)}, THREADS | TWO, {"workers": 8}, rows=600
    ),
    "a loop that computes beside 2 → 8 processes": Case(
        {"y": spin(1)}, PROCESSES | TWO, {"workers": 8}, busy=3, rows=800
    ),
}


def main() -> int:
    right = 0
    for name, case in CASES.items():
        error = case.error()
        if abs(error) > _RIGHT:  # the machine may have been busy: the median of three counts
            error = median([error, case.error(), case.error()])
        right += abs(error) <= _RIGHT
        print(f"{error:+6.0%}  {name}", flush=True)
    print(f"{right} of {len(CASES)} within {_RIGHT:.0%}; wanted: {_WANTED}")
    return 0 if right >= _WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
