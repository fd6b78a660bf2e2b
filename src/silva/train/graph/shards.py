"""Follows a sharded dimension through a graph, operator by operator.

Each of `n` devices holds a part of some weights, and so of the values that are computed of them. A
`Shard` says which dimension of a value is divided, and into which sections: of three stacked
projections, each device holds a part of each. Operators that take sizes as arguments (views,
splits, expands) get those of the part; all others are run on tensors of the parts' shapes, and what
comes out shows which dimension is divided. That an operator may be run on parts at all is not
decided here: `groups` proves it on numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from silva.train.graph.values import concrete, shape_of


class CannotShard(Exception):
    """Why a dimension cannot be followed further."""


@dataclass(frozen=True)
class Shard:
    """A dimension that is divided among devices."""

    dim: int
    sections: tuple[int, ...]
    """The lengths that it consists of, each of which is divided."""

    @property
    def length(self) -> int:
        return sum(self.sections)

    def indices(self, part: int, parts: int) -> list[tuple[int, int]]:
        """Where the rows of a part begin and end, section by section.

        >>> Shard(0, (4, 4)).indices(1, 2)
        [(2, 4), (6, 8)]
        """
        found, start = [], 0
        for section in self.sections:
            size = section // parts
            found.append((start + part * size, start + (part + 1) * size))
            start += section
        return found

    def take(self, tensor: Tensor, part: int, parts: int) -> Tensor:
        """A part of a tensor."""
        rows = [tensor.narrow(self.dim, a, b - a) for a, b in self.indices(part, parts)]
        return rows[0] if len(rows) == 1 else torch.cat(rows, self.dim)


@dataclass(frozen=True)
class Step:
    """An operator as a device runs it on its part."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    shard: Shard | list[Shard | None]
    """How its result is divided, or each of its results."""
    narrowed: Mapping[fx.Node, Shard]
    """Inputs that every device has whole, of which this operator takes a part."""


_VIEWS = ("view", "reshape", "_unsafe_view", "unflatten", "flatten")
_SPLITS = ("split", "split_with_sizes", "chunk")
_MATRIX = ("linear", "mm", "bmm", "matmul", "einsum", "addmm", "baddbmm")
_ADDED = ("addmm", "baddbmm")
"""Matrix products that add their first argument."""
Divided = Mapping[fx.Node, Shard | list[Shard | None]]


def name_of(node: fx.Node) -> str:
    """The name of an operator without its overload: `aten.view.default` is a `view`."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet)).rpartition(".")[2]


def step(node: fx.Node, divided: Divided, parts: int) -> Step:
    """How a device runs an operator, some of whose inputs are divided."""
    name = name_of(node)
    if node.target is operator.getitem:
        several = divided[node.args[0]]
        one = several[node.args[1]] if isinstance(several, list) else None
        if one is None:
            raise CannotShard(f"{node.name} takes a result that is not divided")
        return Step(node.args, node.kwargs, one, {})
    first = node.args[0] if node.args else None
    shard = divided.get(first) if isinstance(first, fx.Node) else None
    if isinstance(shard, Shard) and name in _VIEWS:
        return _view(node, shard, parts)
    if isinstance(shard, Shard) and name in ("expand", "broadcast_to"):
        return _expand(node, shard, parts)
    if isinstance(shard, Shard) and name in _SPLITS and _along(node, shard, 2):
        return _split(node, shard, parts)
    if isinstance(shard, Shard) and name == "slice" and _along(node, shard, 1):
        return _slice(node, shard, parts)
    return _run(node, divided, parts)


def _along(node: fx.Node, shard: Shard, position: int) -> bool:
    """Whether an operator acts along the divided dimension."""
    given = node.args[position] if len(node.args) > position else node.kwargs.get("dim", 0)
    rank = len(shape_of(node.args[0]) or ())
    return given % max(rank, 1) == shard.dim


def regroup(shard: Shard, before: Sequence[int], after: Sequence[int], parts: int) -> Shard:
    """The divided dimension after a view.

    >>> regroup(Shard(2, (64,)), (4, 16, 64), (4, 16, 8, 8), 2)
    Shard(dim=2, sections=(8,))
    >>> regroup(Shard(1, (64, 64, 64)), (4, 192), (4, 3, 64), 2)
    Shard(dim=2, sections=(64,))
    >>> regroup(Shard(1, (8,)), (4, 8, 16), (32, 16), 2)
    Shard(dim=0, sections=(8, 8, 8, 8))
    """
    ins, outs = _group_of(shard.dim, before, after)
    inner = math.prod(before[shard.dim + 1 : ins.stop])
    outer = math.prod(before[ins.start : shard.dim])
    flat = [section * inner for section in shard.sections] * outer
    for dim in outs:
        chunk = math.prod(after[dim : outs.stop])
        inside = chunk // max(after[dim], 1)
        first = _sections(flat, chunk)
        count = math.prod(after[outs.start : dim])
        if first is None or flat != first * count or any(x % (inside * parts) for x in first):
            continue
        return Shard(dim, tuple(x // inside for x in first))
    raise CannotShard(f"a view from {tuple(before)} to {tuple(after)} mixes the parts")


def _sections(flat: list[int], chunk: int) -> list[int] | None:
    """The first sections that fill a chunk exactly."""
    found, total = [], 0
    for section in flat:
        if total >= chunk:
            break
        found.append(section)
        total += section
    return found if total == chunk else None


def _group_of(dim: int, before: Sequence[int], after: Sequence[int]) -> tuple[range, range]:
    """The dimensions before and after a view that have the same elements, around one of them."""
    i = j = 0
    while i < len(before) and j < len(after):
        start, begin, left, right = i, j, before[i], after[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * before[i], i + 1
            else:
                right, j = right * after[j], j + 1
        if dim < i:
            return range(start, i), range(begin, j)
    raise CannotShard("the divided dimension has gone")


def _view(node: fx.Node, shard: Shard, parts: int) -> Step:
    source = node.args[0]
    before, after = shape_of(source), shape_of(node)
    assert before is not None
    assert after is not None
    out = regroup(shard, before, after, parts)
    args = list(node.args)
    if name_of(node) == "unflatten":
        at = int(args[1]) % len(before)
        args[2] = _divide(args[2], out.dim - at, parts)
    elif name_of(node) != "flatten":
        args[1] = _divide(args[1], out.dim, parts)
    return Step(tuple(args), node.kwargs, out, {})


def _expand(node: fx.Node, shard: Shard, parts: int) -> Step:
    before, after = shape_of(node.args[0]), shape_of(node)
    assert before is not None
    assert after is not None
    out = Shard(shard.dim + len(after) - len(before), shard.sections)
    return Step((node.args[0], _divide(node.args[1], out.dim, parts)), node.kwargs, out, {})


def _divide(sizes: Any, at: int, parts: int) -> list[Any]:
    """Sizes, of which one is divided; a size that is computed is divided where it is used."""
    divided = list(sizes)
    if 0 <= at < len(divided) and not (isinstance(divided[at], int) and divided[at] == -1):
        size = divided[at]
        divided[at] = size // parts if isinstance(size, int) else Quotient(size, parts)
    return divided


@dataclass(frozen=True)
class Quotient:
    """A size of the batch, divided among the parts."""

    size: fx.Node
    parts: int


def _split(node: fx.Node, shard: Shard, parts: int) -> Step:
    found = node.meta["val"]
    lengths = [concrete(one.shape[shard.dim]) for one in found]
    left, shards = list(shard.sections), []
    for length in lengths:
        mine = _sections(left, length)
        if mine is None or any(x % parts for x in mine):
            raise CannotShard(f"{node.name} splits within a section")
        del left[: len(mine)]
        shards.append(Shard(shard.dim, tuple(mine)))
    args = list(node.args)
    if name_of(node) == "split_with_sizes":
        args[1] = [length // parts for length in lengths]
    elif name_of(node) == "split":
        args[1] = args[1] // parts
    return Step(tuple(args), node.kwargs, list(shards), {})


def _slice(node: fx.Node, shard: Shard, parts: int) -> Step:
    """A slice of whole sections."""
    defaults = (None, 0, None, None, 1)
    given = [*node.args, *defaults[len(node.args) :]]
    start, end, jump = given[2] or 0, given[3], given[4]
    if not isinstance(start, int) or not (end is None or isinstance(end, int)) or jump != 1:
        raise CannotShard(f"{node.name} slices the divided dimension by computed sizes")
    length = shard.length
    start, end = start % length if start < 0 else start, length if end is None else end
    end = end + length if end < 0 else min(end, length)
    edges = [0]
    for section in shard.sections:
        edges.append(edges[-1] + section)
    if start not in edges or end not in edges:
        raise CannotShard(f"{node.name} slices within a section")
    kept = shard.sections[edges.index(start) : edges.index(end)]
    args = (given[0], given[1], start // parts, end // parts)
    return Step(args, {}, Shard(shard.dim, kept), {})


def _run(node: fx.Node, divided: Divided, parts: int) -> Step:
    """Runs the operator on tensors of the parts' shapes, and looks at what comes out."""
    shards = [s for n in node.all_input_nodes if isinstance(s := divided.get(n), Shard)]
    if not shards:
        raise CannotShard(f"{node.name} takes a list that is divided")
    narrowed = _narrowed(node, divided)

    def part_of(arg: fx.Node) -> Any:
        value = arg.meta.get("val")
        if not isinstance(value, Tensor):
            return concrete(value) if isinstance(value, torch.SymInt) else value
        shape = list(shape_of(arg) or ())
        shard = divided.get(arg, narrowed.get(arg))
        if isinstance(shard, Shard):
            shape[shard.dim] //= parts
        return torch.empty(shape, dtype=value.dtype, device="meta")

    args = fx.node.map_arg(node.args, part_of)
    kwargs = fx.node.map_arg(node.kwargs, part_of)
    try:
        with torch.no_grad():
            made = node.target(*args, **kwargs)
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CannotShard(f"{name_of(node)} does not take parts: {said}") from error
    wanted = node.meta.get("val")
    if isinstance(made, list | tuple):
        several = [_compare(node, a, b, shards, parts) for a, b in zip(made, wanted, strict=True)]
        return Step(node.args, node.kwargs, list(several), narrowed)
    return Step(node.args, node.kwargs, _compare(node, made, wanted, shards, parts), narrowed)


def _compare(node: fx.Node, made: Any, wanted: Any, shards: list[Shard], parts: int) -> Shard:
    part, whole = tuple(made.shape), tuple(map(concrete, wanted.shape))
    dims = [i for i, (a, b) in enumerate(zip(part, whole, strict=False)) if a != b]
    if len(part) != len(whole) or len(dims) != 1 or part[dims[0]] * parts != whole[dims[0]]:
        raise CannotShard(f"{name_of(node)} gives {part} of {whole} for a part")
    length = whole[dims[0]]
    sections = next((s.sections for s in shards if s.length == length), (length,))
    return Shard(dims[0], sections)


def _narrowed(node: fx.Node, divided: Divided) -> dict[fx.Node, Shard]:
    """Inputs that are whole where the operator wants a part: as long as a divided input is in the
    dimension that lies above its divided one."""
    found: dict[fx.Node, Shard] = {}
    others = list(node.all_input_nodes)
    if name_of(node) in _MATRIX:
        others = [a for a in node.args[:1] if isinstance(a, fx.Node) and name_of(node) in _ADDED]
    for other in others:
        shape = shape_of(other)
        if other in divided or shape is None or len(shape) < 1:
            continue
        for one in node.all_input_nodes:
            shard, whole = divided.get(one), shape_of(one)
            if not isinstance(shard, Shard) or whole is None:
                continue
            dim = shard.dim - len(whole) + len(shape)
            if 0 <= dim < len(shape) and shape[dim] == shard.length and shard.length > 1:
                if math.prod(shape) >= math.prod(whole) and "attention" not in name_of(node):
                    raise CannotShard(f"{name_of(node)} joins {other.name}, which is as large")
                found[other] = Shard(dim, shard.sections)
                break
    return found
