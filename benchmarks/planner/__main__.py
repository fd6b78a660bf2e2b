"""`python -m benchmarks.planner [claims…] [--quick] [--json FILE]`."""

from __future__ import annotations

import argparse
import compileall
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe_machine
from benchmarks.planner.claims import CLAIMS, FULL, QUICK, SHORT, Finding

_RESULTS = Path(__file__).parents[1] / "results"
_SOURCE = Path(__file__).parents[2] / "src"
_WIDTH = 130


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner")
    parser.add_argument("names", nargs="*", metavar="claim", help=", ".join(CLAIMS))
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds (or QUICK=1)")
    parser.add_argument("--json", type=Path, help="where to write")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in CLAIMS]
    if unknown:
        parser.error(f"there is no claim {unknown[0]!r}; there are {', '.join(CLAIMS)}")
    quick = given.quick or os.environ.get("QUICK", "0") not in ("", "0")
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    compileall.compile_dir(_SOURCE, quiet=2)
    findings: list[Finding] = []
    for name in given.names or (SHORT if quick else CLAIMS):
        with console.status(name):
            for finding in CLAIMS[name](QUICK if quick else FULL):
                findings.append(finding)
                console.print(f"{_mark(finding)} {finding.claim}: {finding.measured}")
    console.print(_table(findings))
    target = given.json or _RESULTS / ("planner-quick.json" if quick else "planner.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    made = {finding.claim: asdict(finding) for finding in findings}
    if given.names and target.exists():  # the others stay as they were
        before = json.loads(target.read_text())["findings"]
        made = {old["claim"]: made.pop(old["claim"], old) for old in before} | made
    result = {"machine": describe_machine(), "findings": list(made.values())}
    target.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    console.print(f"written: {target}", highlight=False)
    return 0


def _mark(finding: Finding) -> str:
    return "✓" if finding.reached else "✗"


def _table(findings: list[Finding]) -> Table:
    table = Table("", "claim", "wanted", "measured (95 % interval)", title="The planner's claims")
    for finding in findings:
        table.add_row(_mark(finding), finding.claim, finding.wanted, finding.measured)
    return table


if __name__ == "__main__":
    sys.exit(main())
