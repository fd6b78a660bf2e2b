"""Plans as plain data, for JSON and for pages."""

from __future__ import annotations

from typing import Any

from silva.insight.nodes import node_line
from silva.insight.steps import stage_steps
from silva.insight.words import tidy
from silva.physical import plan as physical
from silva.plan.node import Node
from silva.plan.show import show_node

Tree = dict[str, Any]


def written_tree(node: Node) -> Tree:
    """The plan as written: verb, text and inputs of each node.

    >>> import silva as sv
    >>> written_tree(sv.from_columns({"x": range(3)}).take(2).plan)["text"]
    'take 2'
    """
    return {
        "verb": node.verb,
        "text": tidy(show_node(node)),
        "inputs": [written_tree(child) for child in node.inputs],
    }


def run_tree(node: Any) -> Tree:
    """The plan as run; a stage has a name and steps."""
    below = [run_tree(child) for child in physical.inputs(node)]
    if isinstance(node, physical.Segment | physical.BatchSegment):
        steps = [step.label for step in stage_steps(node.stage, None)]
        return {"text": node.name, "stage": node.name, "steps": steps, "inputs": below}
    return {"text": tidy(node_line(node)), "stage": None, "steps": [], "inputs": below}
