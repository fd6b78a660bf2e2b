"""`python -m benchmarks [names…] [--quick] [--rounds N] [--json FILE] [--merge]`."""

from __future__ import annotations

import argparse
import compileall
import json
import os
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.environments import make
from benchmarks.harness import run_workload
from benchmarks.page import page
from benchmarks.plot import draw
from benchmarks.report import as_json, merged
from benchmarks.table import show
from benchmarks.workloads import WORKLOADS

_RESULTS = Path(__file__).parent / "results"
_SOURCE = Path(__file__).parents[1] / "src"
_ROUNDS = 5
_WIDTH = 110
"""Columns of the output where it does not go to a terminal."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(WORKLOADS))
    parser.add_argument("--quick", action="store_true", help="small sizes, one round (or QUICK=1)")
    parser.add_argument("--rounds", type=int, help=f"how often all take their turn ({_ROUNDS})")
    parser.add_argument("--json", type=Path, help="where to write; picture and page go beside it")
    parser.add_argument("--merge", action="store_true", help="keep what the file has of others")
    parser.add_argument("--no-peers", action="store_true", help="only what runs beside silva")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in WORKLOADS]
    if unknown:
        parser.error(f"there is no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    if given.rounds is not None and given.rounds < 1:
        parser.error("--rounds is at least 1")
    quick = given.quick or os.environ.get("QUICK", "0") not in ("", "0")
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    chosen = [WORKLOADS[name] for name in given.names or WORKLOADS]
    if given.no_peers:
        chosen = [workload.only(lambda c: c.environment is None) for workload in chosen]
    if quick:
        chosen = [workload.only(lambda c: not c.long) for workload in chosen]
    for environment in sorted({c.environment for w in chosen for c in w.contestants} - {None}):
        make(environment, say=lambda text: console.print(f"[dim]{text}[/]", highlight=False))
    compileall.compile_dir(_SOURCE, quiet=2)  # as pip does for the peers when it installs them
    outcomes = []
    for workload in chosen:
        rounds = given.rounds or (1 if quick else workload.rounds or _ROUNDS)
        with console.status(workload.name) as status:
            outcomes.append(run_workload(workload, quick=quick, rounds=rounds, say=status.update))
        show(outcomes[-1], console, quick=quick)
    result = as_json(outcomes, quick=quick)
    target = given.json or _RESULTS / ("quick.json" if quick else "results.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    if given.merge and target.exists():
        result = merged(json.loads(target.read_text()), result)
    target.write_text(json.dumps(result, indent=1) + "\n")
    draw(result, target.with_suffix(".png"))
    target.with_suffix(".html").write_text(page(result))
    console.print(f"\nwritten: {target}, its .png and its .html", highlight=False)
    return 1 if any(outcome.errors for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
