"""Who is who among the ranks of a job."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from silva.errors import PlanError
from silva.train.choice import Choice

_DIMS = ("pp", "dp", "fsdp", "tp")
"""From ranks that talk least to those that talk most, which are neighbours."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The place of this rank in a plan."""

    choice: Choice
    mesh: DeviceMesh | None
    """None for one process without a process group."""
    rank: int
    device: str

    @property
    def reader(self) -> int:
        """Which of the different shares of rows this rank reads."""
        return self.at("dp") * self.choice.fsdp + self.at("fsdp")

    @property
    def is_last_stage(self) -> bool:
        return self.at("pp") == self.choice.pp - 1

    def at(self, dim: str) -> int:
        """The coordinate of this rank."""
        return 0 if self.mesh is None else int(self.mesh.get_local_rank(dim))

    def group(self, *dims: str) -> Any:
        """The process group of the ranks that differ in this dimension alone."""
        assert self.mesh is not None
        return (
            self.mesh[dims].get_group()
            if len(dims) == 1
            else self.mesh[dims]._flatten().get_group()
        )

    def sum(self, value: Any) -> Any:
        """The sum of a tensor over all ranks, in place."""
        if self.mesh is not None:
            dist.all_reduce(value)
        return value


def layout(choice: Choice, device: str | None = None) -> Layout:
    """The place of this process among the ranks that torchrun or Ray have started.

    Raises a `PlanError` if their number is not that of the plan.
    """
    if not dist.is_initialized():
        if choice.world > 1:
            raise PlanError(
                f"the plan ({choice}) is for {choice.world} ranks, and this process is alone: "
                f"start it with torchrun --nproc-per-node {choice.world}, and call "
                "torch.distributed.init_process_group first"
            )
        return Layout(choice, None, 0, device or "cpu")
    world = dist.get_world_size()
    if world != choice.world:
        raise PlanError(f"the plan ({choice}) is for {choice.world} ranks, and there are {world}")
    kind = "cuda" if dist.get_backend() == "nccl" else "cpu"
    shape = tuple(getattr(choice, name) for name in _DIMS)
    mesh = init_device_mesh(kind, shape, mesh_dim_names=_DIMS)
    return Layout(choice, mesh, dist.get_rank(), device or kind)


def agreed(choice: Choice, world: int) -> Choice:
    """The choice of the first rank, where all ranks of a job plan it: they have all timed the
    module at once, as busy as they will be, and no two of them measure the same."""
    if not dist.is_initialized() or dist.get_world_size() != world:
        return choice
    found: list[Any] = [choice]
    dist.broadcast_object_list(found, src=0)
    made: Choice = found[0]
    return made


def start_ranks() -> None:
    """Joins the ranks that torchrun has started, each try with keys of its own: otherwise those of
    a restart would meet the keys of ranks that have died."""
    if dist.is_initialized() or "RANK" not in os.environ:
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world,
        is_master=False if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else rank == 0,
    )  # fmt: skip
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    run = os.environ.get("TORCHELASTIC_RUN_ID", "job")
    named = dist.PrefixStore(f"silva-{run}-{attempt}", store)
    dist.init_process_group(backend, store=named, rank=rank, world_size=world)
