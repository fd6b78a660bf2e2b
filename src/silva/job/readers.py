"""The rows of a rank: read once for all ranks that need the same ones.

Ranks of one stage order and of `tp` compute on the same rows. The first of them reads, and sends
each batch to the others: a pipeline runs once for each share of the rows, on whatever host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from silva.errors import PlanError
from silva.loader import Loader
from silva.order.state import merge_states
from silva.pipeline import Pipeline
from silva.plan import node as logical
from silva.train.running.layout import Layout

_MOST_SHARDS = 64
"""Shards of a job's order: its rank counts are the divisors of their number."""


def batch_rows(pipeline: Pipeline) -> int:
    """The rows of a global batch.

    Raises a `PlanError` for a pipeline that has no batches of a fixed size.
    """
    node: Any = pipeline.plan
    while isinstance(node, logical.OneInput) and not isinstance(node, logical.Batch):
        node = node.input
    if not isinstance(node, logical.Batch) or node.size is None:
        raise PlanError("a job reads batches: end the pipeline with batch(64, drop_last=True)")
    return node.size


def with_shards(pipeline: Pipeline, rows: int, readers: int) -> Pipeline:
    """The pipeline in as many shards as its batches divide into, at most 64, unless it says itself:
    the same global batches then come from any number of ranks that divides their number."""
    shards = max(
        n for n in range(1, min(rows, _MOST_SHARDS) + 1) if rows % n == 0 and n % readers == 0
    )
    return pipeline.options(shards=shards)


def check_readers(rows: int, readers: int) -> None:
    if rows % readers:
        raise PlanError(
            f"a batch of {rows} rows does not divide among {readers} readers: choose a batch size "
            f"that is a multiple, such as {math.ceil(rows / readers) * readers}"
        )


class Reader:
    """The batches of a rank, as tensors."""

    def __init__(
        self, pipeline: Pipeline, layout: Layout, *, evaluate: bool = False, **options: Any
    ) -> None:
        self.layout = layout
        choice = layout.choice
        self.leads = layout.at("pp") == 0 and layout.at("tp") == 0
        """Whether this rank reads, and sends to the others."""
        self._alone = choice.pp * choice.tp == 1
        self._feed: Any = None
        self._loader: Loader | None = None
        if self.leads:
            options |= {"rank": layout.reader, "world": choice.readers, "eval": evaluate}
            self._loader = pipeline.loader(**options)
            self._feed = self._loader.to_torch()
        self._peers: Any = None if self._alone else layout.group("pp", "tp")
        self.waited = 0.0
        """Seconds that this rank waited for rows so far."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        if self._alone:
            yield from self._feed
            return
        batches = iter(self._feed) if self.leads else None
        while True:
            batch = next(batches, None) if batches is not None else None
            shared = self._share(batch)
            if shared is None:
                return
            yield shared

    def _share(self, batch: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """A batch of the first rank, on all of them; None after the last."""
        source = dist.get_global_rank(self._peers, 0)
        form: list[Any] = [None if batch is None else _form(batch)]
        dist.broadcast_object_list(form, src=source, group=self._peers)
        if form[0] is None:
            return None
        found: dict[str, Any] = {}
        for name, what in form[0].items():
            if not isinstance(what, tuple):
                found[name] = what[0]
                continue
            shape, dtype = what
            tensor = (
                batch[name].contiguous() if batch is not None else torch.empty(shape, dtype=dtype)
            )
            dist.broadcast(tensor, src=source, group=self._peers)
            found[name] = tensor
        return found

    def state(self) -> dict[str, Any] | None:
        """The state of all readers together, after the latest batch: on rank 0."""
        own = self._feed.state_dict() if self._feed is not None else None
        if not dist.is_initialized():
            return own
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, own)
        states = [one for one in every if one is not None]
        return merge_states(states) if len(states) > 1 else states[0]

    def load(self, state: Mapping[str, Any]) -> None:
        if self._feed is not None:
            self._feed.load_state_dict(state)

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()


def _form(batch: Mapping[str, Any]) -> dict[str, Any]:
    """What the other ranks need to make room for a batch: shapes and types, or values in a list."""
    return {
        name: (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else [value]
        for name, value in batch.items()
    }
