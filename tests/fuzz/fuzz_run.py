"""`make fuzz`: random pipelines, each run in many ways; says where two ways disagree.

`SEED=` is the first case's (random by default), `SECONDS=` (120) or `CASES=` how much is done,
`ONLY=` the seed of one case to run alone. `PROCESSES=` is the share of cases that run in processes
too. A case that fails is made smaller unless `SHRINK=0`; `FIRST=1` ends with it. `LOG=1` adds a
line to `log.jsonl`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fuzz_case import Case
from fuzz_check import check
from fuzz_draw import draw
from fuzz_shrink import shrink
from fuzz_ways import SHARED, Different, Effort, Hung

LIMIT = 240
"""Seconds that a case may take: most take half a second, and a minute beside many other jobs."""
LOG = Path(__file__).with_name("log.jsonl")


@dataclass
class Report:
    cases: int = 0
    runs: int = 0
    failed: int = 0


def fuzz(seed: int, *, seconds: float, cases: int | None, effort: Effort) -> Report:
    report, began = Report(), time.monotonic()
    first = bool(os.environ.get("FIRST"))
    while time.monotonic() - began < seconds and (cases is None or report.cases < cases):
        if first and report.failed:
            break
        case = draw(seed + report.cases)
        report.cases += 1
        try:
            with limited():
                check(case, effort)
        except Different as error:
            report.failed += 1
            show(case, str(error), effort)
        except Hung:
            report.failed += 1
            print(
                f"\n=== seed {case.seed}: hangs\n{traceback.format_exc()}\n{case.text}\n",
                flush=True,
            )
        except Exception:  # noqa: BLE001  the case goes on record
            report.failed += 1
            show(case, traceback.format_exc(), effort)
    report.runs = effort.runs
    return report


@contextmanager
def limited() -> Iterator[None]:
    """Ends what hangs, with the stack of every thread."""

    def ring(*_: object) -> None:
        faulthandler.dump_traceback()
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def show(case: Case, said: str, effort: Effort) -> None:
    print(f"\n=== seed {case.seed}: {said}\n\n{case.text}\n", flush=True)
    if os.environ.get("SHRINK") != "0":
        runs = effort.runs
        less, said = shrink(case, effort)
        effort.runs = runs
        print(f"--- seed {case.seed}, smaller: {said}\n\n{less.text}\n", flush=True)


def main() -> None:
    os.environ.setdefault("SILVA_PROFILES", tempfile.mkdtemp(prefix="silva-fuzz-profiles-"))
    warnings.simplefilter("ignore")
    only = os.environ.get("ONLY")
    seed = int(only or os.environ.get("SEED") or time.time_ns() % 10**9)
    seconds = float(os.environ.get("SECONDS") or 120)
    cases = 1 if only else int(os.environ["CASES"]) if os.environ.get("CASES") else None
    if cases is not None and not os.environ.get("SECONDS"):
        seconds = float("inf")
    effort = Effort(float(os.environ.get("PROCESSES") or Effort.processes))
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    try:
        report = fuzz(seed, seconds=seconds, cases=cases, effort=effort)
    finally:
        SHARED.end()
    spent = time.monotonic() - began
    line = {
        "date": time.strftime("%Y-%m-%d"), "seed": seed, "pipelines": report.cases,
        "runs": report.runs, "differences": report.failed, "seconds": round(spent),
    }  # fmt: skip
    print(json.dumps(line))
    if os.environ.get("LOG"):
        with LOG.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
