"""The form of a pipeline's cursors, from the plan as written.

Steps that make at most one row of a row leave no trace in a cursor. Its form comes from what
decides which row comes when: sources, explodes, windows, counts, and nodes that join several
pipelines. Over an indexed source, take, skip, sample and shuffle are functions on places, and
change only their number. The lowering (`physical.lower`) makes the same distinctions, and no rule
may change the form (`rewrite.runner`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from silva.order import cursors
from silva.order.cursor_checks import MOST
from silva.order.cursors import Form
from silva.plan import node as logical
from silva.plan.function import Function


@dataclass(frozen=True)
class _StepChain:
    """Steps over an input that make one stage."""

    input: Form
    levels: int = 0
    """The number of steps that explode rows."""
    filters: bool = False
    maps: bool = False
    impure: bool = False
    kept: _StepChain | None = None
    """The chain below a cache, where the input is one."""

    @property
    def in_place(self) -> bool:
        return not (self.filters or self.maps or self.levels)

    @property
    def at_most_one(self) -> bool:
        return not (self.maps or self.levels or self.impure)

    @property
    def feed(self) -> Form:
        return self.input if self.kept is None else self.kept.input

    @property
    def closed(self) -> Form:
        return cursors.PartsForm(self.input, self.levels) if self.levels else self.input

    def over(self, feed: Form) -> _StepChain:
        """The chain with another feed: below its cache, where it has one."""
        if self.kept is None:
            return replace(self, input=feed)
        kept = replace(self.kept, input=feed)
        return replace(self, input=kept.closed, kept=kept)


def cursor_form(plan: logical.Node) -> Form:
    """The form of a shard's cursor."""
    node = batching(plan)
    if node is None:
        return _rows(plan).closed
    inner = _rows(node.input).closed
    if isinstance(node, logical.Bucket):
        return cursors.BucketForm(inner, tuple(rows for _, rows in node.sizes))
    return inner


def has_windows(form: Form) -> bool:
    """Whether some rows come window by window, or chunk by chunk."""
    if isinstance(form, cursors.WindowsForm | cursors.ChunksForm):
        return True
    below = getattr(form, "many", None) or (getattr(form, "input", None),)
    return any(has_windows(child) for child in below if child is not None)


def places_below(node: logical.Node) -> int | None:
    """The number of places in the order of an indexed source, where each makes one row of `node`;
    else None."""
    chain = _rows(node)
    in_place = not (chain.filters or chain.levels)
    if chain.kept is not None:
        in_place &= not (chain.kept.filters or chain.kept.levels)
    return chain.feed.size if in_place and isinstance(chain.feed, cursors.PlacesForm) else None


def batching(plan: logical.Node) -> logical.Batch | logical.Bucket | None:
    """The node that makes batches; None where rows come one by one."""
    while len(plan.inputs) == 1:
        if isinstance(plan, logical.Batch | logical.Bucket):
            return plan
        (plan,) = plan.inputs
    return None


def _rows(node: logical.Node) -> _StepChain:
    match node:
        case logical.Source():
            if node.source.access == "indexed":
                return _StepChain(cursors.PlacesForm(cast(cursors.CountedRows, node.source)))
            return _StepChain(cursors.UnitsForm(cast(cursors.CountedUnits, node.source), None))
        case logical.Derive() | logical.Filter():
            return _step(node)
        case logical.Explode():
            chain = _rows(node.input)
            return replace(chain, levels=chain.levels + 1)
        case logical.MapRows():
            return replace(_rows(node.input), maps=True)
        case logical.Shuffle():
            return _shuffle(node)
        case logical.Take() | logical.SkipRows() | logical.Sample():
            return _chosen(node)
        case logical.Cache():
            kept = _rows(node.input)
            return _StepChain(kept.closed, kept=kept)
        case logical.Pack():
            return _StepChain(cursors.WindowsForm(_rows(node.input).closed, MOST, made=True))
        case logical.Concat():
            return _StepChain(cursors.ConcatForm(_many(node)))
        case logical.Zip():
            return _StepChain(cursors.ZipForm(_many(node)))
        case logical.Mix():
            return _StepChain(cursors.MixForm(_many(node), node.schedule, node.stop == "repeat"))
    return _rows(node.inputs[0])


def _many(node: logical.Node) -> tuple[Form, ...]:
    return tuple(_rows(child).closed for child in node.inputs)


def _step(node: logical.Derive | logical.Filter) -> _StepChain:
    chain = _rows(node.input)
    marks = node.step.marks if isinstance(node.step, Function) else None
    if marks is not None and marks.batch_size is not None:
        size = marks.batch_size
        return _StepChain(cursors.ChunksForm(cursors.WindowsForm(chain.closed, size - 1), size))
    if isinstance(node, logical.Filter):
        return replace(chain, filters=True)
    return replace(chain, impure=chain.impure or (marks is not None and marks.impure))


def _shuffle(node: logical.Shuffle) -> _StepChain:
    chain = _rows(node.input)
    movable = chain.at_most_one and (chain.kept is None or chain.kept.at_most_one)
    if movable and isinstance(chain.feed, cursors.PlacesForm):
        return chain
    if movable and isinstance(chain.feed, cursors.UnitsForm):
        seed = node.seed if node.kind != "window" else None
        units = replace(chain.feed, seed=seed)
        return chain.over(cursors.WindowsForm(units, node.window - 1))
    return _StepChain(cursors.WindowsForm(chain.closed, node.window - 1))


def _chosen(node: logical.Take | logical.SkipRows | logical.Sample) -> _StepChain:
    chain = _rows(node.input)
    in_place = chain.in_place and (chain.kept is None or chain.kept.in_place)
    if in_place and isinstance(chain.feed, cursors.PlacesForm):
        count = node.size if isinstance(node, logical.Sample) else node.count
        more = () if count is None else ((node.verb, count),)
        return chain.over(replace(chain.feed, chosen=(*chain.feed.chosen, *more)))
    if isinstance(node, logical.Sample):
        return chain  # refused by the lowering
    name = "taken" if isinstance(node, logical.Take) else "skipped"
    return _StepChain(cursors.CountedForm(chain.closed, name, node.count))
