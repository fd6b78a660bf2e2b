"""Batches of a step, their microbatches, and what is asked of a loss and of an optimiser."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from silva.errors import PlanError

Loss = Callable[[Any, Any], tuple[Tensor, Any]]
"""`loss(output, batch) -> (sum, count)`."""
MakeOptimizer = Callable[[list[tuple[str, nn.Parameter]]], Any]
"""Makes an optimiser, or several, of named parameters."""


def to_device(batch: Any, device: str) -> Any:
    """A batch with its tensors on a device."""
    if device == "cpu":
        return batch
    move = lambda leaf: leaf.to(device, non_blocking=True) if isinstance(leaf, Tensor) else leaf  # noqa: E731
    return pytree.tree_map(move, batch)


def rows_of(batch: Any) -> int:
    """The rows of a batch: the length of the first dimension of its tensors."""
    lengths = {
        leaf.shape[0]
        for leaf in pytree.tree_leaves(batch)
        if isinstance(leaf, Tensor) and leaf.dim()
    }
    if len(lengths) != 1:
        raise PlanError(
            f"the tensors of a batch have {sorted(lengths) or 'no'} rows: each must have the rows "
            "in its first dimension, and as many"
        )
    return int(lengths.pop())


def microbatches(batch: Any, count: int, *, equal: bool) -> list[Any]:
    """A batch in so many parts. `equal`: a pipeline has fixed shapes, so its rows must divide."""
    if count == 1:
        return [batch]
    rows = rows_of(batch)
    if rows < count or (equal and rows % count):
        raise PlanError(
            f"a batch of {rows} rows does not divide into {count} microbatches: choose batches of "
            f"{-(-rows // count) * count} rows, or other microbatches, or drop the last batch"
        )
    edges = [rows * i // count for i in range(count + 1)]
    return [_slice(batch, a, b) for a, b in itertools.pairwise(edges)]


def _slice(batch: Any, start: int, end: int) -> Any:
    def part(leaf: Any) -> Any:
        return leaf[start:end] if isinstance(leaf, Tensor) and leaf.dim() else leaf

    return pytree.tree_map(part, batch)


def tensors(leaves: Sequence[Any]) -> list[Tensor]:
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def shapes(batch: Any) -> list[tuple[int, ...]]:
    """The shapes of a batch's tensors."""
    return [tuple(leaf.shape) for leaf in tensors(pytree.tree_leaves(batch))]


def numbers(count: int) -> Tensor:
    """What a pipeline schedule is given in place of a batch: the numbers of its microbatches."""
    return torch.arange(count)
