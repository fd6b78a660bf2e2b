"""What each kind of node yields, reads and needs, and the invariants of a plan.

The columns of a node are computed from the nodes below it, with their types where these are known.
`verify` checks a plan as written, and again after every rewrite.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from silva.errors import PlanError
from silva.plan import expr
from silva.plan import node as logical
from silva.plan.function import Function, Step
from silva.plan.node import Node
from silva.plan.operator import operator
from silva.plan.right_side import columns_taken, right_side
from silva.plan.show import show_node

SEGMENTS = "segment_ids"
POSITIONS = "positions"
"""The columns that `pack` adds."""
MOST_POSITIONS = 1 << 31
"""The largest number of items of a packed row: positions are int32."""
MASK = "mask"
"""The column that `loader(eval=True)` adds to batches: False for padding."""

COMPARISONS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
LOGIC = {"and", "or", "xor", "not"}
PREDICATES = COMPARISONS | LOGIC | {"is_null", "is_in"}
"""The operators whose values are bool."""


def columns(node: Node) -> tuple[str, ...]:
    """The names of the columns that `node` yields, in order."""
    match node:
        case logical.Source():
            return node.columns if node.columns is not None else tuple(node.source.columns())
        case logical.Derive():
            before = columns(node.input)
            return (*before, *(n for n in node.into if n not in before))
        case logical.MapRows():
            return node.into
        case logical.Select():
            return node.names
        case logical.Rename():
            new = dict(node.names)
            return tuple(new.get(n, n) for n in columns(node.input))
        case logical.Pack():
            return (*node.columns, SEGMENTS, POSITIONS)
        case logical.Zip():
            return tuple(name for child in node.many for name in columns(child))
        case _:
            return columns(node.inputs[0])


def types(node: Node) -> dict[str, str | None]:
    """A short type for each column; None where only running the step would show it."""
    match node:
        case logical.Source():
            known = node.source.types()
            return {name: known.get(name) for name in columns(node)}
        case logical.Derive():
            found = types(node.input)
            made: dict[str, str | None] = dict.fromkeys(node.into)
            if isinstance(node.step, expr.Call) and node.step.op == "join.take":
                made = _joined_types(node.step, node.into)
            elif isinstance(node.step, expr.Col | expr.Literal | expr.Call | expr.RowId):
                made[node.into[0]] = _term_type(node.step, found)
            return {**found, **made}
        case logical.MapRows():
            return dict.fromkeys(node.into)
        case logical.Select():
            found = types(node.input)
            return {name: found[name] for name in node.names}
        case logical.Rename():
            new = dict(node.names)
            return {new.get(n, n): t for n, t in types(node.input).items()}
        case logical.Explode():
            found = types(node.input)
            kind = found[node.column]
            inner = kind[5:-1] if kind and kind.startswith("list<") else None
            return {**found, node.column: inner}
        case logical.Pack():
            found = types(node.input)
            return {n: found.get(n) for n in node.columns} | {SEGMENTS: "int32", POSITIONS: "int32"}
        case logical.Zip():
            return {n: t for child in node.many for n, t in types(child).items()}
        case _:
            return types(node.inputs[0])


def _joined_types(call: expr.Call, into: tuple[str, ...]) -> dict[str, str | None]:
    side = right_side(call)
    assert side is not None
    known = types(side.plan)
    return {new: known.get(name) for new, name in zip(into, columns_taken(call), strict=True)}


def _term_type(term: expr.Term, known: dict[str, str | None]) -> str | None:
    match term:
        case expr.Col():
            return known.get(term.name)
        case expr.Literal():
            return type(term.value).__name__
        case expr.RowId():
            return "uint64"
        case expr.Call() if term.op in PREDICATES:
            return "bool"
        case expr.Call() if term.op == "cast":
            return str(np.dtype(dict(term.params)["dtype"]).name)
        case _:
            return None


def step_reads(step: Step) -> tuple[str, ...]:
    """The columns that a step reads."""
    return step.reads if isinstance(step, Function) else expr.columns_read(step)


def step_is_random(step: Step) -> bool:
    """Whether a step draws the random numbers of its rows."""
    if isinstance(step, Function):
        return step.takes_rng
    return any(isinstance(t, expr.Call) and operator(t.op).random for t in expr.walk(step))


def step_is_pure(step: Step) -> bool:
    """Whether other steps may move across it. A function of fixed chunks must see the same chunks,
    so nothing moves across it."""
    return not isinstance(step, Function) or not (
        step.marks.impure or step.marks.batch_size is not None
    )


def is_random(node: Node) -> bool:
    """Whether what a node yields differs between epochs."""
    if isinstance(node, logical.Shuffle | logical.Sample):
        return True
    return node.runs is not None and step_is_random(node.runs)


def is_batched(node: Node) -> bool:
    """Whether a plan yields batches."""
    if isinstance(node, logical.Batch | logical.Bucket):
        return True
    return any(is_batched(child) for child in node.inputs)


def needed_below(node: Node, wanted: frozenset[str]) -> frozenset[str] | None:
    """The columns that a node needs of its one input when these of its own are wanted; None for a
    node that needs all columns."""
    match node:
        case logical.Derive():
            return (wanted - set(node.into)) | set(step_reads(node.step))
        case logical.Filter():
            return wanted | set(step_reads(node.step))
        case logical.Select():
            return frozenset(node.names)
        case logical.Rename():
            old = {new: o for o, new in node.names}
            return frozenset(old.get(n, n) for n in wanted)
        case logical.Shuffle() | logical.Take() | logical.SkipRows() | logical.Options():
            return wanted
        case logical.Explode():
            return wanted | {node.column}
        case logical.Pack():
            return frozenset(node.columns)
        case logical.MapRows() | logical.Batch():
            return frozenset(columns(node.input))
    return None


def needed_by_batch(node: logical.Batch | logical.Bucket, wanted: frozenset[str]) -> frozenset[str]:
    """The columns of rows that their batches need when these columns of the batches are wanted:
    also those that decide which rows a batch has, or how it holds them. All where a function
    collates."""
    if isinstance(node, logical.Bucket):
        return wanted | {node.by}
    if node.collate is not None:
        return frozenset(columns(node.input))
    grouped = {name for group in node.grouped for name in group}
    return wanted | grouped | ({node.by} if node.by is not None else set())


_ROWS_ONLY = (
    logical.Explode | logical.Shuffle | logical.Sample | logical.SkipRows
    | logical.Batch | logical.Pack | logical.Bucket | logical.Cache
)  # fmt: skip


def verify(plan: Node) -> None:
    """Raises `PlanError` for the first node that reads a column that does not exist, or that is in
    a place where it is not allowed."""
    for node in logical.walk(plan):
        if missing := _missing(node):
            names = [n for child in node.inputs for n in columns(child)]
            raise PlanError(
                f"`{show_node(node)}` reads {', '.join(map(repr, missing))}, but the columns here "
                f"are {', '.join(map(repr, names)) or '(none)'}"
            )
        if isinstance(node, _ROWS_ONLY) and any(is_batched(child) for child in node.inputs):
            raise PlanError(f"`{show_node(node)}` works on rows and must come before batch")
        if isinstance(node, logical.Mix | logical.Concat | logical.Zip):
            _check_branches(node)


_NUMBER = re.compile(r"u?int(8|16|32|64)|float(16|32|64)")
_TEXT = ("str", "bytes")


def verify_comparisons(plan: Node, step: expr.Term) -> None:
    """Raises `PlanError` where an expression over `plan` compares numbers with text: no row is
    equal."""
    calls = [part for part in expr.walk(step) if isinstance(part, expr.Call)]
    sides = [side for call in calls for side in _compared(call)]
    known = types(plan) if sides else {}
    for name, values in sides:
        kind = known.get(name)
        if kind is not None and values and all(_mismatched(kind, value) for value in values):
            wanted = {"str": "text", "bytes": "bytes"}.get(kind, "a number")
            raise PlanError(
                f"{expr.show_term(step)}: {name!r} is {kind}, and no row of it is equal to "
                f"{values[0]!r:.40}, which is {type(values[0]).__name__}: compare it with {wanted},"
                f" or with a column that is converted first, as by derive(y=lambda {name}: …)"
            )


def _compared(call: expr.Call) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The columns that a call compares with constants."""
    if call.op == "is_in" and isinstance(call.args[0], expr.Col):
        yield call.args[0].name, tuple(dict(call.params)["values"])
    elif call.op in COMPARISONS:
        left, right = call.args
        for one, two in ((left, right), (right, left)):
            if isinstance(one, expr.Col) and isinstance(two, expr.Literal):
                yield one.name, (two.value,)


def _mismatched(kind: str, value: object) -> bool:
    if _NUMBER.fullmatch(kind):
        return isinstance(value, str | bytes)
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return kind in _TEXT and number


def chosen_by_order(plan: Node) -> Iterator[tuple[Node, Node]]:
    """Each `take` or `skip` that chooses rows by a random order, with the `shuffle` or `sample`
    below it that makes the order."""
    for node in logical.walk(plan):
        if isinstance(node, logical.Take | logical.SkipRows):
            for below in logical.walk(node.input):
                if isinstance(below, logical.Shuffle | logical.Sample):
                    yield node, below


def verify_eval(plan: Node) -> None:
    """Raises `PlanError` if `loader(eval=True)` would choose other rows or overwrite a column."""
    for chooses, orders in chosen_by_order(plan):
        raise PlanError(
            f"loader(eval=True) reads rows in their own order, without {orders.verb}, so "
            f"`{show_node(chooses)}` would keep other rows than in training: put {chooses.verb} "
            f"before {orders.verb}, or divide the rows with split(train=0.9, val=0.1)"
        )
    for node in logical.walk(plan):
        pads = isinstance(node, logical.Batch) and node.size is not None and node.collate is None
        if pads and MASK in columns(node.inputs[0]):
            raise PlanError(
                f"loader(eval=True) adds a column {MASK!r} to batches, but the rows already have a "
                f"column of that name: rename({MASK}=…) before batch"
            )


def _missing(node: Node) -> list[str]:
    if not node.inputs:
        return []
    there = set(columns(node.inputs[0]))
    match node:
        case logical.Derive() | logical.Filter():
            wanted = step_reads(node.step)
        case logical.MapRows():
            wanted = node.step.reads if node.step.reads != ("row",) else ()
        case logical.Select():
            wanted = node.names
        case logical.Rename():
            wanted = tuple(old for old, _ in node.names)
        case logical.Explode():
            wanted = (node.column,)
        case logical.Pack():
            wanted = node.columns
        case logical.Bucket():
            wanted = (node.by,)
        case logical.Batch():
            names = [name for group in node.grouped for name in group]
            wanted = (*names, node.by) if node.by else tuple(names)
        case _:
            wanted = ()
    return [n for n in wanted if n not in there]


def _check_branches(node: logical.Mix | logical.Concat | logical.Zip) -> None:
    verb = node.verb
    if any(is_batched(child) for child in node.many):
        raise PlanError(f"{verb} takes pipelines of rows: batch after it, not before")
    names = [columns(child) for child in node.many]
    if isinstance(node, logical.Zip):
        flat = [n for some in names for n in some]
        twice = sorted({n for n in flat if flat.count(n) > 1})
        if twice:
            raise PlanError(
                f"zip: more than one pipeline has {', '.join(map(repr, twice))}: rename or drop it "
                "in all but one"
            )
        return
    for i, some in enumerate(names[1:], start=1):
        if set(some) != set(names[0]):
            raise PlanError(
                f"{verb}: pipeline 0 has the columns {', '.join(names[0])}, but pipeline {i} has "
                f"{', '.join(some)}; select or derive the same ones in each"
            )
