"""Times the parts of a module on this machine: real tensors, forward and backward.

Parts with the same operators on the same shapes, such as the layers of a network, are timed once.
A part's time is shared out to its operators by their FLOPs and bytes, so that any cut has a cost.
Each is timed with the whole batch and with half of it: what a part takes is a constant, for calling
its operators, and a rate per row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, fx, nn

from silva.train.graph.pieces import Span, make
from silva.train.graph.trace import Traced
from silva.train.graph.values import Work, bytes_of, dtype_of, shape_of

_REPEATS = 3
"""Runs of a part, of which the fastest counts."""
_BYTES_PER_FLOP = 10.0
"""FLOPs that take as long as moving a byte: for sharing out a part's time among its operators."""


@dataclass(frozen=True)
class Line:
    """Seconds as a function of rows."""

    constant: float
    per_row: float

    def at(self, rows: float) -> float:
        return self.constant + self.per_row * rows

    def times(self, share: float) -> Line:
        return Line(self.constant * share, self.per_row * share)

    def __add__(self, other: Line) -> Line:
        return Line(self.constant + other.constant, self.per_row + other.per_row)


NO_TIME = Line(0.0, 0.0)


@dataclass(frozen=True)
class Timing:
    """What an operator takes."""

    forward: Line
    backward: Line


def measure(
    traced: Traced,
    parts: Sequence[Span],
    work: Mapping[fx.Node, Work],
    batch: Any,
    model: nn.Module,
) -> dict[fx.Node, Timing]:
    """Seconds of each operator."""
    state: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    leaves = pytree.tree_leaves(batch)
    rows = next(leaf.shape[0] for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim())
    known: dict[str, tuple[Line, Line]] = {}
    found: dict[fx.Node, Timing] = {}
    for part in parts:
        key = _signature(part)
        if key not in known:
            module = make(traced, part, lambda name: _real(state[name], traced, name))
            known[key] = _time(module, part, leaves, rows, traced.dynamic)
        forward, backward = known[key]
        weights = {node: _weight(work.get(node, Work())) for node in part.nodes}
        total = sum(weights.values()) or 1.0
        for node, weight in weights.items():
            share = weight / total
            found[node] = Timing(forward.times(share), backward.times(share))
    return found


def _weight(work: Work) -> float:
    return work.flops + _BYTES_PER_FLOP * work.nbytes + 1.0


def _signature(part: Span) -> str:
    numbers: dict[fx.Node, int] = {}

    def numbered(node: fx.Node) -> str:
        return f"%{numbers.setdefault(node, len(numbers))}:{shape_of(node)}"

    return "\n".join(
        f"{node.target}{fx.node.map_arg((node.args, dict(node.kwargs)), numbered)}"
        for node in part.nodes
    )


def _real(value: Tensor, traced: Traced, name: str) -> Tensor:
    """A parameter with memory: that of a module on the meta device has none."""
    if not value.is_meta:
        return value
    made = torch.empty(value.shape, dtype=value.dtype)
    made = made.normal_(std=0.02) if made.is_floating_point() else made.zero_()
    return nn.Parameter(made, value.requires_grad) if isinstance(value, nn.Parameter) else made


def _time(
    module: nn.Module, part: Span, leaves: list[Any], rows: int, dynamic: bool
) -> tuple[Line, Line]:
    """Seconds of the forward and of the backward pass of a part."""
    sizes = [rows] if not dynamic or rows < 4 else [rows, rows // 2]
    each = [_run(module, part, leaves, rows, size) for size in sizes]
    return _line(sizes, [one[0] for one in each]), _line(sizes, [one[1] for one in each])


def _line(sizes: Sequence[int], seconds: Sequence[float]) -> Line:
    if len(sizes) == 1:
        return Line(0.0, seconds[0] / sizes[0])
    slope = max((seconds[0] - seconds[1]) / (sizes[0] - sizes[1]), 0.0)
    constant = max(seconds[0] - slope * sizes[0], 0.0)
    return Line(constant, (seconds[0] - constant) / sizes[0])


def _run(
    module: nn.Module, part: Span, leaves: list[Any], rows: int, size: int
) -> tuple[float, float]:
    args = [leaf[:size] if isinstance(leaf, Tensor) and leaf.dim() else leaf for leaf in leaves]
    taken = [_drawn(node, rows, size) for node in part.takes]
    forward: list[float] = []
    backward: list[float] = []
    for _ in range(_REPEATS):
        inputs = [one.detach().requires_grad_(one.is_floating_point()) for one in taken]
        out, spent = _clock(partial(module, *args, *inputs))
        forward.append(spent)
        flowing = [one for one in out if isinstance(one, Tensor) and one.requires_grad]
        if flowing:
            ones = [torch.ones_like(one) for one in flowing]
            _, spent = _clock(partial(torch.autograd.backward, flowing, ones))
            backward.append(spent)
        for parameter in module.parameters():
            parameter.grad = None
    return min(forward), min(backward, default=0.0)


def _clock(act: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    found = act()
    return found, time.perf_counter() - began


def _drawn(node: fx.Node, rows: int, size: int) -> Tensor:
    """A value that a part takes, for a batch of so many rows."""
    shape = [size if n == rows and i == 0 else n for i, n in enumerate(shape_of(node) or ())]
    if shape and shape[0] % rows == 0 and shape[0] != size and size != rows:
        shape[0] = shape[0] // rows * size  # rows and positions in one dimension
    return torch.randn(shape, dtype=dtype_of(node))


def activations(nodes: Sequence[fx.Node], flows: set[fx.Node]) -> int:
    """Bytes that the backward pass of some operators needs, at most: all results through which
    gradients flow that are not views of others."""
    total = 0
    for node in nodes:
        schema = getattr(node.target, "_schema", None)
        is_view = schema is not None and any(r.alias_info is not None for r in schema.returns)
        if node in flows and not is_view:
            total += bytes_of(node)
    return total
