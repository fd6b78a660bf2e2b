"""Ways to run a drawn pipeline, and what came of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import numpy as np
import psutil
from fuzz_case import Case

import silva as sv
from silva.columns.ragged import Grouped, Ragged
from silva.cost.model import Backend
from silva.errors import FailureBudgetExceeded, PlanError, RowError, SourceError
from silva.plan.schema import is_batched
from silva.rewrite.runner import CHOICES, batches
from silva.run.pools.processes import ProcessPool
from silva.testing import cut_blocks, digest, replanned

POOL_USES = 40
"""Loaders that use one pool of processes, before it is ended and another one is made."""


@cache
def rules() -> tuple[str, ...]:
    sv.laws()
    return (*(rule.name for batch in batches() for rule in batch.rules), *CHOICES)


@dataclass(frozen=True)
class Way:
    """How a loader runs."""

    backend: str = "inline"
    workers: int = 0
    plan: str = "optimised"
    """optimised; written (but that what nobody reads is not run); as is; replanned; some."""
    sizes: tuple[int, ...] = ()
    """Of blocks, again and again; its own choice where there are none."""
    seed: int = 0
    own_pool: bool = False
    """Processes of its own, not those that loaders share here."""
    writes: bool = False
    """The consumer writes into every batch that it got."""

    def __str__(self) -> str:
        told = self.backend if self.backend == "inline" else f"{self.workers} {self.backend}"
        if self.own_pool:
            told += " of its own"
        told += f", plan {self.plan}"
        if self.plan in ("replanned", "some"):
            told += f" (seed {self.seed})"
        if self.writes:
            told += ", a consumer that writes"
        return f"{told}, blocks of {self.sizes}" if self.sizes else told

    def planned(self, pipeline: sv.Pipeline) -> sv.Pipeline:
        match self.plan:
            case "as is":
                return pipeline.options(optimize=False)
            case "written":
                return pipeline.options(disable=[n for n in rules() if n != "drop_unread"])
            case "some":
                chance = Random(self.seed)
                off = [n for n in rules() if n != "drop_unread" and chance.random() < 0.5]
                return pipeline.options(disable=off)
        return pipeline

    @contextmanager
    def loader(self, pipeline: sv.Pipeline, **options: Any) -> Iterator[sv.Loader]:
        how: dict[str, Any] = {"backend": self.backend, "workers": self.workers, **options}
        if self.backend == "ray":
            how["cluster"] = "auto"
        made = self.planned(pipeline).loader(**how)
        if self.plan == "replanned":
            made = replanned(made, self.seed)
        if self.sizes:
            made = cut_blocks(made, self.sizes)
        if not self.own_pool:
            made = made.with_seams(pool=SHARED.lend)
        with made as loader:
            yield loader


REFERENCE = Way(plan="written")


class SharedPool:
    """Processes that many loaders use, one after another: starting them takes longer than most
    cases."""

    def __init__(self) -> None:
        self._pool: ProcessPool | None = None
        self._uses = 0

    def lend(self, backend: Backend) -> ProcessPool | None:
        """The pool of processes; other pools are each loader's own."""
        return self._get() if backend == "processes" else None

    def _get(self) -> ProcessPool:
        self._uses += 1
        if self._pool is None or self._pool.queue.broken or self._uses > POOL_USES:
            self.end()
            self._pool = ProcessPool(2)
            self._pool.start()
            self._uses = 1
        return self._pool

    def end(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


SHARED = SharedPool()


@dataclass
class Effort:
    """How much is done for a case, and how much was done."""

    processes: float = 0.12
    """The share of cases that also run in processes."""
    ray: bool = False
    """Whether each also runs on Ray, to which this process is connected."""
    runs: int = 0


class Different(Exception):
    """Two ways to run a pipeline disagree."""

    def __init__(self, what: str, said: str) -> None:
        super().__init__(said)
        self.what = what
        """In a word or two, by which a smaller case is known to fail for the same reason."""


class Hung(BaseException):
    """A case takes too long; raised by a signal, wherever it is."""


class Broken(Exception):
    """A batch that is not what every batch is."""


@dataclass
class Outcome:
    """What one loader gave."""

    epochs: list[list[str]] = field(default_factory=list)
    batches: list[list[Any]] = field(default_factory=list)
    states: list[tuple[int, int, str]] = field(default_factory=list)
    """(epoch, batches given, the state)."""
    failures: list[list[tuple[str, ...]]] = field(default_factory=list)
    """Of each epoch: (key, step, error)."""
    error: tuple[str, ...] | None = None

    def rest(self, epoch: int, given: int) -> Outcome:
        """What must come after a state; failures before it are still in."""
        cut = (
            [self.epochs[epoch][given:], *self.epochs[epoch + 1 :]]
            if epoch < len(self.epochs)
            else []
        )
        kept = [self.batches[epoch][given:], *self.batches[epoch + 1 :]] if cut else []
        return Outcome(cut, kept, [], self.failures[epoch:], self.error)


def run(
    pipeline: sv.Pipeline,
    way: Way,
    *,
    epochs: int = 1,
    state: str | None = None,
    states: bool = False,
    **options: Any,
) -> Outcome:
    """Reads epochs, from a state if there is one."""
    found = Outcome()
    with way.loader(pipeline, **options) as loader:
        try:
            if state is not None:
                loader.load_state_dict(json.loads(state))
                if json.dumps(loader.state_dict()["cursors"]) != json.dumps(
                    json.loads(state)["cursors"]
                ):
                    raise Broken("a loaded state is another state")
            for _ in range(epochs):
                _read_epoch(loader, found, way, states, is_batched(pipeline.plan))
        except (KeyboardInterrupt, Hung, Broken):
            raise
        except BaseException as error:  # noqa: BLE001  whatever a step raised is compared
            found.error = told(error)
            found.failures.append(_failures(loader, found))
    return found


def _read_epoch(loader: sv.Loader, found: Outcome, way: Way, states: bool, batched: bool) -> None:
    epoch = len(found.epochs)
    given: list[str] = []
    kept: list[Any] = []
    found.epochs.append(given)
    found.batches.append(kept)
    for batch in loader:
        given.append(digest(batch))
        kept.append(deepcopy(batch) if way.writes else batch)
        if batched:
            check_batch(batch)
        if way.writes:
            overwrite(batch)
        if states:
            found.states.append((epoch, len(given), json.dumps(loader.state_dict())))
    found.failures.append(_failures(loader, found))
    if states:
        found.states.append((epoch + 1, 0, json.dumps(loader.state_dict())))


def _failures(loader: sv.Loader, found: Outcome) -> list[tuple[str, ...]]:
    before = sum(map(len, found.failures))
    if hidden := [f.error for f in loader.failures if " must return " in f.error]:
        raise Broken(f"a wrong answer of a source is taken for a row's failure: {hidden[0]}")
    return [(f.key, f.step, f.error) for f in loader.failures[before:]]


def check_causes(error: BaseException) -> None:
    """Who follows the causes of an error comes to an end."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        if any(cause is one for one in seen):
            raise Broken(f"an error is its own cause: {error!r}")
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__


def told(error: BaseException) -> tuple[str, ...]:
    """Of an error, what every way to run must agree on."""
    check_causes(error)
    if isinstance(error, RowError):
        return "RowError", error.key, error.step
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  one that has no text
        text = "(no text)"
    if isinstance(error, PlanError):
        return (name,)  # which of several mistakes is named depends on the plan
    if isinstance(error, FailureBudgetExceeded):
        return name, text.partition(";")[0]
    if isinstance(error, SourceError):  # how many rows were asked for depends on the state
        text = text.partition(" must return")[0]
    return name, text.partition("\n")[0]


def check_batch(batch: dict[str, Any]) -> None:
    for name, value in batch.items():
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            raise Broken(f"column {name!r} of a batch is read-only")


def overwrite(value: Any) -> None:
    """Writes into a batch wherever it can be written: nobody else may see it."""
    match value:
        case dict():
            for inner in value.values():
                overwrite(inner)
            value["overwritten"] = True
        case list():
            for inner in value:
                overwrite(inner)
            value.append("overwritten")
        case Grouped():
            overwrite(value.unique)
            overwrite(value.inverse)
        case Ragged():
            overwrite(value.values)
            overwrite(value.offsets)
        case np.ndarray() if value.dtype.hasobject:
            for inner in value.ravel().tolist():
                overwrite(inner)
        case np.ndarray() if value.flags.writeable and value.size:
            np.ma.getdata(value)[...] = np.zeros((), value.dtype)
            if isinstance(value, np.ma.MaskedArray):
                value.mask = True


def lengths(batch: dict[str, Any]) -> set[int]:
    return {
        len(value.inverse) if isinstance(value, Grouped) else len(value) for value in batch.values()
    }


def left_behind() -> list[str]:
    """Threads of silva's, and processes but for the shared ones."""
    shared = set(SHARED._pool.processes()) if SHARED._pool is not None else set()
    keepers = {k.thread for k in SHARED._pool._keepers} if SHARED._pool is not None else set()
    found = [
        f"thread {t.name}"
        for t in threading.enumerate()
        if t.name.startswith("silva-") and t not in keepers
    ]
    found += [f"process {p.pid}" for p in psutil.Process().children() if p.pid not in shared]
    return found


def options(case: Case, policy: str | None = None) -> dict[str, Any]:
    return {"seed": case.loader_seed, "on_error": case.on_error(policy)}
