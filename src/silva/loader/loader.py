"""The loader: what a user iterates, saves, explains and converts."""

from __future__ import annotations

import functools
import importlib.util
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silva.columns import Block
from silva.cost.machine import Machine, parse_bytes
from silva.errors import PlanError
from silva.facts.loop import LoopClock
from silva.lifetime import close_at_exit
from silva.loader.epochs import Batches, EpochReader, end_workers
from silva.loader.position import StreamIdentity, StreamPosition, from_state
from silva.loader.row_files import file_of_rows
from silva.loader.whole_columns import ColumnValues, read_columns
from silva.options import LoaderOptions, is_auto
from silva.order.length import plan_rows, why_unknown
from silva.order.state import Identity, new_state
from silva.physical.plan import PhysicalNode
from silva.physical.stage.context import Failure
from silva.plan import node as logical
from silva.plan.arguments import duration, explains, natural, path_of, whole
from silva.plan.decision import Decision
from silva.plan.node import option
from silva.plan.schema import is_batched, verify_eval
from silva.planner.cache_locations import cache_locations, disk_limit
from silva.planner.known_costs import CostSource
from silva.planner.planner import Planner
from silva.rewrite.rule import Outcome
from silva.run.executor import Executor
from silva.run.failures import Failures, Substitute
from silva.run.memory import MemoryBudget
from silva.run.placement.lane import Lane
from silva.run.placement.sizing import MOST_THREADS
from silva.run.seams import Seams

if TYPE_CHECKING:
    import pyarrow as pa

    from silva.cost.trace import Trace
    from silva.facts.model import RunFacts
    from silva.facts.why import Why
    from silva.feed.torch import TorchFeed
    from silva.insight.explanation import Explanation
    from silva.insight.headroom import Headroom
    from silva.insight.what_if import WhatIf
    from silva.run.ray.cluster import Cluster

_DEFAULT_MEMORY = 4 << 30
"""Bytes at most where no `memory=` is given; on small machines a quarter of what they have."""


class Loader:
    """Reads a pipeline; `pipeline.loader(…)` makes it. Each `for batch in loader` is one epoch, and
    the next loop is the next epoch: use one loader for all of them, since a new one begins with
    epoch 0.

    `epochs=n` does not read n epochs in one loop. It announces n loops, so that the next epoch can
    begin before this one is over and rows can be cached for it; loop n + 1 raises an error.
    `failures` is a file to which failed rows are appended in every run.

    >>> import silva as sv
    >>> loader = sv.from_columns({"x": range(6)}).batch(4).loader(backend="inline")
    >>> [batch["x"].tolist() for batch in loader]
    [[0, 1, 2, 3], [4, 5]]
    """

    def __init__(
        self,
        plan: logical.Node,
        options: LoaderOptions | None = None,
        seams: Seams | None = None,
        costs: CostSource | None = None,
    ) -> None:
        """`seams` and `costs` are for tests: the run's inputs from outside, and the step costs that
        the planner assumes."""
        options = options or LoaderOptions()
        self._made_of = plan, options, seams, costs
        seams = seams or Seams()
        disk = disk_limit(options.cache)
        if options.cache == "off":
            plan = logical.Options(plan, (("disable", (*option(plan, "disable", ()), "cache")),))
        if options.eval:
            verify_eval(plan)
        self._options = options
        choices = sys.modules.get("silva.plan.choice")  # who has written a choice has imported it
        self._open = () if choices is None else choices.open_choices(plan)
        plan = plan if choices is None else choices.resolve(plan)
        self._logical = logical.without_shuffles(plan) if options.eval else plan
        seed = option(plan, "seed", 0) if options.seed is None else options.seed
        self._seed = whole("loader(seed=…)", seed)
        memory = _memory(options, seams.machine)
        lanes: dict[str, Lane] = {}
        file = None if options.failures is None else Path(options.failures)
        self._failures = Failures(options.on_error, file, file_of_rows(self._logical))
        self._planner = Planner(
            self._logical,
            weights_of=ColumnValues(self._seed),
            read_columns=read_columns,
            lanes=lanes,
            epochs=options.epochs,
            workers=count_workers(options, seams.machine),
            locations=functools.partial(cache_locations, memory, disk),
            substitutes=isinstance(options.on_error, Substitute),
            counts=options.on_error != "raise",
            masks=options.eval,
            costs=costs,
            clock=seams.cpu_clock,
        )
        self._executor = Executor(
            backend=None if options.backend == "auto" else options.backend,
            workers=count_workers(options, seams.machine),
            most_threads=MOST_THREADS if is_auto(options.workers) else 0,
            memory=memory,
            deadline=options.deadline,
            ordered=options.ordered,
            cluster=_cluster(options),
            epochs=options.epochs,
            lanes=lanes,
            observe=self._planner.note,
            seams=seams,
        )
        self._epochs = EpochReader(
            self._logical,
            options,
            seed=self._seed,
            shards=int(option(plan, "shards", options.world)),
            planner=self._planner,
            executor=self._executor,
            memory=memory,
            failures=self._failures,
        )
        # a loop holds its reader, and not always its loader
        weakref.finalize(self._epochs, end_workers, self._executor, self._planner).atexit = False
        self._clock = LoopClock()

    def with_seams(self, costs: CostSource | None = None, **changes: Any) -> Loader:
        """A new loader of the same pipeline and options, for tests: `changes` are fields of
        `silva.run.seams.Seams`."""
        plan, options, seams, known = self._made_of
        return Loader(plan, options, replace(seams or Seams(), **changes), costs or known)

    # Iterating.

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._epochs.check_free()
        return self._loop(on_empty=self._warn_of_empty_epoch)

    def blocks(self) -> Iterator[Block]:
        """Reads one epoch with each batch as a block of columns, without the conversion to numpy
        arrays. For pipelines that end with `batch(size)`.

        >>> import silva as sv
        >>> loader = sv.from_columns({"x": range(3)}).batch(2).loader(workers=0)
        >>> [len(block) for block in loader.blocks()]
        [2, 1]
        """
        self._epochs.check_free()
        return self._loop(as_blocks=True)

    def _loop(
        self, *, as_blocks: bool = False, on_empty: Callable[[], None] | None = None
    ) -> Batches:
        """Reads an epoch. If Python exits in the middle, the loop ends before its modules do."""
        watch = self._show_progress if self._options.progress else None
        loop = self._epochs.read(as_blocks=as_blocks, watch=watch, on_empty=on_empty)
        close_at_exit(self._epochs)
        close_at_exit(loop)
        return loop

    def _warn_of_empty_epoch(self) -> None:
        found = self.facts().empty_filter
        if found is not None:
            warnings.warn(f"the epoch has no rows: {found}", stacklevel=3)

    def _show_progress(self, batches: Batches) -> Batches:
        from silva.insight.progress import EpochProgress, show_progress

        try:
            total = len(self)
        except TypeError:
            total = None
        progress = EpochProgress(
            epoch=self.epoch, done=self._epochs.step, total=total, workers=self._executor.processes
        )
        batched = is_batched(self._logical)
        return show_progress(batches, progress, self._clock, batched=batched)

    def _lowered(self) -> PhysicalNode:
        """The plan as it is run."""
        return self._epochs.physical()

    @property
    def outcomes(self) -> list[Outcome]:
        """Every rule that changed the plan, or would have changed it if it were allowed to."""
        return self._planner.outcomes

    # State.

    def state_dict(self) -> dict[str, Any]:
        """The position after the batch that was handed out last, as plain JSON."""
        at, stream = self._epochs.position(), self._identity
        return new_state(
            stream.pipeline,
            seed=stream.seed,
            epoch=at.epoch,
            step=at.step,
            shards=self._epochs.shards,
            positions=at.shards,
            close=self._planner.close,
            substitutes=stream.substitutes,
        )

    @functools.cached_property
    def _identity(self) -> StreamIdentity:
        substitutes = isinstance(self._options.on_error, Substitute)
        identity = Identity.of(self._logical)
        return StreamIdentity(self._logical, identity, self._seed, substitutes)

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Continues from `state`: the next loop hands out what came after it."""
        self._epochs.check_movable()
        found = from_state(
            state,
            self._identity,
            rank=self._options.rank or 0,
            world=self._options.world,
            allow_changed=allow_changed,
        )
        self._planner.use_close(found.close)
        self._epochs.move_to(found.position, found.shards)

    def set_epoch(self, epoch: int) -> None:
        """The next loop reads this epoch from its start."""
        self._epochs.check_movable()
        self._epochs.move_to(StreamPosition(natural("set_epoch", epoch)))

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or was read last."""
        return self._epochs.epoch

    # Looking.

    def __len__(self) -> int:
        """The number of batches in an epoch, where that is known without running it."""
        if self._options.steps is not None:
            return self._options.steps
        shards = self._epochs.shards
        rows = plan_rows(self._logical, shards)
        if rows is None:
            raise TypeError(
                "the length of this loader is not known before it has run, because "
                f"{why_unknown(self._logical, shards)}: pass steps=… to fix it, or count() the "
                "pipeline"
            )
        return rows

    @property
    def failures(self) -> list[Failure]:
        """The rows that failed so far, the first 1000 at most."""
        return list(self._failures.kept)

    def stats(self) -> dict[str, dict[str, Any]]:
        """The counters of each stage: rows, bytes, busy, starved, blocked, queue fill, backend and
        the reason for it."""
        from silva.facts.collect import stage_facts
        from silva.facts.text import stage_stats

        lanes = self._executor.lanes.values()
        return {lane.name: stage_stats(stage_facts(lane)) for lane in lanes}

    def facts(self) -> RunFacts:
        """The plan as written, the plan as run, why they differ, and what was measured so far, as
        read-only data."""
        from silva.facts.collect import collect_facts

        found = collect_facts(
            self._logical,
            self._planner,
            self._executor,
            loop=self._clock.facts(),
            epoch=self.epoch,
            failures=self._failures,
        )
        return replace(found, decisions=(*self._open, *found.decisions)) if self._open else found

    def measure(self, seconds: float) -> None:
        """Reads batches and drops them, for one epoch or at most `seconds`, so that there is
        something to explain."""
        stop = time.monotonic() + duration("seconds=", seconds)
        for _ in self._loop():
            if time.monotonic() >= stop:
                return

    def explain(self, analyze: bool = False) -> Explanation:
        """The plan as written, the plan as run, why they differ, and what was measured so far: with
        `analyze`, also where the time of each step went, and the errors of the predictions."""
        from silva.insight.explanation import Explanation

        facts = self.facts()
        expected = None if facts.stages else self._forecast_by_book()
        return Explanation(facts, analyze, expected)

    def _forecast_by_book(self) -> Decision | None:
        """What earlier runs say about a run that has not begun."""
        from silva.loader.forecasts import forecast_by_book

        found = forecast_by_book(self._logical, self._planner.plan, self._options)
        return None if found is None else found.decision

    def why(self, name: str | Callable[..., Any]) -> Why:
        """Everything that concerns a column, a step (also by its function or that function's name),
        an operator or a stage, in a few sentences."""
        from silva.facts.why import why

        return why(self.facts(), name)

    @explains
    def what_if(self, **asked: Any) -> WhatIf:
        """Predicts the throughput if something were different: `decode=0.5` for an operator, a
        column or a step that took half of its time, `workers=8`, `cores=`, `memory=`, `backend=`.
        """
        from silva.insight.what_if import what_if

        return what_if(self.facts(), asked)

    def trace(self) -> Trace:
        """The latest blocks of each stage and what the loop did between them; `save()` writes them
        for Perfetto.

        >>> import silva as sv
        >>> with sv.from_columns({"x": range(6)}).batch(4).loader(backend="inline") as loader:
        ...     seen = list(loader)
        ...     trace = loader.trace()
        >>> sorted({span.resource for span in trace.spans})
        ['stage 1 (inline)', 'the loop']
        """
        from silva.facts.collect import run_trace

        return run_trace(self._planner.physical(), self._executor)

    def headroom(self, seconds: float = 10.0) -> Headroom:
        """Measures for each step how fast the pipeline would be if all other steps were free: runs
        the loader for half of the time, and each step alone in the other half. The default is that
        of `pipeline.headroom`."""
        from silva.insight.headroom import measure_headroom
        from silva.insight.replay import KeptInputs

        seconds = duration("seconds=", seconds, finite=True)
        inputs = KeptInputs()
        with self._executor.showing_inputs(inputs.keep):
            self.measure(seconds / 2)
        return measure_headroom(self.facts(), inputs, self._epochs.context(self.epoch), seconds)

    # Feeds.

    def to_torch(self, device: Any = None, pin_memory: bool = False) -> TorchFeed:
        """Batches as torch tensors, without a copy where possible."""
        from silva.feed.torch import torch_feed

        return torch_feed(self, device, pin_memory)

    def to_jax(self, device: Any = None) -> Iterator[dict[str, Any]]:
        """Batches as jax arrays."""
        from silva.feed.jax import jax_batches

        return jax_batches(self, device)

    def to_arrow(self) -> pa.RecordBatchReader:
        """The epoch as a `pyarrow.RecordBatchReader`."""
        from silva.feed.arrow import arrow_reader

        return arrow_reader(self, self._logical)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def report(self, path: str | Path) -> Path:
        """Writes one self-contained HTML page about the plan and its measurements."""
        from silva.insight.pages import write_report

        return write_report(self.facts(), self.state_dict(), path_of("loader.report(…)", path))

    def close(self) -> None:
        """Ends all workers now, and not only when the loader is deleted."""
        self._epochs.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def _memory(options: LoaderOptions, machine: Machine) -> MemoryBudget:
    default = min(_DEFAULT_MEMORY, machine.memory // 4)
    return MemoryBudget(default if is_auto(options.memory) else parse_bytes(options.memory))


def count_workers(options: LoaderOptions, machine: Machine) -> int:
    """The workers of this machine that the loader may use."""
    if options.backend == "inline":
        return 0
    return machine.cpus if options.workers == "auto" else int(options.workers)


def _cluster(options: LoaderOptions) -> Cluster | None:
    """The cluster that a loader may use; it is joined when it is first needed."""
    address, cpus, backend = options.cluster, options.cpus, options.backend
    if address is None:
        if backend == "ray" or cpus is not None:
            asked = "backend='ray'" if backend == "ray" else "cpus="
            raise PlanError(
                f"{asked} needs a cluster: loader(cluster='local'), 'auto' or 'ray://…'"
            )
        return None
    known = isinstance(address, str) and (
        address in ("local", "auto") or address.startswith("ray://")
    )
    if not known:
        raise PlanError(f"cluster is 'local', 'auto' or 'ray://host:port', not {address!r}")
    if importlib.util.find_spec("ray") is None:
        raise PlanError("cluster= needs Ray: pip install 'silva[ray]'")
    from silva.run.ray.cluster import Cluster

    if backend == "ray" and options.workers != "auto":
        workers = int(options.workers)
        cpus = min(max(workers, 1), cpus or workers)
    return Cluster(address, cpus)
