"""Writes the tables in the README, docs/planning.md and docs/dedup.md from the last results:
`python -m benchmarks.readme`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "results.json"
CLAIMS = {"planner": "planning.md", "store": "dedup.md"}
"""Where the findings of a command are shown, between marks of its name."""


def table(results: dict[str, Any]) -> str:
    """One row a target: what is compared, what was wanted and what came out."""
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
    """One row a claim."""
    lines = ["| claim | wanted | measured (95 % interval) |", "| --- | --- | --- |"]
    for found in results["findings"]:
        mark = "" if found["reached"] else " (not reached)"
        measured = found["measured"].replace("|", "/")
        lines.append(f"| {found['claim']} | {found['wanted']} | {measured}{mark} |")
    return "\n".join(lines)


def fill(page: Path, name: str, text: str) -> None:
    """Puts text between the marks of that name."""
    place = re.compile(f"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
    block = f"<!-- {name} -->\n\n{text}\n\n<!-- /{name} -->"
    page.write_text(place.sub(lambda _: block, page.read_text()))


def main() -> None:
    fill(ROOT / "README.md", "bench", table(json.loads(RESULTS.read_text())))
    for name, page in CLAIMS.items():
        found = RESULTS.with_name(f"{name}.json")
        if found.exists():
            fill(ROOT / "docs" / page, name, claims(json.loads(found.read_text())))


if __name__ == "__main__":
    main()
