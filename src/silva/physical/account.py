"""Which columns a plan reads of sources that keep account of it."""

from __future__ import annotations

from typing import Any

from silva.physical import plan as physical


def tell_sources(plan: Any, epoch: int, derived: tuple[str, ...] = ()) -> None:
    """Tells sources that keep account of it which columns are read of them, and made of those."""
    steps = plan.stage.steps if isinstance(plan, physical.Segment) else ()
    derived += tuple(name for step in steps for name in getattr(step, "into", ()))
    if isinstance(plan, physical.IndexedFeed | physical.ChunkedFeed):
        if (note := getattr(plan.read.source, "note_read", None)) is not None:
            note(tuple(dict.fromkeys((*plan.read.columns, *derived))), epoch)
        return
    for child in physical.inputs(plan):
        tell_sources(child, epoch, derived)
