"""Writes `plans.jsonl`: which rules act on each golden pipeline, and which nodes and steps result.

PYTHONPATH=src python tests/golden/write_plans.py

Only a change that is meant to change plans writes it again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from golden_pipelines import PIPELINES

import silva as sv

FILE = Path(__file__).with_name("plans.jsonl")


def structure(pipeline: sv.Pipeline) -> dict[str, Any]:
    with pipeline.loader(backend="inline") as loader:
        rules = [found.rule.name for found in loader.outcomes if found.applied]
        return {"rules": rules, "nodes": _nodes(loader._lowered())}


def _nodes(node: Any) -> list[Any]:
    """The node, its steps and its inputs."""
    steps = [_step(step) for step in getattr(getattr(node, "stage", None), "steps", ())]
    return [type(node).__name__, *steps, *map(_nodes, node.inputs)]


def _step(step: Any) -> str:
    into = getattr(step, "into", None) or getattr(step, "names", ())
    return f"{type(step).__name__} {' '.join(map(str, into))}".strip()


def main() -> None:
    found = [{"name": name, **structure(build())} for name, build in PIPELINES.items()]
    FILE.write_text("".join(json.dumps(line) + "\n" for line in found))


if __name__ == "__main__":
    main()
