"""The nodes of a logical plan: one frozen dataclass a verb, data and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from silva.plan.expr import Term
from silva.plan.function import Function

Step = Term | Function
"""What derives or tests a value: an expression or a plain function."""


@dataclass(frozen=True)
class Node:
    """What all nodes share: their inputs, and how a copy with other inputs is made."""

    verb: ClassVar[str] = "node"

    @property
    def inputs(self) -> tuple[Node, ...]:
        found: list[Node] = []
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Node):
                found.append(value)
            elif isinstance(value, tuple) and value and isinstance(value[0], Node):
                found.extend(value)
        return tuple(found)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        names = {f.name for f in fields(self)}
        if "input" in names:
            return replace(self, input=inputs[0])  # type: ignore[call-arg]
        return replace(self, many=inputs) if "many" in names else self  # type: ignore[call-arg]


@dataclass(frozen=True)
class Source(Node):
    verb = "source"
    source: Any
    """A `silva.io.source.Source`."""
    columns: tuple[str, ...] | None = None
    """The columns that are read; None for all."""


@dataclass(frozen=True)
class Derive(Node):
    verb = "derive"
    input: Node
    step: Step
    into: tuple[str, ...]
    id: str
    """Output column and occurrence when written; random draws are keyed by it."""


@dataclass(frozen=True)
class Filter(Node):
    verb = "filter"
    input: Node
    step: Step
    id: str


@dataclass(frozen=True)
class Select(Node):
    verb = "select"
    input: Node
    names: tuple[str, ...]


@dataclass(frozen=True)
class Rename(Node):
    verb = "rename"
    input: Node
    names: tuple[tuple[str, str], ...]
    """Pairs (old, new)."""


@dataclass(frozen=True)
class Explode(Node):
    verb = "explode"
    input: Node
    column: str


@dataclass(frozen=True)
class MapRows(Node):
    verb = "map_rows"
    input: Node
    step: Function
    into: tuple[str, ...]
    id: str


@dataclass(frozen=True)
class Shuffle(Node):
    verb = "shuffle"
    input: Node
    seed: int
    kind: str | None
    """`global`, `two-level` or `window`; None for the best that the source can do."""
    window: int
    by: str | None = None
    """Rows with equal values of this column stay together: `group`, or the name that it has."""
    most: int | None = None
    """How many of them at most."""


@dataclass(frozen=True)
class Sample(Node):
    verb = "sample"
    input: Node
    weights: Any
    """A column's name, or a `Weights` of one number a row."""
    balance: str | None
    """A column whose values shall be drawn equally often."""
    size: int | None
    seed: int


@dataclass(frozen=True)
class Take(Node):
    verb = "take"
    input: Node
    count: int


@dataclass(frozen=True)
class Skip(Node):
    verb = "skip"
    input: Node
    count: int


@dataclass(frozen=True)
class Batch(Node):
    verb = "batch"
    input: Node
    size: int | None
    """Rows in a global batch."""
    per_rank: int | None = None
    """Rows on each rank, instead of `size`."""
    tokens: int | None = None
    """Padded items in a batch, instead of `size`: rows × longest `by`."""
    by: str | None = None
    drop_last: bool = False
    pad: Any = None
    """None, a value for every ragged column, or pairs (column, value)."""
    collate: Function | None = None
    grouped: tuple[tuple[str, ...], ...] = ()
    """Columns shown as distinct rows and an index; those of one tuple share the index."""


@dataclass(frozen=True)
class Pack(Node):
    verb = "pack"
    input: Node
    columns: tuple[str, ...]
    length: int
    window: int
    pad: int
    overflow: str
    """`split`, `truncate` or `error`."""


@dataclass(frozen=True)
class Bucket(Node):
    verb = "bucket"
    input: Node
    by: str
    sizes: tuple[tuple[int, int], ...]
    """Pairs (longest, rows in a batch), ascending."""
    drop_last: bool
    pad: Any


@dataclass(frozen=True)
class Cache(Node):
    verb = "cache"
    input: Node
    folder: str | None
    """None keeps rows in memory."""
    limit: int | None = None
    """Bytes that the folder may hold, of all pipelines together; None for what the disk has."""
    key: str | None = None
    """What its rows are known by: the fingerprint of `input` as it was written, however it is run.
    None for that of `input` as it is."""
    planned: bool = False
    """The planner has put it there: nothing but speed may show it, not even a state."""


@dataclass(frozen=True)
class Options(Node):
    verb = "options"
    input: Node
    values: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Concat(Node):
    verb = "concat"
    many: tuple[Node, ...]


@dataclass(frozen=True)
class Zip(Node):
    verb = "zip"
    many: tuple[Node, ...]
    stop: str
    """`strict` or `shortest`."""


@dataclass(frozen=True)
class Mix(Node):
    verb = "mix"
    many: tuple[Node, ...]
    schedule: tuple[tuple[int, tuple[float, ...]], ...]
    """Pairs (first row, weights), ascending; the first begins at 0."""
    seed: int
    stop: str
    """`all`, `first` or `repeat`."""


def walk(node: Node) -> Iterator[Node]:
    """Every node of a plan, inputs before the nodes that read them."""
    for child in node.inputs:
        yield from walk(child)
    yield node


def transform(node: Node, change: Callable[[Node], Node]) -> Node:
    """The plan with `change` applied to every node, inputs first."""
    inputs = tuple(transform(child, change) for child in node.inputs)
    if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
        node = node.with_inputs(inputs)
    return change(node)


def option(node: Node, name: str, default: Any = None) -> Any:
    """The value that the outermost `options(name=…)` gives."""
    for found in reversed(list(walk(node))):
        if isinstance(found, Options):
            for key, value in reversed(found.values):
                if key == name:
                    return value
    return default


def without_shuffles(plan: Node) -> Node:
    """The same rows in their own order: what evaluation reads."""

    def change(node: Node) -> Node:
        return node.input if isinstance(node, Shuffle | Sample) else node

    return transform(plan, change)
