"""The arguments of `pipeline.loader(…)` and `sv.connect(…)`, checked when they are made."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Literal, TypedDict

from silva.cost.model import Backend
from silva.errors import PlanError
from silva.order.state import MOST_SHARDS
from silva.plan.arguments import flag, natural, number, one_of, path_of, unknown, whole
from silva.run.failures import Policy, Skip, Substitute

DEADLINE = 600.0
"""Seconds that a wait may take, unless the user sets another deadline."""


@dataclass(frozen=True, kw_only=True)
class ReaderOptions:
    """What any reader chooses, whether it runs the pipeline or a service does."""

    seed: int | None = None
    """The seed of all randomness; None for the seed of the pipeline."""
    rank: int | None = None
    """The rank that reads; None for the rank of this process."""
    world: int = 1
    """The number of ranks of the job."""
    epochs: int | None = None
    """The number of loops that there will be: lets the loader cache rows for later epochs and start
    the next epoch before this one is over."""
    steps: int | None = None
    """The number of batches in an epoch, the same on all ranks."""
    eval: bool = False
    """Evaluation: every row exactly once, not shuffled, with a `mask` on padded rows."""
    deadline: float = DEADLINE
    """Seconds that a wait for a batch may take before it is an error that names the step."""

    def __post_init__(self) -> None:
        flag("loader(eval=…)", self.eval)
        natural("world", self.world, least=1, most=MOST_SHARDS)
        if self.rank is None and self.world != 1:
            raise PlanError(
                f"loader(world={self.world!r}) does not say which of the ranks this process is: "
                "pass rank=… as well, as in loader(rank=dist.get_rank(), "
                "world=dist.get_world_size())"
            )
        if self.rank is not None and not 0 <= whole("rank", self.rank) < self.world:
            raise PlanError(
                f"rank counts from 0 to world - 1: rank={self.rank!r}, world={self.world!r}"
            )
        for name, value in (("epochs", self.epochs), ("steps", self.steps)):
            if value is not None:
                natural(name, value, least=1)
        if not number("deadline: seconds", self.deadline) > 0:
            raise PlanError(f"deadline is in seconds and positive, not {self.deadline!r}")


@dataclass(frozen=True, kw_only=True)
class LoaderOptions(ReaderOptions):
    """The arguments of `pipeline.loader(…)`.

    Only `seed`, `rank`, `world`, `steps`, `eval` and, for rows that fail, `on_error` change which
    batches an epoch yields, and `ordered=False` their order. The others change only how it runs.

    >>> LoaderOptions(workers=2, on_error="raise").workers
    2
    """

    workers: int | Literal["auto"] = "auto"
    """The maximum number of workers; `auto` is the number of cores, or up to 32 threads for a stage
    whose rows mostly wait. Silva starts only as many as it needs."""
    backend: Backend | Literal["auto"] = "auto"
    """Where stages run: `inline`, `threads`, `processes` or `ray`; `auto` measures and chooses."""
    memory: int | str | Literal["auto"] = "auto"
    """The memory budget for rows in flight and cached rows, in bytes or as in `"2GiB"`."""
    on_error: Policy = "raise"
    """The policy for rows that fail: `"raise"`, `sv.Skip(…)` or `sv.Substitute(…)`."""
    failures: str | Path | None = None
    """A file to which each run appends its failed rows, as JSON lines."""
    cache: int | str = "auto"
    """Bytes of disk for rows that later epochs need again; `"off"` for no such cache."""
    group: Any = None
    """The torch.distributed group in which ranks agree on the end of an epoch, or `"auto"`."""
    ordered: bool = True
    """Whether batches keep their order; False lets rows that are ready overtake slow ones."""
    progress: bool = False
    """Whether to show a live line on stderr."""
    cluster: str | None = None
    """The Ray cluster to use if local cores are too few: `local`, `auto` or `ray://host:port`."""
    cpus: int | None = None
    """The maximum number of CPUs to use on the cluster."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_auto(self.workers):
            natural("loader(workers=…), if not 'auto',", self.workers)
        one_of("backend", self.backend, "auto", "inline", "threads", "processes", "ray")
        for name in ("ordered", "progress"):
            flag(f"loader({name}=…)", getattr(self, name))
        policy: Any = self.on_error
        if not isinstance(policy, Skip | Substitute) and not (
            isinstance(policy, str) and policy == "raise"
        ):
            raise PlanError(f"on_error is 'raise', sv.Skip(…) or sv.Substitute(…), not {policy!r}")
        if not (self.group is None or is_auto(self.group) or _is_process_group(self.group)):
            raise PlanError(
                "loader(group=…) takes a process group of torch.distributed or 'auto', not "
                f"{self.group!r}"
            )
        if self.failures is not None:
            path_of("loader(failures=…)", self.failures)
        if self.cpus is not None:
            natural("loader(cpus=…)", self.cpus, least=1)


class RunArguments(TypedDict, total=False):
    """The part of `LoaderOptions` that says how rows are made, as keyword arguments: what a service
    may be given beside its own."""

    workers: int | Literal["auto"]
    backend: Backend | Literal["auto"]
    on_error: Policy
    failures: str | Path | None
    cache: int | str
    ordered: bool
    progress: bool
    deadline: float
    cluster: str | None
    cpus: int | None


class WriteArguments(RunArguments, total=False):
    """The part of `LoaderOptions` that one process chooses for one epoch, as keyword arguments."""

    memory: int | str | Literal["auto"]
    seed: int | None


class LoaderArguments(WriteArguments, total=False):
    """`LoaderOptions` as keyword arguments, for signatures."""

    rank: int | None
    world: int
    epochs: int | None
    steps: int | None
    eval: bool
    group: Any


@dataclass(frozen=True, kw_only=True)
class ServiceOptions(ReaderOptions):
    """The arguments of `pipeline.loader(service=address, …)` and `sv.connect(address, name, …)`."""

    token: str | None = None
    """The service's token; None for the one in the environment variable `SILVA_TOKEN`."""
    certificate: str | Path | None = None
    """A file with the certificate to trust at an `https://` address; None for the system's."""
    aligned: bool = False
    """Each rank gets its rows of one batch of the whole job, so that the lengths of all ranks are
    alike in every step; otherwise each rank reads its own shards."""
    exact: bool = True
    """False lets the first epoch begin in the middle of a run that other jobs share, which costs
    the service nothing."""
    memory: int | str = 256 << 20
    """Bytes of batches that are fetched ahead, and of the largest response (at least 64 MiB)."""
    wait: bool = True
    """Retries for `deadline` seconds while no service answers; False raises at once."""


class ServiceArguments(TypedDict, total=False):
    """`ServiceOptions` as keyword arguments, for signatures."""

    token: str | None
    certificate: str | Path | None
    rank: int | None
    world: int
    aligned: bool
    exact: bool
    seed: int | None
    eval: bool
    epochs: int | None
    steps: int | None
    memory: int | str
    deadline: float
    wait: bool


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _is_process_group(value: Any) -> bool:
    dist = sys.modules.get("torch.distributed")  # who has a group has imported it
    kind = getattr(dist, "ProcessGroup", None)  # absent in a torch without it
    return kind is not None and isinstance(value, kind)


def arguments_of(reader: type) -> set[str]:
    """Returns the names of the arguments that a reader accepts."""
    return {n for n, p in signature(reader).parameters.items() if p.kind is p.KEYWORD_ONLY}


def check_known(verb: str, arguments: Iterable[str], *readers: type) -> None:
    """Raises a `PlanError` for an argument that none of the readers accepts."""
    there = {name for reader in readers for name in arguments_of(reader)}
    for name in arguments:
        if name not in there:
            raise unknown(verb, name, sorted(there))
