"""From the logical plan to the physical one: a table from node type to function.

Row steps are gathered into one stage as long as rows stay in place. Over an indexed source, take,
skip and shuffle are not work but a map on positions (`order.positions`), so they go into the feed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import cast

import numpy as np

from silva.errors import PlanError, SilvaError
from silva.io.conditions import Condition, conditions
from silva.io.source import Chunked, Indexed, can_be_anywhere
from silva.order import positions
from silva.physical import plan as physical
from silva.physical.right_sides import RightSides
from silva.physical.stage.batch_steps import BatchStage, CollateStage
from silva.physical.stage.read import ReadPlaces, ReadUnits
from silva.physical.stage.stage import Stage
from silva.physical.stage.steps import (
    Call,
    CallColumns,
    Evaluate,
    Keep,
    MapWhole,
    Project,
    Spread,
    Step,
)
from silva.plan import expr
from silva.plan import node as logical
from silva.plan.fingerprint import fingerprint
from silva.plan.function import Function
from silva.plan.right_side import narrow
from silva.plan.schema import (
    columns,
    is_batched,
    needed_below,
    needed_by_batch,
    step_is_pure,
    step_is_random,
    step_reads,
)

WeightsOf = Callable[[logical.Node, str], np.ndarray]
"""Reads a whole column of a plan, one value per row, for the weights of `sample`."""


@dataclass
class _Chain:
    """A stage under construction: its input, and the steps so far."""

    input: physical.PhysicalNode
    steps: list[Step] = field(default_factory=list)

    # A cache keeps rows by identity, so it does not care in which order they come: shuffle, take,
    # skip and sample above a cache change the feed below it, as if the cache were not there.

    @property
    def feed(self) -> physical.PhysicalNode:
        """The feed of the rows, below a cache if the input is one."""
        return self.input.input.input if isinstance(self.input, physical.CacheRows) else self.input

    def over(self, feed: physical.PhysicalNode) -> _Chain:
        """The chain with another feed."""
        cache = self.input
        if not isinstance(cache, physical.CacheRows):
            return _Chain(feed, self.steps)
        stage = replace(cache.input.stage, read=_read_by_worker(feed))
        segment = replace(cache.input, input=feed, stage=stage)
        return _Chain(replace(cache, input=segment), self.steps)

    @property
    def _all_steps(self) -> list[Step]:
        """The steps since the feed."""
        kept = self.input.input.stage.steps if isinstance(self.input, physical.CacheRows) else ()
        return [*kept, *self.steps]

    @property
    def in_place(self) -> bool:
        """Whether rows are still one to one with the rows of the feed."""
        return not any(isinstance(s, Keep | Spread | MapWhole) for s in self._all_steps)

    @property
    def at_most_one(self) -> bool:
        """Whether a row of the feed is still one row or none, and steps may move across."""
        return not any(
            isinstance(s, Spread | MapWhole)
            or (isinstance(s, Call | CallColumns) and s.function.marks.impure)
            for s in self._all_steps
        )


class Lowering:
    """Lowers one plan; holds the numbering of its sources and stages."""

    def __init__(
        self,
        weights_of: WeightsOf,
        rights: RightSides,
        *,
        frugal: bool = True,
        as_written: bool = False,
        variant: str = "",
        masks: bool = True,
    ) -> None:
        """`frugal`: rows that filters drop are not read, if the source's statistics or a later read
        allow it; `as_written`: only if no step before the filters could have failed on them.
        `variant` is part of the keys of caches, so that rows of close rewrites have stores of
        their own. `masks`: batches may get a mask, which a selection after them drops."""
        self._weights_of = weights_of
        self._rights = rights
        self._variant = variant
        self._frugal = frugal
        self._as_written = as_written
        self._masks = masks
        self._tags = count()
        self._names = (f"stage {number}" for number in count(1))

    def lower(
        self, node: logical.Node, needed: frozenset[str] | None = None
    ) -> physical.PhysicalNode:
        """The physical plan of `node`, with only `needed` columns (None: all of them)."""
        wanted = frozenset(columns(node)) if needed is None else needed
        if is_batched(node):
            return self._batched(node, wanted)
        return self._with_columns(node, tuple(n for n in columns(node) if n in wanted))

    # Rows.

    def _rows(self, node: logical.Node, wanted: frozenset[str]) -> _Chain:
        match node:
            case logical.Source():
                return self._source(node, wanted)
            case logical.Options() | logical.Select():
                return self._rows(node.input, wanted)
            case logical.Derive():
                return self._derive(node, wanted)
            case logical.Filter():
                chain = self._rows(node.input, wanted | set(step_reads(node.step)))
                keep = Keep(self._bound(node.step), node.id, node.written, node.step)
                return self._with(chain, keep)
            case logical.Rename():
                return self._rename(node, wanted)
            case logical.Explode():
                chain = self._rows(node.input, wanted | {node.column})
                chain.steps.append(Spread(node.column))
                return chain
            case logical.MapRows():
                names = columns(node.input)
                chain = self._rows(node.input, frozenset(names))
                chain.steps += [Project.of(names), MapWhole(node.step, node.into, node.id)]
                return chain
            case logical.Shuffle():
                return self._shuffle(node, wanted)
            case logical.Sample():
                return self._sample(node, wanted)
            case logical.Take() | logical.SkipRows():
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
                many = tuple(self.lower(child, wanted) for child in node.many)
                return _Chain(physical.Zip(many, node.stop))
        raise PlanError(f"{node.verb} cannot be run")

    def _many(
        self, nodes: tuple[logical.Node, ...], wanted: frozenset[str]
    ) -> tuple[physical.PhysicalNode, ...]:
        names = tuple(n for n in columns(nodes[0]) if n in wanted)
        return tuple(self._with_columns(node, names) for node in nodes)

    def _source(self, node: logical.Source, wanted: frozenset[str]) -> _Chain:
        names = tuple(n for n in columns(node) if n in wanted)
        tag = next(self._tags)
        if tag > 255:
            raise PlanError("a pipeline can have at most 256 sources")
        if node.source.access == "indexed":
            source = cast(Indexed, node.source)
            read = ReadPlaces(source, names, (), tag, identity_by_place=False)
            return _Chain(physical.IndexedFeed(read, source.length()))
        return _Chain(physical.ChunkedFeed(ReadUnits(cast(Chunked, node.source), names, tag), None))

    def _derive(self, node: logical.Derive, wanted: frozenset[str]) -> _Chain:
        if not wanted & set(node.into) and step_is_pure(node.step):
            return self._rows(node.input, wanted)  # nobody reads what it writes
        below = (wanted - set(node.into)) | set(step_reads(node.step))
        chain = self._rows(node.input, below)
        step, into = node.step, node.into
        if isinstance(step, Function):
            kind = CallColumns if step.marks.batched else Call
            return self._with(chain, kind(step, into, node.id, node.written))
        if isinstance(step, expr.Call) and step.op == "join.take":
            step, into = narrow(step, into, wanted)
        bound = self._rights.bound(step)
        return self._with(chain, Evaluate(bound, into, node.id, node.written, node.step))

    def _bound(self, step: expr.Term | Function) -> expr.Term | Function:
        return step if isinstance(step, Function) else self._rights.bound(step)

    def _with(self, chain: _Chain, step: Step) -> _Chain:
        """The chain with one more step; a function of fixed chunks begins a new stage."""
        size = step.runs.marks.batch_size if isinstance(step.runs, Function) else None
        if size is None:
            chain.steps.append(step)
            return chain
        below = physical.Windows(self._segment(chain), size, None)
        return _Chain(replace(self._new_segment(_Chain(below, [step])), whole=True))

    def _rename(self, node: logical.Rename, wanted: frozenset[str]) -> _Chain:
        new = dict(node.names)
        old = {n: o for o, n in node.names}
        below = frozenset(old.get(n, n) for n in wanted)
        chain = self._rows(node.input, below)
        kept = [n for n in columns(node.input) if n in below]
        chain.steps.append(Project(tuple((n, new.get(n, n)) for n in kept)))
        return chain

    # Order.

    def _shuffle(self, node: logical.Shuffle, wanted: frozenset[str]) -> _Chain:
        chain = self._rows(node.input, wanted)
        feed, movable = chain.feed, chain.at_most_one
        chunked = feed if isinstance(feed, physical.ChunkedFeed) else None
        if node.kind == "two-level" and not (movable and chunked):
            raise PlanError("shuffle(kind='two-level') needs a chunked source (Parquet, tar, text)")
        if movable and isinstance(feed, physical.IndexedFeed):
            if node.by is not None:
                return self._shuffle_groups(node, chain, feed)
            if node.kind == "window":
                return self._reorder(chain, positions.PermuteWindows(node.seed, node.window))
            return self._reorder(chain, positions.Permute(node.seed))
        if node.kind == "global" or node.by is not None:
            raise PlanError(
                "shuffle(kind='global') needs an indexed source (files, arrays, tables) with only "
                "steps of one row to one row between; here rows can be shuffled in windows"
            )
        if movable and chunked is not None and chunked.seed is None:
            units = node.seed if node.kind in (None, "two-level") else None
            windows = physical.Windows(replace(chunked, seed=units), node.window, node.seed)
            return chain.over(windows)
        return _Chain(physical.Windows(self._segment(chain), node.window, node.seed))

    def _shuffle_groups(
        self, node: logical.Shuffle, chain: _Chain, feed: physical.IndexedFeed
    ) -> _Chain:
        read = feed.read
        if not isinstance(read.source, positions.HasGroups) or read.maps:
            raise PlanError(
                f"shuffle(by={node.by!r}) keeps groups of a table together: it needs "
                "sv.read_table(…), and comes before take, skip and other shuffles"
            )
        if node.by not in ("group", read.source.group):
            raise PlanError(
                f"shuffle(by={node.by!r}): the rows of {read.source.describe()} are grouped by "
                f"{read.source.group!r}"
            )
        return self._reorder(chain, positions.PermuteGroups(read.source, node.seed, node.most))

    def _reorder(self, chain: _Chain, step: positions.Map, by_place: bool = False) -> _Chain:
        feed = chain.feed
        assert isinstance(feed, physical.IndexedFeed)
        maps = (*feed.read.maps, step)
        read = replace(
            feed.read, maps=maps, identity_by_place=feed.read.identity_by_place or by_place
        )
        size = positions.order_size(maps, feed.read.source.length())
        return chain.over(physical.IndexedFeed(read, size))

    def _take(self, node: logical.Take | logical.SkipRows, wanted: frozenset[str]) -> _Chain:
        chain = self._rows(node.input, wanted)
        takes = isinstance(node, logical.Take)
        if chain.in_place and isinstance(chain.feed, physical.IndexedFeed):
            step = positions.Range(0, node.count) if takes else positions.Range(node.count, None)
            return self._reorder(chain, step)
        kind = physical.Take if takes else physical.SkipRows
        if chain.in_place and chain.at_most_one and _is_order(chain.input):
            chain.input = kind(chain.input, node.count)  # rows that are left out cost no work
            return chain
        return _Chain(kind(self._segment(chain), node.count))

    def _sample(self, node: logical.Sample, wanted: frozenset[str]) -> _Chain:
        chain = self._rows(node.input, wanted)
        feed = chain.feed
        if not (chain.in_place and isinstance(feed, physical.IndexedFeed)):
            raise PlanError(
                "sample needs an indexed source (files, arrays, tables) with only steps of one row "
                "to one row before it: filter after it, or write the filtered rows to a table"
            )
        read = replace(feed.read, maps=_without_shuffles(feed.read.maps))
        chain = chain.over(physical.IndexedFeed(read, feed.size))
        weights = self._weights(node, feed.size)
        rows = feed.size if node.size is None else node.size
        if rows and not feed.size:
            raise PlanError(f"sample: there are no rows of which {rows} could be drawn")
        step = positions.DrawRows(_running_sum(weights), rows, node.seed)
        return self._reorder(chain, step, by_place=True)

    def _column_weights(self, plan: logical.Node, name: str, balanced: bool) -> np.ndarray:
        try:
            values = self._weights_of(plan, name)
            if np.ma.is_masked(values):
                raise ValueError("some rows have none")
            if not balanced:
                return np.asarray(values, dtype=np.float64)
            _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
            return np.asarray(1.0 / counts[inverse])
        except SilvaError:
            raise
        except (TypeError, ValueError) as error:
            needs = "values with an order" if balanced else "numbers"
            raise PlanError(f"sample needs {needs} in {name!r}, one a row: {error}") from None

    def _weights(self, node: logical.Sample, size: int) -> np.ndarray:
        name = node.balance if node.balance is not None else node.weights
        if isinstance(name, str):
            weights = self._column_weights(node.input, name, node.balance is not None)
        else:
            weights = np.asarray(node.weights.values, dtype=np.float64)
        if len(weights) != size:
            raise PlanError(f"sample: {len(weights)} weights for {size} rows")
        if size and (not np.isfinite(weights).all() or (weights < 0).any() or not weights.any()):
            raise PlanError("sample: weights are finite, not negative and not all zero")
        return weights

    # Stages.

    def _cache(self, node: logical.Cache) -> _Chain:
        for below in logical.walk(node.input):
            step = below.runs
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
        chain.steps.append(Project.of(names))
        segment = self._new_segment(chain, skips=False)  # a cache wants an answer for every row
        key = (node.key or fingerprint(node.input)) + self._variant
        return _Chain(physical.CacheRows(segment, node, key))

    def _with_columns(self, node: logical.Node, names: tuple[str, ...]) -> physical.PhysicalNode:
        """The rows of a node with these columns, in this order."""
        chain = self._rows(node, frozenset(names))
        if not chain.steps and _gives(chain.input) == names:
            return chain.input
        chain.steps.append(Project.of(names))
        return self._segment(chain)

    def _segment(self, chain: _Chain) -> physical.PhysicalNode:
        """The rows of a chain: a segment, or its input where nothing is left to do."""
        if not chain.steps and not isinstance(chain.input, physical.IndexedFeed):
            return chain.input
        return self._new_segment(chain)

    def _new_segment(self, chain: _Chain, *, skips: bool = True) -> physical.Segment:
        """`skips`: rows that the steps would drop need not be read."""
        steps = _forget(chain.steps)
        below = chain.input
        if skips and self._frugal:
            below = _sparing(below, _leading_filters(steps) if self._as_written else steps)
        stage = Stage(steps, _read_by_worker(below), lazy=self._frugal)
        return physical.Segment(below, stage, next(self._names))

    # Batches.

    def _batched(self, node: logical.Node, wanted: frozenset[str]) -> physical.PhysicalNode:
        after: list[logical.Node] = []
        while not isinstance(node, logical.Batch | logical.Bucket):
            if not isinstance(node, logical.Options):
                after.append(node)
            node = node.inputs[0]
        after.reverse()
        takes = [n for n in after if isinstance(n, logical.Take)]
        whole = (isinstance(node, logical.Batch) and node.collate is not None) or self._masks
        steps = tuple(
            n for n in after if not isinstance(n, logical.Take) and (whole or not _is_idle(n))
        )
        below = self._batch(node, _needed_of_batches(after, wanted))
        filters = any(isinstance(n, logical.Filter) for n in steps)
        if steps:
            below = physical.BatchSegment(below, BatchStage(steps), next(self._names), filters)
        if takes:
            if filters:
                raise PlanError("take after a filter of batches is not defined: take rows instead")
            below = physical.Take(below, min(n.count for n in takes))
        return below

    def _batch(self, node: logical.Node, wanted: frozenset[str]) -> physical.PhysicalNode:
        assert isinstance(node, logical.Batch | logical.Bucket)
        names = frozenset(columns(node.input))
        below = self.lower(node.input, needed_by_batch(node, wanted) & names or names)
        if isinstance(node, logical.Bucket):
            return physical.Bucket(below, node)
        batch = physical.Batch(below, node)
        if node.collate is None:
            return batch
        return physical.BatchSegment(batch, CollateStage(node.collate), next(self._names))


def _needed_of_batches(after: list[logical.Node], wanted: frozenset[str]) -> frozenset[str]:
    """The columns of batches that the steps after `batch` need when these of theirs are wanted. A
    column that is written again keeps its place among the others."""
    for node in reversed(after):
        needed = needed_below(node, wanted)
        assert needed is not None
        wanted = needed | set(node.into) if isinstance(node, logical.Derive) else needed
    return wanted


def _is_idle(node: logical.Node) -> bool:
    """Whether a node only selects all columns of batches, in their order."""
    return isinstance(node, logical.Select) and node.names == columns(node.input)


def _is_order(node: physical.PhysicalNode) -> bool:
    """Whether a node only reorders or skips rows of a chunked source."""
    if isinstance(node, physical.Windows | physical.Take | physical.SkipRows):
        return _is_order(node.input)
    return isinstance(node, physical.ChunkedFeed)


def _read_by_worker(node: physical.PhysicalNode) -> ReadPlaces | ReadUnits | None:
    """How the stage above a node reads its rows itself; None if it gets blocks."""
    if isinstance(node, physical.IndexedFeed):
        return node.read
    if isinstance(node, physical.ChunkedFeed) and can_be_anywhere(node.read.source):
        return node.read
    return None


def _gives(node: physical.PhysicalNode) -> tuple[str, ...] | None:
    """The columns that a physical node yields, if its last step is a projection."""
    match node:
        case physical.Segment(stage=Stage(steps=(*_, Project(names=pairs)))):
            return tuple(new for _, new in pairs)
        case physical.Concat() | physical.Mix():
            return _gives(node.many[0])
        case physical.Windows() | physical.Take() | physical.SkipRows() | physical.CacheRows():
            return _gives(node.input)
    return None


def _sparing(feed: physical.PhysicalNode, steps: tuple[Step, ...]) -> physical.PhysicalNode:
    """The feed without rows that the steps would drop, if its source can tell by statistics."""
    match feed:
        case physical.ChunkedFeed() if hasattr(feed.read.source, "may_hold"):
            return replace(feed, conditions=_conditions(steps))
        case physical.IndexedFeed():
            found = _conditions(steps)
            if found and feed.read.passed_over(found) is not None:
                return replace(feed, read=replace(feed.read, conditions=found))
    return feed


def _leading_filters(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The filters before any other step that statistics can answer completely."""

    def is_plain(step: Step) -> bool:
        if not isinstance(step, Keep) or isinstance(step.step, Function):
            return False
        asked = sum(isinstance(t, expr.Call) and t.op != "and" for t in expr.walk(step.step))
        return asked == len(conditions(step.step))

    return tuple(takewhile(is_plain, steps))


def _conditions(steps: tuple[Step, ...]) -> tuple[Condition, ...]:
    """The conditions that the filters of a stage place on columns as they were read."""
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
    """The steps with neighbouring projections merged."""
    out: list[Step] = []
    for step in steps:
        if isinstance(step, Project) and out and isinstance(out[-1], Project):
            before = {new: old for old, new in out[-1].names}
            step = Project(tuple((before[old], new) for old, new in step.names))
            out.pop()
        out.append(step)
    return tuple(out)


def _without_shuffles(maps: tuple[positions.Map, ...]) -> tuple[positions.Range, ...]:
    """The order below a sample, as its weights are read: the rows in their own order. The draws are
    independent, so a shuffle below them changes nothing, but what is cut from a shuffle, or drawn,
    is other rows in each epoch, and their weights are not known when the plan is made."""
    kept = tuple(step for step in maps if isinstance(step, positions.Range))
    drawn = any(isinstance(step, positions.DrawRows) for step in maps)
    if drawn or kept != maps[: len(kept)]:
        raise PlanError(
            "sample needs the same rows in each epoch, to know their weights: write take and skip "
            "before shuffle, and sample only once"
        )
    return kept


def _running_sum(weights: np.ndarray) -> np.ndarray:
    """The running sum of the weights or, where that is too large for a float, of their shares of
    the largest."""
    with np.errstate(over="ignore"):
        sums = np.cumsum(weights)
    return np.cumsum(weights / weights.max()) if len(sums) and np.isinf(sums[-1]) else sums
