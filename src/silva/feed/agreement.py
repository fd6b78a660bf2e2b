"""Ranks agree on whether to take one more step: a MIN all-reduce of one byte a batch.

Without it, the rank with the fewest rows would stop first, and the others would wait for it in the
next collective operation of the training step, for ever.
"""

from __future__ import annotations

from typing import Any

from silva.errors import LoaderError


def all_have_one(have: bool, group: Any) -> bool:
    """Whether every rank of the group has a batch; `"auto"` is torch's default group."""
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise LoaderError(
            "loader(group=…) lets ranks agree over torch.distributed, which is not set up: call "
            "torch.distributed.init_process_group(…) before the loop, or give steps=… instead"
        )
    members = None if isinstance(group, str) else group
    flag = torch.tensor([int(have)], dtype=torch.uint8, device=_device(members))
    dist.all_reduce(flag, op=dist.ReduceOp.MIN, group=members)
    return bool(flag.item())


def _device(group: Any) -> Any:
    """Where the group's backend wants its tensors: main memory if it can, as it is the cheapest."""
    import torch
    import torch.distributed as dist

    backends = str(dist.get_backend_config(group))  # e.g. "cpu:gloo,cuda:nccl"
    if "cpu:" in backends or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())
