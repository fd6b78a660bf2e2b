"""Claims, measured and written down: what was wanted, what was found.

A claim is a function of the sizes to use; it yields a finding for each line of the table.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, TypeVar

from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe_machine

_RESULTS = Path(__file__).parent / "results"
_SOURCE = Path(__file__).parents[1] / "src"
_WIDTH = 130

Sizes = TypeVar("Sizes")


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    claim: str
    wanted: str
    measured: str
    value: float
    reached: bool


@dataclass(frozen=True)
class Claims(Generic[Sizes]):
    """What a command measures."""

    name: str
    """Of the command `python -m benchmarks.NAME`, and of the file of its results."""
    title: str
    all: dict[str, Callable[[Sizes], Iterator[Finding]]]
    full: Sizes
    quick: Sizes
    short: Sequence[str]
    """The claims of a quick run."""

    def main(self) -> int:
        """`python -m benchmarks.NAME [claims…] [--quick] [--json FILE]`."""
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{self.name}")
        parser.add_argument("names", nargs="*", metavar="claim", help=", ".join(self.all))
        parser.add_argument(
            "--quick", action="store_true", help="small sizes, few rounds (or QUICK=1)"
        )
        parser.add_argument("--json", type=Path, help="where to write")
        given = parser.parse_args()
        unknown = [name for name in given.names if name not in self.all]
        if unknown:
            parser.error(f"there is no claim {unknown[0]!r}; there are {', '.join(self.all)}")
        quick = given.quick or os.environ.get("QUICK", "0") not in ("", "0")
        console = Console(width=None if sys.stdout.isatty() else _WIDTH)
        compileall.compile_dir(_SOURCE, quiet=2)
        target = given.json or _RESULTS / f"{self.name}{'-quick' if quick else ''}.json"
        findings: list[Finding] = []
        for name in given.names or (self.short if quick else self.all):
            with console.status(name):
                for finding in self.all[name](self.quick if quick else self.full):
                    findings.append(finding)
                    _write(target, findings, keep=True)  # a run that is stopped loses nothing
                    console.print(f"{_mark(finding)} {finding.claim}: {finding.measured}")
        console.print(self._table(findings))
        _write(target, findings, keep=bool(given.names))
        console.print(f"written: {target}", highlight=False)
        return 0

    def _table(self, findings: list[Finding]) -> Table:
        table = Table("", "claim", "wanted", "measured (95 % interval)", title=self.title)
        for finding in findings:
            table.add_row(_mark(finding), finding.claim, finding.wanted, finding.measured)
        return table


def _mark(finding: Finding) -> str:
    return "✓" if finding.reached else "✗"


def _write(target: Path, findings: list[Finding], keep: bool) -> None:
    """Writes the findings; with `keep`, those that were not measured now stay as they were."""
    target.parent.mkdir(parents=True, exist_ok=True)
    made = {finding.claim: asdict(finding) for finding in findings}
    if keep and target.exists():
        before = json.loads(target.read_text())["findings"]
        made = {old["claim"]: made.pop(old["claim"], old) for old in before} | made
    result = {"machine": describe_machine(), "findings": list(made.values())}
    target.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
