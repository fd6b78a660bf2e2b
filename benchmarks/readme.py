"""Writes the table of ratios in the README from the last results: `python -m benchmarks.readme`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "results.json"
_PLACE = re.compile(r"<!-- bench -->.*?<!-- /bench -->", re.DOTALL)


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


def main() -> None:
    results = json.loads(RESULTS.read_text())
    readme = ROOT / "README.md"
    text = readme.read_text()
    block = f"<!-- bench -->\n\n{table(results)}\n\n<!-- /bench -->"
    readme.write_text(_PLACE.sub(lambda _: block, text))


if __name__ == "__main__":
    main()
