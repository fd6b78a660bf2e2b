"""One line for each physical node: what it does to the rows, in words."""

from __future__ import annotations

from typing import Any

from silva.insight.words import plural, size
from silva.io.addresses import scheme_of
from silva.io.source import may_hold
from silva.order.groups import PermuteGroups
from silva.order.positions import DrawRows, Map, Permute, PermuteWindows, Range
from silva.physical import plan as physical
from silva.plan import node as logical
from silva.plan.show import show_node


def node_line(node: Any) -> str:
    """The line of a node other than a segment.

    >>> node_line(physical.Take(None, 3))
    'take 3'
    """
    match node:
        case physical.IndexedFeed():
            return _indexed(node)
        case physical.ChunkedFeed():
            return _chunked(node)
        case physical.Windows():
            return _windows(node)
        case physical.Take():
            return f"take {node.count}"
        case physical.Skip():
            return f"skip {node.count}"
        case physical.CacheRows():
            return _cache(node.spec)
        case physical.Batch() | physical.Bucket() | physical.Pack() | physical.Mix():
            return show_node(node.spec)
        case physical.Zip():
            return f"zip {node.stop}"
        case _:
            return type(node).__name__.lower()


def _cache(spec: logical.Cache) -> str:
    limit = "" if spec.limit is None else f", at most {size(spec.limit)} of all pipelines"
    if spec.folder is None:
        return "cache in memory"
    where = f"in {spec.folder}" if scheme_of(spec.folder) else "on disk"
    return f"cache {where}{limit}"


def _indexed(feed: physical.IndexedFeed) -> str:
    order = ", ".join(_map(step) for step in feed.read.maps) or "in order"
    skipped = ""
    if feed.read.conditions:
        skipped = f", {feed.read.source.passed_over(feed.read.conditions)}"
    return f"feed {_counted(feed.read.source)}{order}{skipped}"


def _counted(source: Any) -> str:
    """The source and how many rows it has, said once."""
    known, length = source.describe(), source.length()
    rows = "rows not counted" if length is None else plural(length, "row")
    return f"{known}: " if rows in known or f"{length} rows" in known else f"{known}: {rows}, "


def _map(step: Map) -> str:
    match step:
        case Permute():
            return f"global shuffle (seed {step.seed})"
        case PermuteWindows():
            return f"shuffle within windows of {step.width:,} rows (seed {step.seed})"
        case PermuteGroups():
            return _groups(step)
        case DrawRows():
            return f"{plural(step.count, 'weighted draw')} (seed {step.seed})"
        case Range(start=0):
            return f"the first {plural(step.stop or 0, 'row')}"
        case Range():
            return f"without the first {plural(step.start, 'row')}"


def _groups(step: PermuteGroups) -> str:
    count = len(step.groups().starts) - 1
    mean = int(step.groups().starts[-1]) / max(count, 1)
    return (
        f"{plural(count, 'group')} of {mean:.1f} rows permuted (seed {step.seed}); rows of a group "
        f"follow each other, so n rows in a row mix about n / {mean:.1f} groups"
    )


def _chunked(feed: physical.ChunkedFeed) -> str:
    order = "in order" if feed.seed is None else f"chunks in permuted order (seed {feed.seed})"
    skipped = ""
    if feed.conditions:
        source = feed.read.source
        units = source.units()
        count = sum(not may_hold(source, unit, feed.conditions) for unit in range(units))
        skipped = f", {count} of {plural(units, 'chunk')} skipped by their statistics"
    return f"feed {_counted(feed.read.source)}read in chunks, {order}{skipped}"


def _windows(node: physical.Windows) -> str:
    if node.seed is None:
        return f"groups of {plural(node.width, 'row')}"
    below = node.input
    two_level = isinstance(below, physical.ChunkedFeed) and below.seed is not None
    kind = "two-level shuffle" if two_level else "window shuffle"
    return f"{kind}: rows within windows of {node.width:,} (seed {node.seed})"
