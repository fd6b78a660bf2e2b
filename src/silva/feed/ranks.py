"""Which rank of a distributed job this process is, and whether all ranks have one more batch.

Rank and world size come from what the program has set up: torch.distributed once its process group
exists, else Ray Train inside one of its workers. Nothing is imported to find out. Environment
variables are not trusted, because they outlive the job that set them; where they name several ranks
and no process group exists, there is a warning.

Ranks with different numbers of rows agree before each step by a MIN all-reduce of one byte. Without
it, the rank with the fewest rows would stop first, and the others would wait for ever in the next
collective operation of their training step.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, NamedTuple

from silva.errors import LoaderError


class Ranks(NamedTuple):
    rank: int = 0
    world: int = 1
    group: str | None = None
    """The process group over which ranks agree on steps; `"auto"` is torch's default group."""


def ranks_here() -> Ranks:
    """The rank and world size of this process; rank 0 of 1 outside of a distributed job.

    >>> ranks_here()
    Ranks(rank=0, world=1, group=None)
    """
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return Ranks(torch.get_rank(), torch.get_world_size(), "auto")
    train = sys.modules.get("ray.train")
    if train is not None:
        try:
            context = train.get_context()
            rank, world = context.get_world_rank(), context.get_world_size()
        except RuntimeError:  # not in a worker of Ray Train
            return Ranks()
        return Ranks() if rank is None or world is None else Ranks(rank, world)
    started_as, of = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if started_as.isdecimal() and of.isdecimal() and int(of) > 1:
        warnings.warn(
            f"this process was started as rank {started_as} of {of} (RANK and WORLD_SIZE are set), "
            "but torch.distributed has no process group, so every process reads all rows: call "
            "torch.distributed.init_process_group() before loader(), or pass rank= and world= "
            "(rank=0, world=1 if every process should read all rows)",
            stacklevel=3,  # the caller of loader()
        )
    return Ranks()


def all_have_one(have: bool, group: Any) -> bool:
    """Whether every rank of the group has a batch; `"auto"` is torch's default group."""
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise LoaderError(
            "loader(group=…) needs torch.distributed, which has no process group: call "
            "torch.distributed.init_process_group(…) before the loop, or pass steps=… instead"
        )
    process_group = None if isinstance(group, str) else group
    flag = torch.tensor([int(have)], dtype=torch.uint8, device=_device(process_group))
    dist.all_reduce(flag, op=dist.ReduceOp.MIN, group=process_group)
    return bool(flag.item())


def _device(group: Any) -> Any:
    """The device on which the group's backend reduces: the CPU where it can, which is cheapest."""
    import torch
    import torch.distributed as dist

    backends = str(dist.get_backend_config(group))  # e.g. "cpu:gloo,cuda:nccl"
    if "cpu:" in backends or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())
