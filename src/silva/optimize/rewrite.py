"""What a rule gives back."""

from __future__ import annotations

from dataclasses import dataclass

from silva.plan.node import Node


@dataclass(frozen=True)
class Rewrite:
    plan: Node
    notes: tuple[str, ...] = ()
    """What was changed, a line each, as `explain` shows it."""
