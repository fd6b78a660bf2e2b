"""From the logical plan to the physical one: a table from node type to function.

Row steps are gathered into one stage as long as rows stay in place. Over an indexed source, take,
skip and shuffle are not work but a map on positions (`order.positions`), so they go into the feed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.io.source import can_be_anywhere
from silva.order.groups import PermuteGroups
from silva.order.positions import DrawRows, Map, Permute, PermuteWindows, Range, order_size
from silva.physical import plan as physical
from silva.physical.batches import BatchStage, CollateStage
from silva.physical.places import ReadPlaces
from silva.physical.right_sides import RightSides
from silva.physical.stage import Stage
from silva.physical.steps import (
    Call,
    CallColumns,
    Evaluate,
    Keep,
    MapWhole,
    Project,
    Spread,
    Step,
)
from silva.physical.units import ReadUnits
from silva.plan import expr
from silva.plan import node as logical
from silva.plan.conditions import Condition, conditions
from silva.plan.fingerprint import fingerprint
from silva.plan.function import Function
from silva.plan.right_side import narrowed
from silva.plan.schema import columns
from silva.plan.traits import step_is_random, step_reads
from silva.plan.verify import is_batched

WeightsOf = Callable[[logical.Node, str], np.ndarray]
"""Reads a whole column of a plan, one value a row: weights cannot be known otherwise."""


@dataclass
class _Chain:
    """A stage in the making: its input, and the steps so far."""

    input: Any
    steps: list[Step] = field(default_factory=list)

    @property
    def in_place(self) -> bool:
        """Rows are still one to one with the input's."""
        return not any(isinstance(s, Keep | Spread | MapWhole) for s in self.steps)

    @property
    def at_most_one(self) -> bool:
        return not any(isinstance(s, Spread | MapWhole) for s in self.steps) and not any(
            isinstance(s, Call | CallColumns) and s.function.marks.impure for s in self.steps
        )


class Lowering:
    """Lowers one plan; holds the numbering of its sources and stages."""

    def __init__(
        self,
        weights_of: WeightsOf,
        rights: RightSides,
        *,
        frugal: bool = True,
        variant: str = "",
        may_cut: bool = False,
    ) -> None:
        """`frugal`: what filters drop is not read where that can be told or put off. `variant` is
        part of the keys of caches: rows that are only close to what was written are kept apart.
        `may_cut`: stages may run as two, one after the other."""
        self._may_cut = may_cut
        self._weights_of = weights_of
        self._rights = rights
        self._variant = variant
        self._frugal = frugal
        self._sources = 0
        self._segments = 0

    def lower(self, node: logical.Node, needed: frozenset[str] | None = None) -> Any:
        """The physical plan of `node`, with only `needed` columns (None: all of them)."""
        wanted = frozenset(columns(node)) if needed is None else needed
        if is_batched(node):
            return self._batched(node, wanted)
        return self._close(self._rows(node, wanted), columns(node), wanted)

    # Rows.

    def _rows(self, node: logical.Node, wanted: frozenset[str]) -> _Chain:
        match node:
            case logical.Source():
                return self._source(node, wanted)
            case logical.Options():
                return self._rows(node.input, wanted)
            case logical.Derive():
                return self._derive(node, wanted)
            case logical.Filter():
                chain = self._rows(node.input, wanted | set(step_reads(node.step)))
                return self._with(chain, Keep(self._bound(node.step), node.id), node.step)
            case logical.Select():
                chain = self._rows(node.input, wanted)
                return chain
            case logical.Rename():
                return self._rename(node, wanted)
            case logical.Explode():
                chain = self._rows(node.input, wanted | {node.column})
                chain.steps.append(Spread(node.column))
                return chain
            case logical.MapRows():
                everything = frozenset(columns(node.input))
                chain = self._rows(node.input, everything)
                names = tuple((n, n) for n in columns(node.input))
                chain.steps += [Project(names), MapWhole(node.step, node.into, node.id)]
                return chain
            case logical.Shuffle():
                return self._shuffle(node, wanted)
            case logical.Sample():
                return self._sample(node, wanted)
            case logical.Take() | logical.Skip():
                return self._take(node, wanted)
            case logical.Cache():
                return self._cache(node)
            case logical.Pack():
                below = self.lower(node.input, frozenset(node.columns))
                return _Chain(physical.Pack(below, node))
            case logical.Concat():
                return _Chain(physical.Concat(self._many(node.many, wanted)))
            case logical.Mix():
                return _Chain(physical.Mix(self._many(node.many, wanted), node))
            case logical.Zip():
                return self._zip(node, wanted)
        raise PlanError(f"{node.verb} cannot be run")

    def _many(self, nodes: tuple[logical.Node, ...], wanted: frozenset[str]) -> tuple[Any, ...]:
        names = tuple(n for n in columns(nodes[0]) if n in wanted)
        return tuple(self._close(self._rows(n, wanted), names, wanted) for n in nodes)

    def _source(self, node: logical.Source, wanted: frozenset[str]) -> _Chain:
        names = tuple(n for n in columns(node) if n in wanted)
        tag = self._sources
        self._sources += 1
        if tag > 255:
            raise PlanError("a pipeline can have at most 256 sources")
        if node.source.access == "indexed":
            read = ReadPlaces(node.source, names, (), tag, identity_by_place=False)
            return _Chain(physical.IndexedFeed(read, node.source.length()))
        return _Chain(physical.ChunkedFeed(ReadUnits(node.source, names, tag), None))

    def _derive(self, node: logical.Derive, wanted: frozenset[str]) -> _Chain:
        below = (wanted - set(node.into)) | set(step_reads(node.step))
        chain = self._rows(node.input, below)
        if isinstance(node.step, Function):
            kind = CallColumns if node.step.marks.batched else Call
            return self._with(chain, kind(node.step, node.into, node.id), node.step)
        step, into = node.step, node.into
        if isinstance(step, expr.Call) and step.op == "join.take":
            step, into = narrowed(step, into, wanted)
        chain.steps.append(Evaluate(self._rights.bound(step), into, node.id))
        return chain

    def _bound(self, step: logical.Step) -> logical.Step:
        return step if isinstance(step, Function) else self._rights.bound(step)

    def _with(self, chain: _Chain, step: Step, function: Any) -> _Chain:
        """The chain with a step more; a function of fixed chunks starts a stage of its own."""
        size = function.marks.batch_size if isinstance(function, Function) else None
        if size is None:
            chain.steps.append(step)
            return chain
        below = physical.Windows(self._segment(chain), size, None)
        return _Chain(replace(self._segment(_Chain(below, [step])), whole=True, may_cut=False))

    def _rename(self, node: logical.Rename, wanted: frozenset[str]) -> _Chain:
        new = dict(node.names)
        old = {n: o for o, n in node.names}
        below = frozenset(old.get(n, n) for n in wanted)
        chain = self._rows(node.input, below)
        kept = [n for n in columns(node.input) if n in below]
        chain.steps.append(Project(tuple((n, new.get(n, n)) for n in kept)))
        return chain

    def _zip(self, node: logical.Zip, wanted: frozenset[str]) -> _Chain:
        many = []
        for child in node.many:
            names = tuple(n for n in columns(child) if n in wanted)
            many.append(self._close(self._rows(child, frozenset(names)), names, frozenset(names)))
        return _Chain(physical.Zip(tuple(many), node.stop))

    # Order.

    def _shuffle(self, node: logical.Shuffle, wanted: frozenset[str]) -> _Chain:
        chain = self._rows(node.input, wanted)
        feed = _feed(chain.input)
        movable = chain.at_most_one and _cached(chain.input).at_most_one
        chunked = isinstance(feed, physical.ChunkedFeed)
        if node.kind == "two-level" and not (movable and chunked):
            raise PlanError("shuffle(kind='two-level') needs a chunked source (Parquet, tar, text)")
        if movable and isinstance(feed, physical.IndexedFeed):
            if node.by is not None:
                return self._shuffle_groups(node, chain)
            if node.kind == "window":
                return self._reorder(chain, PermuteWindows(node.seed, node.window))
            return self._reorder(chain, Permute(node.seed))
        if node.kind == "global" or node.by is not None:
            raise PlanError(
                "shuffle(kind='global') needs an indexed source (files, arrays, tables) with only "
                "steps of one row to one row between; here rows can be shuffled in windows"
            )
        if movable and chunked and feed.seed is None:
            units = node.seed if node.kind in (None, "two-level") else None
            windows = physical.Windows(replace(feed, seed=units), node.window, node.seed)
            chain.input = _over(chain.input, windows)
            return chain
        return _Chain(physical.Windows(self._segment(chain), node.window, node.seed))

    def _shuffle_groups(self, node: logical.Shuffle, chain: _Chain) -> _Chain:
        read = _feed(chain.input).read
        if not hasattr(read.source, "groups") or read.maps:
            raise PlanError(
                f"shuffle(by={node.by!r}) keeps groups of a table together: it needs "
                "sv.read_table(…), and comes before take, skip and other shuffles"
            )
        if node.by not in ("group", read.source.group):
            raise PlanError(
                f"shuffle(by={node.by!r}): the rows of {read.source.describe()} are grouped by "
                f"{read.source.group!r}"
            )
        return self._reorder(chain, PermuteGroups(read.source, node.seed, node.most))

    def _reorder(self, chain: _Chain, step: Map, by_place: bool = False) -> _Chain:
        feed = _feed(chain.input)
        maps = (*feed.read.maps, step)
        read = replace(
            feed.read, maps=maps, identity_by_place=feed.read.identity_by_place or by_place
        )
        size = order_size(maps, feed.read.source.length())
        return _Chain(_over(chain.input, physical.IndexedFeed(read, size)), chain.steps)

    def _take(self, node: logical.Take | logical.Skip, wanted: frozenset[str]) -> _Chain:
        chain = self._rows(node.input, wanted)
        takes = isinstance(node, logical.Take)
        feed = _feed(chain.input)
        if _in_place(chain) and isinstance(feed, physical.IndexedFeed):
            step = Range(0, node.count) if takes else Range(node.count, None)
            return self._reorder(chain, step)
        kind = physical.Take if takes else physical.Skip
        if chain.in_place and chain.at_most_one and _is_order(chain.input):
            chain.input = kind(chain.input, node.count)  # rows that are left out cost no work
            return chain
        return _Chain(kind(self._segment(chain), node.count))

    def _sample(self, node: logical.Sample, wanted: frozenset[str]) -> _Chain:
        chain = self._rows(node.input, wanted)
        feed = _feed(chain.input)
        if not (_in_place(chain) and isinstance(feed, physical.IndexedFeed)):
            raise PlanError(
                "sample needs an indexed source (files, arrays, tables) with only steps of one row "
                "to one row before it: filter after it, or write the filtered rows to a table"
            )
        weights = self._weights(node, feed.size)
        count = feed.size if node.size is None else node.size
        step = DrawRows(np.cumsum(weights), count, node.seed)
        return self._reorder(chain, step, by_place=True)

    def _weights(self, node: logical.Sample, size: int) -> np.ndarray:
        if node.balance is not None:
            values = self._weights_of(node.input, node.balance)
            _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
            weights = 1.0 / counts[inverse]
        elif isinstance(node.weights, str):
            weights = np.asarray(self._weights_of(node.input, node.weights), dtype=np.float64)
        else:
            weights = np.asarray(node.weights.values, dtype=np.float64)
        if len(weights) != size:
            raise PlanError(f"sample: {len(weights)} weights for {size} rows")
        if size and (not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum()):
            raise PlanError("sample: weights are finite, not negative and not all zero")
        return weights

    # Stages.

    def _cache(self, node: logical.Cache) -> _Chain:
        for below in logical.walk(node.input):
            step = getattr(below, "step", None)
            if step is not None and step_is_random(step):
                raise PlanError(
                    f"cache comes after the random step `{below.id}`: it would freeze what should "  # type: ignore[attr-defined]
                    "differ in every epoch; put cache before it"
                )
        names = columns(node.input)
        chain = self._rows(node.input, frozenset(names))
        feed = chain.input.input if isinstance(chain.input, physical.Windows) else chain.input
        if not isinstance(feed, physical.IndexedFeed | physical.ChunkedFeed):
            raise PlanError(
                "cache keeps rows by the source row they come from, so it must stand in a pipeline "
                "of one source, before mix, zip, concat, take after a filter, or pack"
            )
        chain.steps.append(Project(tuple((n, n) for n in names)))
        segment = self._segment(chain, skips=False)  # a cache wants an answer for every row
        key = (node.key or fingerprint(node.input)) + self._variant
        return _Chain(physical.CacheRows(segment, node, key))

    def _close(self, chain: _Chain, names: tuple[str, ...], wanted: frozenset[str]) -> Any:
        kept = tuple(n for n in names if n in wanted)
        if not chain.steps and _gives(chain.input) == kept:
            return chain.input
        chain.steps.append(Project(tuple((n, n) for n in kept)))
        return self._segment(chain)

    def _segment(self, chain: _Chain, *, skips: bool = True) -> Any:
        if not chain.steps and not isinstance(chain.input, physical.IndexedFeed):
            return chain.input
        self._segments += 1
        steps = _forget(chain.steps)
        below = chain.input
        if skips and self._frugal:
            below = _sparing(below, steps)
        stage = Stage(steps, _read_by_worker(below), lazy=self._frugal)
        return physical.Segment(below, stage, f"stage {self._segments}", may_cut=self._may_cut)

    # Batches.

    def _batched(self, node: logical.Node, wanted: frozenset[str]) -> Any:
        after: list[logical.Node] = []
        while not isinstance(node, logical.Batch | logical.Bucket):
            if not isinstance(node, logical.Options):
                after.append(node)
            node = node.inputs[0]
        after.reverse()
        takes = [n for n in after if isinstance(n, logical.Take)]
        steps = tuple(n for n in after if not isinstance(n, logical.Take))
        below = self._batch(node, None if steps else wanted)
        if steps:
            self._segments += 1
            name = f"stage {self._segments}"
            filters = any(isinstance(n, logical.Filter) for n in steps)
            below = physical.BatchSegment(below, BatchStage(steps), name, filters)
        if takes:
            if any(isinstance(n, logical.Filter) for n in steps):
                raise PlanError("take after a filter of batches is not defined: take rows instead")
            below = physical.Take(below, min(n.count for n in takes))
        return below

    def _batch(self, node: logical.Node, wanted: frozenset[str] | None) -> Any:
        assert isinstance(node, logical.Batch | logical.Bucket)
        need = frozenset(columns(node.input)) if wanted is None else wanted
        if isinstance(node, logical.Bucket):
            return physical.Bucket(self.lower(node.input, need | {node.by}), node)
        if node.by is not None:
            need = need | {node.by}
        batch = physical.Batch(self.lower(node.input, need), node)
        if node.collate is None:
            return batch
        self._segments += 1
        return physical.BatchSegment(batch, CollateStage(node.collate), f"stage {self._segments}")


# A cache keeps rows by identity, so it does not care in which order they come: shuffle, take, skip
# and sample above a cache change the feed below it, as if the cache were not there.


def _feed(node: Any) -> Any:
    """What a chain reads, looking through a cache."""
    return node.input.input if isinstance(node, physical.CacheRows) else node


def _cached(node: Any) -> _Chain:
    """The steps below the cache that a chain reads; none where it reads no cache."""
    steps = list(node.input.stage.steps) if isinstance(node, physical.CacheRows) else []
    return _Chain(_feed(node), steps)


def _is_order(node: Any) -> bool:
    """Whether rows come here as the source has them: in some order, and some left out."""
    if isinstance(node, physical.Windows | physical.Take | physical.Skip):
        return _is_order(node.input)
    return isinstance(node, physical.ChunkedFeed)


def _in_place(chain: _Chain) -> bool:
    return chain.in_place and _cached(chain.input).in_place


def _over(node: Any, feed: Any) -> Any:
    """`node`, which is a feed or a cache of its rows, with another feed."""
    if not isinstance(node, physical.CacheRows):
        return feed
    stage = replace(node.input.stage, read=_read_by_worker(feed))
    return replace(node, input=replace(node.input, input=feed, stage=stage))


def _read_by_worker(node: Any) -> ReadPlaces | ReadUnits | None:
    """How the stage above a node reads its own rows; None where it is given blocks of them."""
    if isinstance(node, physical.IndexedFeed):
        return node.read
    if isinstance(node, physical.ChunkedFeed) and can_be_anywhere(node.read.source):
        return node.read
    return None


def _gives(node: Any) -> tuple[str, ...] | None:
    """The columns that a physical node gives, where its last step says so."""
    match node:
        case physical.Segment(stage=Stage(steps=(*_, Project(names=pairs)))):
            return tuple(new for _, new in pairs)
        case physical.Concat() | physical.Mix():
            return _gives(node.many[0])
        case physical.Windows() | physical.Take() | physical.Skip() | physical.CacheRows():
            return _gives(node.input)
    return None


def _sparing(feed: Any, steps: tuple[Step, ...]) -> Any:
    """A feed that does not read what the steps would drop, where its source can tell."""
    match feed:
        case physical.ChunkedFeed() if hasattr(feed.read.source, "may_hold"):
            return replace(feed, conditions=_conditions(steps))
        case physical.IndexedFeed() if hasattr(feed.read.source, "may_hold_rows"):
            found = _conditions(steps)
            if found and feed.read.source.passed_over(found) is not None:
                return replace(feed, read=replace(feed.read, conditions=found))
    return feed


def _conditions(steps: tuple[Step, ...]) -> tuple[Condition, ...]:
    """What the filters of a stage ask of columns as they were read."""
    found: list[Condition] = []
    written: set[str] = set()
    for step in steps:
        match step:
            case Keep() if not isinstance(step.step, Function):
                found += [c for c in conditions(step.step) if c.column not in written]
            case Evaluate():
                written |= set(step.into)
            case Call() | CallColumns() if not step.function.marks.impure:
                written |= set(step.into)
            case Keep() if not step.step.marks.impure:  # type: ignore[union-attr]
                pass
            case _:
                break
    return tuple(found)


def _forget(steps: list[Step]) -> tuple[Step, ...]:
    """Neighbouring projections as one."""
    out: list[Step] = []
    for step in steps:
        if isinstance(step, Project) and out and isinstance(out[-1], Project):
            before = {new: old for old, new in out[-1].names}
            step = Project(tuple((before[old], new) for old, new in step.names))
            out.pop()
        out.append(step)
    return tuple(out)
