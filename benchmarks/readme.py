"""Writes the figures that pages show, from the last results: `python -m benchmarks.readme`.

The README's chart, and the tables in docs/benchmarks.md, docs/planning.md and docs/dedup.md.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.chart import draw

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "results.json"
CHART = ROOT / "docs" / "images" / "benchmarks.svg"
CLAIMS = {"planner": "planning.md", "serving": "benchmarks.md", "store": "dedup.md"}
"""The page that shows the findings of each command, between marks with the command's name."""


def table(results: dict[str, Any]) -> str:
    """One row per target: what is compared, what is wanted and what is measured."""
    lines = ["| workload | compared | wanted | measured |", "| --- | --- | --- | --- |"]
    for workload in results["workloads"]:
        title = workload["title"]
        for target in workload["targets"]:
            mark = "" if target["reached"] else " (not reached)"
            lines.append(
                f"| {title} | {target['target']} | {target['wanted']} | {target['shown']}{mark} |"
            )
            title = ""
    return "\n".join(lines)


def claims(results: dict[str, Any]) -> str:
    """One row per claim: what is wanted and what is measured."""
    lines = ["| claim | wanted | measured (95 % interval) |", "| --- | --- | --- |"]
    for found in results["findings"]:
        mark = "" if found["reached"] else " (not reached)"
        measured = found["measured"].replace("|", "/")
        lines.append(f"| {found['claim']} | {found['wanted']} | {measured}{mark} |")
    return "\n".join(lines)


def fill(page: Path, name: str, text: str) -> None:
    """Replaces what stands between the marks of that name."""
    between = re.compile(f"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
    block = f"<!-- {name} -->\n\n{text}\n\n<!-- /{name} -->"
    page.write_text(between.sub(lambda _: block, page.read_text()))


def main() -> None:
    results = json.loads(RESULTS.read_text())
    CHART.write_text(draw(results))
    fill(ROOT / "docs" / "benchmarks.md", "bench", table(results))
    for name, page in CLAIMS.items():
        found = RESULTS.with_name(f"{name}.json")
        if found.exists():
            fill(ROOT / "docs" / page, name, claims(json.loads(found.read_text())))


if __name__ == "__main__":
    main()
