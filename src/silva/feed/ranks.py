"""Which rank this process is, of how many: asked of whoever runs the job.

Only what the program itself has set up is asked: torch.distributed once its process group is there,
else Ray Train within one of its workers. Nothing is imported for it, and variables of the
environment are not believed: they outlive the job that they were meant for.
"""

from __future__ import annotations

import sys
from typing import NamedTuple


class Ranks(NamedTuple):
    rank: int = 0
    world: int = 1
    group: str | None = None
    """Over what ranks can agree on the number of steps: `"auto"` for torch's default group."""


def ranks_here() -> Ranks:
    """This process among those of its job; the only one where there is no job.

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
    return Ranks()
