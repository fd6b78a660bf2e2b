"""Who is who among the ranks of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
        return self.mesh[dims].get_group() if len(dims) == 1 else self.mesh[dims]._flatten().get_group()

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
                f"the plan ({choice}) is for {choice.world} ranks, and this process is alone: start "
                f"it with torchrun --nproc-per-node {choice.world}, and call "
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
