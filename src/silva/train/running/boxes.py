"""Which parts of a whole tensor a rank holds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Shard as FsdpShard

from silva.train.graph.shards import Shard
from silva.train.running.layout import Layout


@dataclass(frozen=True)
class Range:
    """Rows of one dimension: where they are here, and where in the whole tensor."""

    here: int
    there: int
    length: int


@dataclass(frozen=True)
class Box:
    """A block of a tensor: where it begins here and in the whole tensor, and how large it is."""

    here: tuple[int, ...]
    there: tuple[int, ...]
    shape: tuple[int, ...]

    def overlap(self, start: Sequence[int], shape: Sequence[int]) -> Overlap | None:
        """What it has in common with a stored box, which begins at `start` of the whole tensor."""
        low = [max(a, b) for a, b in zip(self.there, start, strict=True)]
        ends = zip(self.there, self.shape, start, shape, strict=True)
        high = [min(a + n, b + m) for a, n, b, m in ends]
        size = [b - a for a, b in zip(low, high, strict=True)]
        if any(length <= 0 for length in size):
            return None
        here = (h + a - t for h, a, t in zip(self.here, low, self.there, strict=True))
        stored = (a - s for a, s in zip(low, start, strict=True))
        return Overlap(tuple(here), tuple(stored), tuple(size))


@dataclass(frozen=True)
class Overlap:
    """What a box here and a stored one have in common."""

    here: tuple[int, ...]
    stored: tuple[int, ...]
    shape: tuple[int, ...]


def slices(start: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))


def whole_shape(tensor: Tensor, shard: Shard | None, parts: int) -> tuple[int, ...]:
    """The shape of the whole tensor that this one is a part of."""
    shape = list(tensor.shape)  # that of a DTensor is the whole that FSDP has divided
    if shard is not None:
        shape[shard.dim] *= parts
    return tuple(shape)


def boxes(tensor: Tensor, shard: Shard | None, layout: Layout) -> list[Box]:
    """The boxes of the whole tensor that this rank holds. FSDP divides what a rank of `tp` has, so
    its rows are looked up in those of the part."""
    ranges = [[Range(0, 0, size)] for size in tensor.shape]
    if shard is not None:
        rows, here = [], 0
        for start, end in shard.indices(layout.at("tp"), layout.choice.tp):
            rows.append(Range(here, start, end - start))
            here += end - start
        ranges[shard.dim] = rows
    for dim, start, length in _fsdp(tensor):
        ranges[dim] = list(_within(ranges[dim], start, length))
    return [
        Box(tuple(r.here for r in one), tuple(r.there for r in one), tuple(r.length for r in one))
        for one in itertools.product(*ranges)
        if math.prod(r.length for r in one) or not one
    ]


def _fsdp(tensor: Tensor) -> Iterator[tuple[int, int, int]]:
    """The dimension that FSDP has divided, and the rows of this rank."""
    if not isinstance(tensor, DTensor):
        return
    for place, size, rank in zip(
        tensor.placements,
        tensor.device_mesh.shape,
        tensor.device_mesh.get_coordinate() or (),
        strict=True,
    ):
        if isinstance(place, FsdpShard):
            length = tensor.shape[place.dim]
            chunk = -(-length // size)
            start = min(rank * chunk, length)
            yield place.dim, start, min(chunk, length - start)


def _within(ranges: Sequence[Range], start: int, length: int) -> Iterator[Range]:
    """The rows between two positions here, which begin at 0 again."""
    for one in ranges:
        low, high = max(one.here, start), min(one.here + one.length, start + length)
        if low < high:
            yield Range(low - start, one.there + low - one.here, high - low)
