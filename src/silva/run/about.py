"""What the rows of a subfolder are, for people: `about.json`, written once, by whoever is first."""

from __future__ import annotations

import importlib.metadata
from datetime import UTC, datetime

import msgspec

from silva.physical import plan as physical
from silva.plan.schema import columns
from silva.plan.show import show_plan
from silva.run.shelf import Data


class About(msgspec.Struct, frozen=True):
    steps: list[str]
    """As `explain` shows them, in the order in which they run; functions by name, file and line."""
    source: str
    columns: list[str]
    silva: str
    """The version that wrote the first rows."""
    created: str
    """When, as ISO 8601 says it."""


def about_rows(node: physical.CacheRows, source: str) -> About:
    """What a cache's rows are, made now."""
    plan = node.spec.input
    _, *steps = reversed(show_plan(plan).split("\n"))  # without the source, which comes last
    now = datetime.now(UTC).isoformat(timespec="seconds")
    version = importlib.metadata.version("silva")
    return About(steps, source, list(columns(plan)), version, now)


def encode_about(about: About) -> bytes:
    return msgspec.json.format(msgspec.json.encode(about), indent=2) + b"\n"


def decode_about(data: Data) -> About | None:
    """None where it cannot be read."""
    try:
        return msgspec.json.decode(data, type=About)
    except msgspec.MsgspecError:
        return None
