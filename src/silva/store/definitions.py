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
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from silva.columns import Column, from_arrow
from silva.errors import TableError
from silva.plan import expr
from silva.plan.fingerprint import column_fingerprints, opaque_parts
from silva.plan.function import Function, Stateful
from silva.plan.node import Derive, Step
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

    default: bytes
    """What rows have that nobody gave a value: one row, in Arrow's own form."""

    def missing(self, count: int) -> Column:
        """So many rows that nobody gave a value."""
        import pyarrow as pa

        row = pa.ipc.open_stream(self.default).read_next_batch().column(0)
        return from_arrow(row.take(pa.array(np.zeros(count, np.int64))))


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
    parts: tuple[tuple[str, str], ...] = ()
    """Where one step makes several columns: all of them, (name, fingerprint)."""


@dataclass(frozen=True)
class Recipe:
    """How a derived column is computed, where it is not stored. Known by its fingerprint."""

    name: str
    fingerprint: str
    step: Step | None = field(compare=False)
    """None where this program does not have it."""
    reads: tuple[str, ...] = field(compare=False)
    inputs: tuple[str, ...] = field(compare=False)
    parts: tuple[tuple[str, str], ...] = field(compare=False)
    """(name, fingerprint) of all columns that the step makes, this one among them."""
    given: Given | None = field(default=None, compare=False)


def current(folder: Folder, version: Version) -> dict[str, str]:
    """The columns of a version: names to fingerprints, in order."""
    from silva.store.normal import arrow_schema

    base = {name: BASE + name for name in arrow_schema(folder.schema(version.schema)).names}
    return base | dict(version.definitions)


def define(known: Mapping[str, str], derive: Derive) -> dict[str, tuple[str, bytes]]:
    """The fingerprints of new columns, given those that there are, and their definitions."""
    step, reads = derive.step, step_reads(derive.step)
    inputs = tuple(known[n] for n in reads)
    term = None if isinstance(step, Function) else encode_term(step)
    own = tuple(zip(derive.into, column_fingerprints(step, inputs, derive.into), strict=True))
    parts = own if len(own) > 1 else ()
    told = (_text(step), term, _unstorable(step))
    return {
        name: (fingerprint, encode(Definition(name, reads, inputs, *told, parts=parts)))
        for name, fingerprint in own
    }


def add_definition(folder: Folder, fingerprint: str, data: bytes) -> None:
    publish(folder.definitions / f"{fingerprint}.json", data)


def read_definition(folder: Folder, fingerprint: str) -> Definition:
    path = folder.definitions / f"{fingerprint}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Definition)
    except FileNotFoundError:
        raise TableError(
            f"the definition {fingerprint} of {str(folder)!r} is gone: its version was collected "
            "by gc(versions=…)"
        ) from None
    except msgspec.MsgspecError as error:
        raise TableError(f"the definition {str(path)!r} is damaged: {error}") from error


def with_definitions(
    folder: Folder, definitions: Sequence[tuple[str, str]], new: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """The definitions of a version with more of them; earlier ones of those names stay as long as
    others read them, or are made by the same step."""
    kept = [*definitions, *new]
    wanted: set[str] = set()
    found = set(dict(kept).values())
    while found:
        wanted |= found
        known = [read_definition(folder, fp) for fp in found if not fp.startswith(BASE)]
        found = {fp for d in known for fp in (*d.inputs, *(part for _, part in d.parts))} - wanted
    return _without_repeats([(name, fp) for name, fp in kept if fp in wanted])


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
    """What is needed for these columns, in the order in which it is to be computed: what columns
    are computed of, and what is made along with them, where this program can compute them. `steps`
    are the functions that it has."""
    last = dict(version.definitions)
    known: dict[str, Recipe] = {}
    new = {last[name] for name in names if name in last}
    while new:
        known |= {fingerprint: _recipe(folder, fingerprint, steps) for fingerprint in new}
        made = [known[fingerprint] for fingerprint in new]
        below = {fp for r in made if r.step for fp in (*r.inputs, *dict(r.parts).values())}
        new = {fp for fp in below if not fp.startswith(BASE)} - known.keys()
    return [_named(known[fp], name) for name, fp in version.definitions if fp in known]


def _named(recipe: Recipe, name: str) -> Recipe:
    """A recipe under the name that the column has here; equal definitions have one, the first."""
    parts = recipe.parts if len(recipe.parts) > 1 else ((name, recipe.fingerprint),)
    return replace(recipe, name=name, parts=parts)


def _recipe(folder: Folder, fingerprint: str, steps: Mapping[str, Step]) -> Recipe:
    found = read_definition(folder, fingerprint)
    parts = found.parts or ((found.name, fingerprint),)
    step = steps.get(fingerprint) or _step_of(found, parts)
    told = (found.reads, found.inputs, parts, found.given)
    return Recipe(found.name, fingerprint, step, *told)


def _step_of(definition: Definition, parts: tuple[tuple[str, str], ...]) -> Step | None:
    """The step of a definition that is an expression, unless an operator has changed since: what is
    stored stays what it was."""
    if definition.term is None:
        return None
    step = decode_term(definition.term)
    names, fingerprints = zip(*parts, strict=True)
    same = column_fingerprints(step, definition.inputs, names) == fingerprints
    return step if same else None


def facts(recipe: Recipe) -> tuple[Any, ...]:
    """A recipe as `TableSource.giving` takes it."""
    own = (recipe.name, recipe.fingerprint, recipe.step, recipe.reads, recipe.inputs)
    return (*own, recipe.parts, recipe.given)


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
