"""The loader: a pipeline being read, epoch after epoch, from any state, by one rank."""

from __future__ import annotations

import functools
import importlib.util
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from silva.columns import Block, Column, Grouped, Values
from silva.errors import LoaderError, PlanError, SilvaError, StateError
from silva.insight.watch import Watch
from silva.optimize.model import Backend
from silva.optimize.runner import Outcome
from silva.order.equal_steps import check_equal_steps
from silva.order.length import plan_rows
from silva.order.shards import shards_of_rank
from silva.order.state import Identity, check_state, new_state
from silva.physical import plan as physical
from silva.physical.account import tell_sources
from silva.physical.context import Context, Failure
from silva.plan import node as logical
from silva.plan.fingerprint import fingerprint
from silva.plan.node import option
from silva.planning.planner import Planner
from silva.planning.rooms import disk_of, rooms
from silva.profile.machine import Machine, parse_bytes
from silva.run.ahead import Ahead
from silva.run.executor import Executor
from silva.run.failures import Failures, Policy, Skip, Substitute
from silva.run.stream import Part, Stream

if TYPE_CHECKING:
    from silva.feed.torch import TorchFeed
    from silva.insight.explanation import Explanation
    from silva.insight.what_if import WhatIf
    from silva.insight.why import Why
    from silva.run.cluster import Cluster

_DEADLINE = 600.0
_DEFAULT_MEMORY = 4 << 30
_READ_ROWS = 4096


class Loader:
    """Made by `pipeline.loader(…)`. Each `for batch in loader` is one epoch.

    >>> import silva as sv
    >>> loader = sv.from_columns({"x": range(6)}).batch(4).loader(backend="inline")
    >>> [batch["x"].tolist() for batch in loader]
    [[0, 1, 2, 3], [4, 5]]
    """

    def __init__(
        self,
        plan: logical.Node,
        *,
        workers: int | Literal["auto"] = "auto",
        backend: Backend | Literal["auto"] = "auto",
        memory: int | str | Literal["auto"] = "auto",
        on_error: Policy = "raise",
        failures: str | Path | None = None,
        seed: int | None = None,
        rank: int = 0,
        world: int = 1,
        epochs: int | None = None,
        cache: int | str = "auto",
        steps: int | None = None,
        eval: bool = False,
        group: Any = None,
        ordered: bool = True,
        progress: bool = False,
        deadline: float = _DEADLINE,
        cluster: str | None = None,
        cpus: int | None = None,
    ) -> None:
        _check_arguments(workers, backend, rank, world, epochs, steps, deadline, on_error)
        if cache == "off":
            plan = logical.Options(plan, (("disable", (*option(plan, "disable", ()), "cache")),))
        self._logical = logical.without_shuffles(plan) if eval else plan
        self._seed = int(option(plan, "seed", 0) if seed is None else seed)
        self._rank, self._world = rank, world
        self._epochs, self._steps, self._eval = epochs, steps, eval
        self._group = group
        self._progress = progress
        self._policy: Policy = on_error
        self._shards = int(option(plan, "shards", world))
        machine = Machine.here()
        self._memory = (
            min(_DEFAULT_MEMORY, machine.memory // 4) if memory == "auto" else parse_bytes(memory)
        )
        count = machine.cpus if workers == "auto" else int(workers)
        self._executor = Executor(
            backend=None if backend == "auto" else backend,
            workers=0 if backend == "inline" else count,
            memory=self._memory,
            deadline=deadline,
            ordered=ordered,
            cluster=_cluster(cluster, cpus, backend, workers),
        )
        self._executor.epochs = epochs
        self._closer = weakref.finalize(self, self._executor.close)
        self._failures = Failures(on_error, None if failures is None else Path(failures))
        self._planner = Planner(
            self._logical,
            weights_of=functools.partial(_column_values, self._seed, {}),
            read_columns=read_columns,
            lanes=self._executor.lanes,
            epochs=epochs,
            workers=self._executor.workers,
            rooms=functools.partial(rooms, self._executor, disk_of(cache)),
            substitutes=isinstance(on_error, Substitute),
            lenient=on_error != "raise",
        )
        self._executor.witness = self._planner.note
        self._epoch = 0
        self._start: dict[str, Any] = {}
        self._step = 0
        self._stream: Stream | None = None
        self._live = False
        self._ahead_state: dict[str, Any] = {}
        """With several ranks: the state after the batch handed out, not the one looked at ahead."""
        self._agreed_steps = 0
        self._ahead: Ahead | None = None
        self._saved: tuple[int, dict[str, Any], int] | None = None
        """(epoch, cursors, step) where the last loop ended."""
        self._first = True
        self._watch = Watch()
        self._as_blocks = False

    # Iterating.

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._check_free()
        return self._iterate()

    def blocks(self) -> Iterator[Block]:
        """One epoch, each batch as the columns that it is made of: nothing is turned into numpy
        arrays on the way. For pipelines that end with `batch(size)`.

        >>> import silva as sv
        >>> loader = sv.from_columns({"x": range(3)}).batch(2).loader(workers=0)
        >>> [len(block) for block in loader.blocks()]
        [2, 1]
        """
        self._check_free()
        self._as_blocks = True
        try:
            yield from self._iterate()  # type: ignore[misc]
        finally:
            self._as_blocks = False

    def _check_free(self) -> None:
        if self._live:
            raise LoaderError(
                "this loader is already being iterated; make a second loader, or finish (or close) "
                "the first loop"
            )

    def _next_epoch(self) -> tuple[int, dict[str, Any], int]:
        return self._epoch + 1, {}, 0

    def _iterate(self) -> Iterator[dict[str, Any]]:
        self._check_free()  # again: only the first batch begins an epoch
        if not self._first:
            self._epoch, self._start, self._step = self._next_epoch()
        if self._epochs is not None and self._epoch >= self._epochs:
            raise LoaderError(f"all {self._epochs} epochs of this loader are done")
        self._first = False
        self._saved = None
        self._live = True
        complete = False
        try:
            self._ahead_state, self._agreed_steps = self._start, 0
            ahead, self._ahead = self._ahead, None
            self._planner.start(self._epoch, whole=not self._start)
            stream = self._stream = ahead.stream if ahead else self._open(self._epoch, self._start)
            tell_sources(self._planner.physical(), self._epoch)
            batches = self._planned(ahead.batches() if ahead else iter(stream))
            if self._may_overlap():
                batches = self._overlapped(batches)
            if self._needs_agreement():
                batches = self._agreed(batches)
            watched = self._watched(batches) if self._progress else batches
            yield from watched if self._steps is None else self._counted(watched)
            complete = True
        finally:
            self._live = False
            self._saved = (self._epoch + 1, {}, 0) if complete else self._position()
            self._stream = None
            self._planner.end(complete)
            if complete:
                self._look_ahead()
            else:
                self.close()

    def _counted(self, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        assert self._steps is not None
        for step in range(self._step, self._steps):
            batch = next(batches, None)
            if batch is None:
                raise SilvaError(
                    f"rank {self._rank} ran out of rows after {step} of the {self._steps} steps "
                    "that were asked for: lower steps="
                )
            yield batch

    def _watched(self, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        from silva.insight.progress import progress

        return progress(batches, self)

    def _lowered(self) -> Any:
        """The physical plan."""
        plan = self._planner.physical()
        shards = self._shards // self._world
        self._executor.segments = max(1, shards * physical.count_segments(plan))
        return plan

    @property
    def outcomes(self) -> list[Outcome]:
        """What the rules did, and what they would do if they were allowed to."""
        return self._planner.outcomes

    def _planned(self, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The batches, with a change of plan at their borders when there is a better one."""
        planner = self._planner
        while not planner.settled:
            for batch in batches:
                yield batch
                if planner.due():
                    break
            else:
                return
            if planner.look(self._epoch) and not self._failures.total:
                batches = self._reopened(batches)
        yield from batches

    def _reopened(self, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The rest of the epoch, by the plan as it is now."""
        assert self._stream is not None
        self._start, self._step = self._stream.state(), self._step + self._stream.count
        close = getattr(batches, "close", None)
        if close is not None:
            close()
        self._stream = self._open(self._epoch, self._start)
        return iter(self._stream)

    def _look_ahead(self) -> None:
        """Begins the next epoch, if there will be one and workers to begin it."""
        following = self._epoch + 1
        more = self._epochs is not None and following < self._epochs
        if more and self._ahead is None and self._executor.has_workers:
            self._ahead = Ahead(following, self._open(following, {}))

    def _may_overlap(self) -> bool:
        """Whether the next epoch may begin before the trainer has the last batches of this one: not
        where failures are counted epoch by epoch, nor where rows are kept, by one thread at a
        time."""
        return (
            self._epochs is not None
            and self._epoch + 1 < self._epochs
            and self._policy == "raise"
            and not self._executor.keeps_rows
        )

    def _overlapped(self, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The batches; once all that is left of the epoch is being made, the next one begins."""
        before = self._executor.endings
        for batch in batches:
            yield batch
            if self._executor.endings != before:
                before = -1
                break
        if before == -1 and self._may_overlap():
            self._look_ahead()
        yield from batches

    def _forget_ahead(self) -> bool:
        """Gives up the next epoch; whether it had begun."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.drop()
        return ahead is not None

    def _open(self, epoch: int, states: dict[str, Any]) -> Stream:
        plan = self._lowered()
        if self._world > 1 and not self._eval and self._steps is None:
            check_equal_steps(self._logical, self._world, agree=self._group is not None)
        self._failures.start()
        return Stream(
            plan,
            self._executor,
            self._context(epoch),
            Part(
                self._shards,
                shards_of_rank(self._shards, self._rank, self._world),
                self._world,
                self._eval,
            ),
            self._failures,
            states,
            as_blocks=self._as_blocks,
        )

    def _context(self, epoch: int) -> Context:
        policy = self._policy
        if isinstance(policy, Substitute):
            return Context(self._seed, epoch, "substitute", policy.value)
        return Context(self._seed, epoch, "skip" if isinstance(policy, Skip) else "raise")

    # Equal steps on all ranks.

    def _needs_agreement(self) -> bool:
        return self._group is not None and self._world > 1 and not self._eval

    def _agreed(self, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Batches as long as every rank has one: looks one ahead, and asks the others."""
        from silva.feed.agreement import all_have_one

        assert self._stream is not None
        ahead = next(batches, None)
        states = self._stream.state()
        while all_have_one(ahead is not None, self._group):
            assert ahead is not None
            batch, self._ahead_state = ahead, states
            self._agreed_steps += 1
            ahead = next(batches, None)
            states = self._stream.state()
            yield batch

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands, after the batch that was handed out last; plain JSON."""
        if self._live:
            epoch, cursors, step = self._position()
        else:
            epoch, cursors, step = self._saved or (self._epoch, self._start, self._step)
        close = self._planner.close
        return new_state(self._identity, self._seed, epoch, self._shards, cursors, step, close)

    @functools.cached_property
    def _identity(self) -> Identity:
        return Identity.of(self._logical)

    def _position(self) -> tuple[int, dict[str, Any], int]:
        """(epoch, cursors, step) after the batch that was handed out last."""
        if self._needs_agreement():
            return self._epoch, self._ahead_state, self._step + self._agreed_steps
        if self._stream is None:
            return self._epoch, self._start, self._step
        return self._epoch, self._stream.state(), self._step + self._stream.count

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Continues from `state`: the next loop hands out what came after it."""
        if self._live:
            raise LoaderError("a loader cannot be moved while it is being iterated")
        found = check_state(state, self._identity, allow_changed)
        if int(found["seed"]) != self._seed:
            raise StateError(
                f"the state was saved with seed={found['seed']}, this loader has seed={self._seed}"
            )
        shards = int(found["shards"])
        if shards % self._world:
            raise StateError(
                f"the state has {shards} shards, which {self._world} ranks cannot share equally: "
                f"use sv.reshard(state, {self._world * max(1, shards // self._world)}, pipeline)"
            )
        mine = shards_of_rank(shards, self._rank, self._world)
        cursors = found["cursors"]
        missing = [s for s in mine if str(s) not in cursors]
        if cursors and missing and found["step"]:
            raise StateError(
                f"the state lacks shard {missing[0]}, which rank {self._rank} of {self._world} "
                "needs: merge the states of all ranks with sv.merge_states([…])"
            )
        self._planner.use_close(found.get("close", ()))
        self._executor.witness = self._planner.note
        extra = {k: v for k, v in cursors.items() if not k.isdigit()}
        self._forget_ahead()
        self._shards = shards
        self._planner.forget()
        self._epoch = int(found["epoch"])
        self._step = int(found["step"])
        self._start = {str(s): cursors[str(s)] for s in mine if str(s) in cursors} | extra
        self._saved = None
        self._first = True

    def set_epoch(self, epoch: int) -> None:
        """The next loop reads this epoch from its start."""
        if self._live:
            raise LoaderError("set_epoch comes before the loop, not inside it")
        if epoch < 0:
            raise PlanError(f"epochs count from 0, not {epoch}")
        self._forget_ahead()
        self._epoch, self._start, self._step = epoch, {}, 0
        self._saved, self._first = None, True

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or was read last."""
        return self._epoch

    # Looking.

    def __len__(self) -> int:
        """Batches in an epoch, where that is known without running it."""
        if self._steps is not None:
            return self._steps
        rows = plan_rows(self._logical)
        if rows is None:
            raise TypeError(
                "the length of this loader is not known before it has run: filters, explodes, "
                "token budgets or the source's own length decide; use steps=… to fix it"
            )
        return rows

    @property
    def failures(self) -> list[Failure]:
        """Rows that failed so far (the first 1000)."""
        return list(self._failures.kept)

    def stats(self) -> dict[str, dict[str, Any]]:
        """Counters of each stage: rows, bytes, busy, starved, blocked, queue fill, backend and
        why."""
        from silva.insight.stats import lane_stats

        return {lane.name: lane_stats(lane) for lane in self._executor.lanes.values()}

    def explain(self, analyze: bool = False) -> Explanation:
        """The plan as written, the plan as run, why they differ, and what was measured so far: with
        `analyze`, also where the time of each step went, and how right the predictions were."""
        from silva.insight.explanation import explain_loader

        return explain_loader(self, analyze)

    def why(self, name: str) -> Why:
        """Everything that concerns a column, a step, an operator or a stage, in a few sentences."""
        from silva.insight.why import why

        return why(self, name)

    def what_if(self, **asked: Any) -> WhatIf:
        """How fast it would be if something were otherwise: `decode=0.5` for an operator, a column
        or a step that took half of its time, `workers=8`, `cores=`, `memory=`, `backend=`."""
        from silva.insight.what_if import what_if

        return what_if(self, asked)

    # Feeds.

    def to_torch(self, device: Any = None, pin_memory: bool = False) -> TorchFeed:
        """Batches as torch tensors, without a copy where possible."""
        from silva.feed.torch import torch_feed

        return torch_feed(self, device, pin_memory)

    def to_jax(self, device: Any = None) -> Iterator[dict[str, Any]]:
        """Batches as jax arrays."""
        from silva.feed.jax import jax_batches

        return jax_batches(self, device)

    def to_arrow(self) -> Any:
        """The epoch as a `pyarrow.RecordBatchReader`."""
        from silva.feed.arrow import arrow_reader

        return arrow_reader(self)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def report(self, path: str | Path) -> Path:
        """Writes one self-contained HTML page about the plan and what was measured."""
        from silva.insight.report import write_report

        return write_report(self, Path(path))

    def close(self) -> None:
        """Ends all workers now instead of when the loader goes."""
        self._executor.close()  # so that nobody waits for what the next epoch has begun
        if self._forget_ahead():
            self._executor.close()  # it may have begun some more of it in between

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def check_reader(rank: int, world: int, epochs: Any, steps: Any, deadline: Any) -> None:
    """Raises for what no reader of a stream can be, whoever runs the pipeline for it."""
    if not (isinstance(world, int) and world >= 1 and 0 <= rank < world):
        raise PlanError(f"rank counts from 0 to world - 1: rank={rank!r}, world={world!r}")
    for name, value in (("epochs", epochs), ("steps", steps)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise PlanError(f"{name} is a whole number from 1 up, not {value!r}")
    if not deadline > 0:
        raise PlanError(f"deadline is in seconds and positive, not {deadline!r}")


def _check_arguments(
    workers: Any, backend: Any, rank: int, world: int, epochs: Any, steps: Any, deadline: Any,
    on_error: Any,
) -> None:  # fmt: skip
    if workers != "auto" and (not isinstance(workers, int) or workers < 0):
        raise PlanError(f"workers is 'auto' or a whole number from 0 up, not {workers!r}")
    if backend not in ("auto", "inline", "threads", "processes", "ray"):
        raise PlanError(
            f"backend is 'auto', 'inline', 'threads', 'processes' or 'ray', not {backend!r}"
        )
    check_reader(rank, world, epochs, steps, deadline)
    if on_error != "raise" and not isinstance(on_error, Skip | Substitute):
        raise PlanError(f"on_error is 'raise', sv.Skip(…) or sv.Substitute(…), not {on_error!r}")


def _cluster(address: Any, cpus: Any, backend: str, workers: int | str) -> Cluster | None:
    """The cluster that a loader may use; nothing is joined before it is needed."""
    if cpus is not None and (not isinstance(cpus, int) or cpus < 1):
        raise PlanError(f"cpus is a whole number from 1 up, not {cpus!r}")
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
    from silva.run.cluster import Cluster

    if backend == "ray" and workers != "auto":
        cpus = min(max(int(workers), 1), cpus or int(workers))
    return Cluster(address, cpus)


def _column_values(
    seed: int, read: dict[tuple[str, str], np.ndarray], plan: logical.Node, name: str
) -> np.ndarray:
    """A whole column of a plan, read here and now, once: weights must be known before row 0."""
    key = (fingerprint(plan), name)
    if key not in read:
        read[key] = _read_column(seed, plan, name)
    return read[key]


def _read_column(seed: int, plan: logical.Node, name: str) -> np.ndarray:
    picked = logical.Batch(logical.Select(logical.without_shuffles(plan), (name,)), _READ_ROWS)
    parts = [batch[name] for batch in Loader(picked, backend="inline", seed=seed)]
    return np.concatenate(parts) if parts else np.empty(0)


def read_columns(plan: logical.Node, names: tuple[str, ...]) -> dict[str, Column]:
    """Whole columns of a plan, read here and now: of its first epoch, whoever asks."""
    picked = logical.Batch(logical.Select(plan, names), _READ_ROWS)
    with Loader(picked, backend="inline") as loader:
        blocks = list(loader.blocks())
    if not blocks:
        return {name: Values([]) for name in names}
    whole = Block.concat(blocks).columns
    plain = {n: c.expand() if isinstance(c, Grouped) else c for n, c in whole.items()}
    return {name: column.settled() for name, column in plain.items()}
