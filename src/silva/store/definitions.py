"""Derived columns as a table knows them: a definition, not data, and never code.

A definition's fingerprint covers its function or expression and the fingerprints of what it reads,
so that equal definitions are one, on whatever branch. Of a function a table keeps nothing that
could be run: what it reads, and its text for people. A program that has the function can read the
column; so can any program where the column is stored.

A column that is *given* (`put`) has values and no function: its fingerprint is the hash of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from silva.columns import Column, from_arrow
from silva.errors import TableError
from silva.plan import expr
from silva.plan.fingerprint import column_fingerprint, opaque_parts
from silva.plan.function import Function, Stateful
from silva.plan.node import Step
from silva.plan.show_steps import show_step
from silva.plan.traits import step_is_random, step_reads
from silva.store.folder import Folder, publish
from silva.store.manifest import Version, encode
from silva.store.terms import decode_term, encode_term

BASE = "="
"""Before the name of a column that was appended: its fingerprint."""
_TEXT = 4000
"""Characters of a function's text that are kept."""


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """Values that were put, not computed; each fragment has its own, or none."""

    kind: str
    """Arrow's type of them."""
    default: int | float | bool | str | None = None
    """What rows have that nobody gave a value."""

    def missing(self, count: int) -> Column:
        """So many rows that nobody gave a value."""
        import pyarrow as pa

        kind = pa.type_for_alias(self.kind)
        return from_arrow(pa.repeat(pa.scalar(self.default, kind), count))


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    reads: tuple[str, ...]
    """The names of the columns that it reads."""
    inputs: tuple[str, ...]
    """And their fingerprints."""
    text: str
    """What it says, for people."""
    term: Any = None
    """Of an expression, its parts as data."""
    unstorable: str | None = None
    """Why it cannot be stored."""
    given: Given | None = None
    """Of a column that is given, what it has where no part holds it."""


@dataclass(frozen=True)
class Recipe:
    """How a derived column is computed, where it is not stored. Known by its fingerprint."""

    name: str
    fingerprint: str
    step: Step | None = field(compare=False)
    """None where this program does not have it."""
    reads: tuple[str, ...] = field(compare=False)
    inputs: tuple[str, ...] = field(compare=False)
    given: Given | None = field(default=None, compare=False)


def current(folder: Folder, version: Version) -> dict[str, str]:
    """The columns of a version: names to fingerprints, in order."""
    from silva.store.normal import arrow_schema

    base = {name: BASE + name for name in arrow_schema(folder.schema(version.schema)).names}
    return base | dict(version.definitions)


def define(known: Mapping[str, str], name: str, step: Step) -> tuple[str, bytes]:
    """The fingerprint of a new column, given those that there are, and its definition."""
    reads = step_reads(step)
    inputs = tuple(known[n] for n in reads)
    term = None if isinstance(step, Function) else encode_term(step)
    made = Definition(name, reads, inputs, _text(step), term, _unstorable(step))
    return column_fingerprint(step, inputs), encode(made)


def add_definition(folder: Folder, fingerprint: str, data: bytes) -> None:
    publish(folder.definitions / f"{fingerprint}.json", data)


def read_definition(folder: Folder, fingerprint: str) -> Definition:
    path = folder.definitions / f"{fingerprint}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Definition)
    except FileNotFoundError:
        raise TableError(f"the definition {fingerprint} of {str(folder)!r} is gone") from None
    except msgspec.MsgspecError as error:
        raise TableError(f"the definition {str(path)!r} is damaged: {error}") from error


def with_definition(
    folder: Folder, definitions: Sequence[tuple[str, str]], name: str, fingerprint: str
) -> tuple[tuple[str, str], ...]:
    """The definitions of a version with one more; earlier ones of that name stay as long as others
    read them."""
    kept = [*definitions, (name, fingerprint)]
    latest = dict(kept)
    while True:
        wanted = set(latest.values())
        for _, fp in kept:
            wanted |= set(read_definition(folder, fp).inputs)
        left = [(n, fp) for n, fp in kept if fp in wanted]
        if len(left) == len(kept):
            return _without_repeats(kept)
        kept = left


def _without_repeats(definitions: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Without those that define a column as it is already.

    >>> _without_repeats([("x", "a"), ("y", "b"), ("x", "a")])
    (('x', 'a'), ('y', 'b'))
    >>> _without_repeats([("x", "a"), ("x", "b"), ("x", "a")])
    (('x', 'a'), ('x', 'b'), ('x', 'a'))
    """
    known: dict[str, str] = {}
    made: list[tuple[str, str]] = []
    for name, fingerprint in definitions:
        if known.get(name) != fingerprint:
            made.append((name, fingerprint))
        known[name] = fingerprint
    return tuple(made)


def recipes(
    folder: Folder, version: Version, names: Sequence[str], steps: Mapping[str, Step]
) -> list[Recipe]:
    """What is needed for these columns, in the order in which it is to be computed. `steps` are
    the functions that this program has."""
    wanted = {fp for name in names if (fp := dict(version.definitions).get(name))}
    found: list[Recipe] = []
    for name, fingerprint in reversed(version.definitions):
        if fingerprint not in wanted:
            continue
        definition = read_definition(folder, fingerprint)
        wanted |= set(definition.inputs)
        step = steps.get(fingerprint)
        if step is None and definition.term is not None:
            step = decode_term(definition.term)
            if column_fingerprint(step, definition.inputs) != fingerprint:
                step = None  # an operator has changed since: what is stored stays what it was
        reads, inputs = definition.reads, definition.inputs
        found.append(Recipe(name, fingerprint, step, reads, inputs, definition.given))
    return found[::-1]


def facts(recipe: Recipe) -> tuple[Any, ...]:
    """A recipe as `TableSource.giving` takes it."""
    own = (recipe.name, recipe.fingerprint, recipe.step, recipe.reads, recipe.inputs)
    return (*own, recipe.given)


def _unstorable(step: Step) -> str | None:
    """Why a column must be computed whenever it is read."""
    if step_is_random(step):
        return "it is random, another in every epoch: storing it would freeze it"
    if isinstance(step, Function):
        if step.marks.impure:
            return "it is impure"
        if step.marks.batch_size is not None:
            return "it sees fixed chunks of rows, which depend on the order of rows"
    elif any(isinstance(part, expr.RowId) for part in expr.walk(step)):
        return "it reads the row's own number, which changes as rows are deleted"
    opaque = opaque_parts(step)
    if opaque:
        return f"its fingerprint is good for one process only, because of {', '.join(opaque)}"
    return None


def _text(step: Step) -> str:
    if not isinstance(step, Function):
        return show_step(step)
    fn = step.fn.cls if isinstance(step.fn, Stateful) else step.fn
    try:
        return inspect.cleandoc(inspect.getsource(fn))[:_TEXT]
    except (OSError, TypeError):
        return step.name
