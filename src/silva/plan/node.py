"""The nodes of a logical plan: one frozen dataclass per verb, without behaviour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

from silva.plan.class_tags import tagged
from silva.plan.function import Function, Step

_N = TypeVar("_N", bound="Node")


class PlannedSource(Protocol):
    """A source, as far as plans need it; `silva.io.source` declares what else a source has."""

    @property
    def access(self) -> str: ...
    @property
    def identifies_rows(self) -> bool: ...
    @property
    def awaits_rows(self) -> bool: ...
    @property
    def costly(self) -> tuple[str, ...]: ...
    def columns(self) -> tuple[str, ...]: ...
    def types(self) -> dict[str, str]: ...
    def describe(self) -> str: ...
    def fingerprint(self) -> str: ...
    def sketch(self) -> str: ...
    def length(self) -> int | None: ...
    def row_bytes(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class Node:
    """What all nodes share: their inputs, and how a copy with other inputs is made."""

    verb: ClassVar[str] = "node"
    """The verb that adds such a node, which is also its tag in fingerprints."""

    @property
    def runs(self) -> Step | None:
        """The expression or function that the node runs on rows or batches; None if it has none."""
        return None

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns that the node derives."""
        return ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that it reads."""
        return ()

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return self


@dataclass(frozen=True)
class OneInput(Node):
    """A node that reads one other node."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, input=inputs[0])


@dataclass(frozen=True)
class ManyInputs(Node):
    """A node that reads several other nodes."""

    many: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.many

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, many=inputs)


def _verb(name: str, words: str) -> Callable[[type[_N]], type[_N]]:
    """Declares a kind of node by its verb, and a word for each of its fields (`tagged`)."""

    def declare(cls: type[_N]) -> type[_N]:
        cls.verb = name
        return tagged(name, words)(cls)

    return declare


@_verb("source", "- -")
@dataclass(frozen=True)
class Source(Node):
    """Reads the rows of a source."""

    source: PlannedSource
    columns: tuple[str, ...] | None = None
    """The columns to read; None for all."""


@_verb("derive", "- step into id -")
@dataclass(frozen=True)
class Derive(OneInput):
    """Adds columns that a step computes from each row."""

    step: Step
    into: tuple[str, ...]
    id: str
    """The output column and its occurrence in the pipeline as written; random numbers are keyed by
    it."""
    written: str | None = None
    """The step as text, as written, where a rule made it read its columns by other names: errors
    name it so."""

    @property
    def runs(self) -> Step:
        return self.step

    @property
    def writes(self) -> tuple[str, ...]:
        return self.into


@_verb("filter", "- step id -")
@dataclass(frozen=True)
class Filter(OneInput):
    """Keeps the rows for which a step is true."""

    step: Step
    id: str
    written: str | None = None
    """The step as written; see `Derive`."""

    @property
    def runs(self) -> Step:
        return self.step


@_verb("select", "- names")
@dataclass(frozen=True)
class Select(OneInput):
    """Keeps some of the columns."""

    names: tuple[str, ...]


@_verb("rename", "- names")
@dataclass(frozen=True)
class Rename(OneInput):
    """Gives columns other names."""

    names: tuple[tuple[str, str], ...]
    """Pairs (old, new)."""


@_verb("explode", "- column")
@dataclass(frozen=True)
class Explode(OneInput):
    """Yields one row per item of a list column."""

    column: str


@_verb("map_rows", "- step into id")
@dataclass(frozen=True)
class MapRows(OneInput):
    """Replaces each whole row by what a function returns for it."""

    step: Function
    into: tuple[str, ...]
    id: str

    @property
    def runs(self) -> Function:
        return self.step

    @property
    def writes(self) -> tuple[str, ...]:
        return self.into


@_verb("shuffle", "- seed kind window by? most?")
@dataclass(frozen=True)
class Shuffle(OneInput):
    """Yields the rows in a random order, another one in each epoch."""

    seed: int
    kind: str | None
    """`global`, `two-level` or `window`; None for the best that the source supports."""
    window: int
    by: str | None = None
    """Rows with equal values of this column stay together: `group`, or the name that it has."""
    most: int | None = None
    """The largest number of rows of one group; None for all."""


@_verb("sample", "- weights balance size seed")
@dataclass(frozen=True)
class Sample(OneInput):
    """Draws rows at random, with replacement, by weight."""

    weights: Any
    """The name of a column, or `Weights` with one number per row."""
    balance: str | None
    """A column whose values are drawn equally often."""
    size: int | None
    seed: int


@_verb("take", "- count")
@dataclass(frozen=True)
class Take(OneInput):
    """Keeps the first rows."""

    count: int


@_verb("skip", "- count")
@dataclass(frozen=True)
class SkipRows(OneInput):
    """Drops the first rows."""

    count: int


@_verb("batch", "- size per_rank tokens by drop_last pad collate grouped axis?")
@dataclass(frozen=True)
class Batch(OneInput):
    """Groups rows into batches, by their number or by their tokens."""

    size: int | None
    """Rows per global batch."""
    per_rank: int | None = None
    """Rows per rank, instead of `size`."""
    tokens: int | None = None
    """Padded items per batch, instead of `size`: rows × longest `by`."""
    by: str | None = None
    drop_last: bool = False
    pad: Any = None
    """None, a value for every ragged column, or pairs (column, value)."""
    collate: Function | None = None
    grouped: tuple[tuple[str, ...], ...] = ()
    """Columns that a batch holds as distinct rows and an index; those of one tuple share it."""
    axis: int | None = None
    """The axis of `by` whose length counts; None for rows of one dimension."""


@_verb("pack", "- columns length window pad overflow")
@dataclass(frozen=True)
class Pack(OneInput):
    """Packs sequences into rows of a fixed length."""

    columns: tuple[str, ...]
    length: int
    window: int
    pad: int
    overflow: str
    """`split`, `truncate` or `error`."""


@_verb("bucket", "- by sizes drop_last pad axis?")
@dataclass(frozen=True)
class Bucket(OneInput):
    """Groups rows of similar length into batches."""

    by: str
    sizes: tuple[tuple[int, int], ...]
    """Pairs (longest, rows in a batch), ascending."""
    drop_last: bool
    pad: Any
    axis: int | None = None
    """The axis of `by` whose length counts; None for rows of one dimension."""


@_verb("cache", "- - - - -")
@dataclass(frozen=True)
class Cache(OneInput):
    """Keeps the rows of its input for later epochs or runs."""

    folder: str | None
    """None keeps rows in memory."""
    limit: int | None = None
    """Bytes that the folder may hold for all pipelines together; None for no limit."""
    key: str | None = None
    """The fingerprint under which rows are cached: that of `input` as written, even if rewrites
    change it. None for the fingerprint of `input` itself."""
    planned: bool = False
    """The planner added it: it may change nothing but speed, not even a state."""


@_verb("options", "- values")
@dataclass(frozen=True)
class Options(OneInput):
    """Holds options of the pipeline below it."""

    values: tuple[tuple[str, Any], ...]


@_verb("concat", "-")
@dataclass(frozen=True)
class Concat(ManyInputs):
    """Yields the rows of one input after the other."""


@_verb("zip", "- stop")
@dataclass(frozen=True)
class Zip(ManyInputs):
    """Joins the rows of its inputs side by side."""

    stop: str
    """`strict` or `shortest`."""


@_verb("mix", "- schedule seed stop")
@dataclass(frozen=True)
class Mix(ManyInputs):
    """Interleaves the rows of its inputs at random, by weight."""

    schedule: tuple[tuple[int, tuple[float, ...]], ...]
    """Pairs (first row, weights), ascending; the first begins at 0."""
    seed: int
    stop: str
    """`all`, `first` or `repeat`."""


def walk(node: Node) -> Iterator[Node]:
    """Yields every node of a plan, inputs before the nodes that read them."""
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
    """The value of an option; the outermost `options(name=…)` counts."""
    for found in reversed(list(walk(node))):
        if isinstance(found, Options):
            for key, value in reversed(found.values):
                if key == name:
                    return value
    return default


def without_shuffles(plan: Node) -> Node:
    """The plan without shuffles and samples, as evaluation reads it: all rows in their own
    order."""

    def change(node: Node) -> Node:
        return node.input if isinstance(node, Shuffle | Sample) else node

    return transform(plan, change)
