"""Physical nodes: feeds, segments and the sequential nodes between them. Data, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from silva.physical.places import ReadPlaces
from silva.physical.stage import Runs, Stage
from silva.physical.units import ReadUnits
from silva.plan import node as logical
from silva.plan.conditions import Condition


@dataclass(frozen=True, eq=False)
class IndexedFeed:
    """Places in the order over an indexed source; the segment above reads them."""

    read: ReadPlaces
    size: int


@dataclass(frozen=True, eq=False)
class ChunkedFeed:
    """Units of a chunked source: the segment above reads them where it can tell their rows, and
    threads beside the consumer otherwise."""

    read: ReadUnits
    seed: int | None
    """Units come in an order permuted by this seed; None for the order they have."""
    conditions: tuple[Condition, ...] = ()
    """What the stage above asks of every row: units that cannot meet it are not read."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Blocks mapped through a stage: inline, on threads or in processes."""

    input: Any
    stage: Stage
    name: str
    whole: bool = False
    """Blocks of the input are fixed chunks and go through the stage uncut."""
    may_cut: bool = False
    """The stage may be run as two, one after the other (`physical.cut`)."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Rows regrouped into windows of `width`; shuffled within each where there is a seed."""

    input: Any
    width: int
    seed: int | None


@dataclass(frozen=True, eq=False)
class Take:
    input: Any
    count: int


@dataclass(frozen=True, eq=False)
class Skip:
    input: Any
    count: int


@dataclass(frozen=True, eq=False)
class Concat:
    many: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Zip:
    many: tuple[Any, ...]
    stop: str


@dataclass(frozen=True, eq=False)
class Mix:
    many: tuple[Any, ...]
    spec: logical.Mix


@dataclass(frozen=True, eq=False)
class Pack:
    input: Any
    spec: logical.Pack


@dataclass(frozen=True, eq=False)
class CacheRows:
    """Rows kept by identity; `input` runs only for rows that are not there yet."""

    input: Segment
    spec: logical.Cache
    fingerprint: str


@dataclass(frozen=True, eq=False)
class Batch:
    input: Any
    spec: logical.Batch


@dataclass(frozen=True, eq=False)
class Bucket:
    input: Any
    spec: logical.Bucket


@dataclass(frozen=True, eq=False)
class BatchSegment:
    """Batches mapped through a stage of batch steps."""

    input: Any
    stage: Runs
    name: str
    filters: bool = False


PhysicalNode = (
    IndexedFeed | ChunkedFeed | Segment | Windows | Take | Skip | Concat | Zip | Mix | Pack
    | CacheRows | Batch | Bucket | BatchSegment
)  # fmt: skip


def inputs(node: Any) -> tuple[Any, ...]:
    """The physical nodes that a node reads."""
    if isinstance(node, Concat | Zip | Mix):
        return node.many
    return () if isinstance(node, IndexedFeed | ChunkedFeed) else (node.input,)


def sources(plan: Any) -> list[Any]:
    """What is read by the feeds of a plan."""
    if isinstance(plan, IndexedFeed | ChunkedFeed):
        return [plan.read.source]
    return [source for child in inputs(plan) for source in sources(child)]


def count_segments(plan: Any) -> int:
    own = isinstance(plan, Segment | BatchSegment)
    return own + sum(count_segments(child) for child in inputs(plan))
