"""What the rows of a subfolder are, for people; and when they were last used.

`about.json` is written once, by whoever comes first. Afterwards it is only touched: its time of
change is the last time that somebody used the rows.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import uuid
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from silva.physical import plan as physical
from silva.plan.schema import columns
from silva.plan.show import show_plan
from silva.run.rowfiles import UNFINISHED

NAME = "about.json"


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


def write_about(folder: Path, about: About) -> None:
    """Makes the subfolder and says what is in it, unless that is done."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / NAME).exists():
        return
    aside = folder / f"{uuid.uuid4().hex}{UNFINISHED}"
    try:
        aside.write_bytes(msgspec.json.format(msgspec.json.encode(about), indent=2) + b"\n")
        try:
            os.link(aside, folder / NAME)
        except FileExistsError:
            return
        except OSError:  # a file system without links: the last one wins, with the same words
            os.replace(aside, folder / NAME)
    finally:
        aside.unlink(missing_ok=True)


def read_about(folder: Path) -> About | None:
    """None where nobody said, or where it cannot be read."""
    try:
        return msgspec.json.decode((folder / NAME).read_bytes(), type=About)
    except (OSError, msgspec.MsgspecError):
        return None


def touch(folder: Path) -> None:
    """The rows are in use."""
    with contextlib.suppress(OSError):  # not there yet, or read-only
        os.utime(folder / NAME)


def last_used(folder: Path) -> float:
    """Seconds since 1970."""
    for path in (folder / NAME, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0
