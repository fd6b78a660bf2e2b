"""Physical nodes: feeds, segments and the sequential nodes between them. Data, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from silva.io.conditions import Condition
from silva.io.source import Chunked, Indexed
from silva.physical.stage.read import ReadPlaces, ReadUnits
from silva.physical.stage.stage import Runs, Stage
from silva.plan import node as logical


@dataclass(frozen=True, eq=False)
class PhysicalNode:
    """What all physical nodes share: their inputs, and how a copy with other inputs is made."""

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        return ()

    def with_inputs(self, inputs: tuple[PhysicalNode, ...]) -> Self:
        assert not inputs
        return self


@dataclass(frozen=True, eq=False)
class OneInput(PhysicalNode):
    """A node with one input."""

    input: PhysicalNode

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[PhysicalNode, ...]) -> Self:
        (one,) = inputs
        return replace(self, input=one)


@dataclass(frozen=True, eq=False)
class ManyInputs(PhysicalNode):
    """A node with several inputs."""

    many: tuple[PhysicalNode, ...]

    @property
    def inputs(self) -> tuple[PhysicalNode, ...]:
        return self.many

    def with_inputs(self, inputs: tuple[PhysicalNode, ...]) -> Self:
        return replace(self, many=inputs)


@dataclass(frozen=True, eq=False)
class IndexedFeed(PhysicalNode):
    """Places in the order of an indexed source; the segment above reads them."""

    read: ReadPlaces
    size: int


@dataclass(frozen=True, eq=False)
class ChunkedFeed(PhysicalNode):
    """Units of a chunked source: read by the segment above if the number of their rows is known,
    and prefetched by threads otherwise."""

    read: ReadUnits
    seed: int | None
    """The seed that permutes the units; None for their own order."""
    conditions: tuple[Condition, ...] = ()
    """Conditions of the stage above; units without a row that can meet them are not read."""


@dataclass(frozen=True, eq=False)
class Segment(OneInput):
    """Blocks mapped through a stage: inline, on threads or in processes."""

    stage: Stage
    name: str
    whole: bool = False
    """Whether the blocks of the input are fixed chunks, which the stage gets uncut."""


@dataclass(frozen=True, eq=False)
class Windows(OneInput):
    """Rows regrouped into windows of `width`; shuffled within each where there is a seed."""

    width: int
    seed: int | None


@dataclass(frozen=True, eq=False)
class Take(OneInput):
    """The first rows of its input."""

    count: int


@dataclass(frozen=True, eq=False)
class SkipRows(OneInput):
    """Its input without the first rows."""

    count: int


@dataclass(frozen=True, eq=False)
class Concat(ManyInputs):
    """The rows of its inputs, one after the other."""


@dataclass(frozen=True, eq=False)
class Zip(ManyInputs):
    """Rows of several inputs side by side."""

    stop: str


@dataclass(frozen=True, eq=False)
class Mix(ManyInputs):
    """Rows of several inputs in given proportions."""

    spec: logical.Mix


@dataclass(frozen=True, eq=False)
class Pack(OneInput):
    """Rows packed into lines of one length."""

    spec: logical.Pack


@dataclass(frozen=True, eq=False)
class CacheRows(OneInput):
    """Rows that are stored by identity; `input` runs only for rows that are not stored yet."""

    input: Segment
    spec: logical.Cache
    fingerprint: str


@dataclass(frozen=True, eq=False)
class Batch(OneInput):
    """Rows cut into batches."""

    spec: logical.Batch


@dataclass(frozen=True, eq=False)
class Bucket(OneInput):
    """Rows of about one length cut into batches."""

    spec: logical.Bucket


@dataclass(frozen=True, eq=False)
class BatchSegment(OneInput):
    """Batches mapped through a stage of batch steps."""

    stage: Runs
    name: str
    filters: bool = False


def sources(plan: PhysicalNode) -> list[Indexed | Chunked]:
    """The sources that the feeds of a plan read."""
    if isinstance(plan, IndexedFeed | ChunkedFeed):
        return [plan.read.source]
    return [source for child in plan.inputs for source in sources(child)]


def count_segments(plan: PhysicalNode) -> int:
    own = isinstance(plan, Segment | BatchSegment)
    return own + sum(count_segments(child) for child in plan.inputs)


def has_cache(plan: PhysicalNode) -> bool:
    """Whether rows of a plan are stored."""
    return isinstance(plan, CacheRows) or any(map(has_cache, plan.inputs))


def report_reads(plan: PhysicalNode, epoch: int, derived: tuple[str, ...] = ()) -> None:
    """Reports which columns a plan reads of a source, and derives from those, to sources that
    record it."""
    steps = plan.stage.steps if isinstance(plan, Segment) else ()
    derived += tuple(name for step in steps for name in step.writes)
    if isinstance(plan, IndexedFeed | ChunkedFeed):
        if (note := getattr(plan.read.source, "note_read", None)) is not None:
            note(tuple(dict.fromkeys((*plan.read.columns, *derived))), epoch)
        return
    for child in plan.inputs:
        report_reads(child, epoch, derived)
