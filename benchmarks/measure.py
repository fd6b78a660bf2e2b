"""Measurements that take turns, and what can be said of their ratios."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_DEADLINE = 300.0
_RESAMPLES = 2000

Given = dict[str, Any]


@dataclass(frozen=True)
class Children:
    """Measurements, each in a new process, which knows nothing of earlier ones."""

    module: str
    """Run as `python -m MODULE NAME JSON`, it prints what it found as JSON."""
    threads: int = 1
    """Of the libraries that have threads of their own."""
    asleep: bool = False
    """Whether these threads sleep while they wait for each other. By default they spin, which on a
    machine with other work to do costs them their turn."""

    def run(self, name: str, **given: Any) -> Given:
        with tempfile.TemporaryDirectory(prefix="silva-bench-") as scratch:
            private = {"SILVA_PROFILES": f"{scratch}/profiles", "SILVA_CACHE": f"{scratch}/rows"}
            threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(self.threads))
            waiting = {"OMP_WAIT_POLICY": "PASSIVE"} if self.asleep else {}
            done = subprocess.run(
                [sys.executable, "-m", self.module, name, json.dumps(given)],
                capture_output=True, text=True, timeout=_DEADLINE, cwd=_ROOT, check=False,
                env=os.environ | threads | waiting | private,
            )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{name} {given}: {done.stderr.strip()[-2000:]}")
        found: Given = json.loads(done.stdout.strip().splitlines()[-1])
        return found

    def in_turns(
        self, rounds: int, contestants: dict[str, tuple[str, Given]]
    ) -> dict[str, list[Given]]:
        """Every contestant once a round, in an order that turns."""
        found: dict[str, list[Given]] = {name: [] for name in contestants}
        names = list(contestants)
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                measurement, given = contestants[name]
                found[name].append(self.run(measurement, **given))
        return found


@dataclass(frozen=True)
class Ratio:
    """Of paired measurements: the median, and where it lies with 95 % certainty."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


def ratio(first: list[float], second: list[float]) -> Ratio:
    """first / second, pair by pair.

    >>> ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    Ratio(median=2.0, low=2.0, high=2.0)
    """
    pairs = [a / b for a, b in zip(first, second, strict=True)]
    rng = random.Random(0)
    drawn = sorted(statistics.median(rng.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES))
    low, high = drawn[int(0.025 * _RESAMPLES)], drawn[int(0.975 * _RESAMPLES)]
    return Ratio(statistics.median(pairs), low, high)
