"""Definitions of derived columns, as a table stores them: not data, and never code.

A definition's fingerprint covers its function or expression and the fingerprints of its inputs, so
equal definitions are one, on any branch. A table stores nothing of a function that could be run:
only the columns that it reads, and its text for people. A program that has the function can read
the column; so can any program where the column is stored.

A column that is *given* (`put`) has values and no function: its fingerprint is their hash.
"""

from __future__ import annotations

import contextlib
import graphlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
import numpy as np

from silva.columns import Column, from_arrow
from silva.errors import PlanError, TableError
from silva.plan import expr
from silva.plan.fingerprint import column_fingerprints, opaque_parts
from silva.plan.function import Function, Stateful, Step, show_step
from silva.plan.node import Derive
from silva.plan.schema import step_is_random, step_reads
from silva.store.derived.terms import decode_term, encode_term
from silva.store.versions.manifest import Hash, Version
from silva.store.versions.sealed import unseal
from silva.store.versions.table_folder import Folder

BASE = "="
"""The fingerprint of an appended column is this and its name."""
_Input = Annotated[str, msgspec.Meta(pattern=rf"(?s)^({BASE}.*|[0-9a-f]{{32}})\Z")]
_TEXT = 4000
"""Characters of a function's text that are stored."""


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column whose values were put, not computed; each fragment stores its own, or none."""

    default: bytes
    """The value of all other rows: one row, in Arrow's IPC format."""

    def missing(self, count: int) -> Column:
        """Rows that were given no value."""
        with _telling_damage():
            return from_arrow(self._repeated(count))

    def row(self) -> Any:
        """The value as an Arrow array of one row."""
        with _telling_damage():
            return self._repeated(1)

    def _repeated(self, count: int) -> Any:
        import pyarrow as pa

        row = pa.ipc.open_stream(self.default).read_next_batch().column(0)
        row.validate(full=True)
        return row.take(pa.array(np.zeros(count, np.int64)))


@contextlib.contextmanager
def _telling_damage() -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, IndexError, StopIteration) as error:
        raise TableError(f"the default of a column that was put is damaged: {error}") from error


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    reads: tuple[str, ...]
    """The names of the columns that it reads."""
    inputs: tuple[_Input, ...]
    """The fingerprints of those columns."""
    text: str
    """The source of the function or expression, for people."""
    term: Any = None
    """The parts of an expression, as data."""
    unstorable: str | None = None
    """Why it cannot be stored."""
    given: Given | None = None
    """Set for a column that is given."""
    parts: tuple[tuple[str, Hash], ...] = ()
    """All columns of a step that makes several: (name, fingerprint)."""


@dataclass(frozen=True)
class Recipe:
    """How a derived column is computed where it is not stored; compared by its fingerprint."""

    name: str
    fingerprint: str
    step: Step | None = field(compare=False)
    """None where this program does not have the function."""
    reads: tuple[str, ...] = field(compare=False)
    inputs: tuple[str, ...] = field(compare=False)
    parts: tuple[tuple[str, str], ...] = field(compare=False)
    """(name, fingerprint) of all columns that the step makes, including this one."""
    given: Given | None = field(default=None, compare=False)


def current(folder: Folder, version: Version) -> dict[str, str]:
    """The columns of a version: names to fingerprints, in order."""
    from silva.store.append.normal_form import arrow_schema

    base = {name: BASE + name for name in arrow_schema(folder.schema(version.schema)).names}
    return base | dict(version.definitions)


def check_derived(folder: Folder, version: Version, name: str) -> None:
    """Raises unless a version computes the column. A change checks the version that it changes:
    another program may have put values under this name since."""
    known = dict(version.definitions)
    if name not in known:
        raise PlanError(
            f"{name!r} is not a derived column of {str(folder)!r}; those are: "
            f"{', '.join(map(repr, known)) or 'none'}"
        )
    if read_definition(folder, known[name]).given is not None:
        raise PlanError(
            f"{name!r} of {str(folder)!r} is given, not computed: its values are always stored. "
            "Call put to change them"
        )


def define(known: Mapping[str, str], derive: Derive) -> dict[str, tuple[str, Definition]]:
    """The fingerprints and definitions of new columns, over known ones."""
    step, reads = derive.step, step_reads(derive.step)
    inputs = tuple(known[n] for n in reads)
    term = None if isinstance(step, Function) else encode_term(step)
    own = tuple(zip(derive.into, column_fingerprints(step, inputs, derive.into), strict=True))
    parts = own if len(own) > 1 else ()
    shared = (reads, inputs, _text(step), term, _unstorable(step))
    return {
        name: (fingerprint, Definition(name, *shared, parts=parts)) for name, fingerprint in own
    }


def add_definition(folder: Folder, fingerprint: str, definition: Definition) -> None:
    folder.publish("definitions", fingerprint, definition)


def read_definition(folder: Folder, fingerprint: str) -> Definition:
    what = f"the definition {fingerprint} of {str(folder)!r}"
    data = folder.read("definitions", f"{fingerprint}.json")
    if data is None:
        raise TableError(
            f"{what} is gone: its version was collected by gc(versions=…). Read a later one"
        )
    found: Definition = unseal(data, Definition, what)
    own = fingerprint in dict(found.parts).values() or not found.parts
    if len(found.reads) != len(found.inputs) or not own:
        raise TableError(f"{what} is damaged: it defines another column. Restore it from a backup")
    return found


def with_definitions(
    folder: Folder, definitions: Sequence[tuple[str, str]], new: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """The definitions of a version with new ones; earlier ones with the same names stay as long as
    others read them, or the same step makes others."""
    kept = [*definitions, *new]
    wanted: set[str] = set()
    found = set(dict(kept).values())
    while found:
        wanted |= found
        known = [read_definition(folder, fp) for fp in found if not fp.startswith(BASE)]
        found = {fp for d in known for fp in (*d.inputs, *(part for _, part in d.parts))} - wanted
    return _without_repeats([(name, fp) for name, fp in kept if fp in wanted])


def _without_repeats(definitions: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Drops definitions that repeat what a column already is.

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
    """The recipes of these columns, of all columns that they are computed from, and of those that
    the same steps make, in the order of computation. `steps` are the functions that this program
    has."""
    last = dict(version.definitions)
    known: dict[str, Recipe] = {}
    new = {last[name] for name in names if name in last}
    while new:
        known |= {fingerprint: _recipe(folder, fingerprint, steps) for fingerprint in new}
        made = [known[fingerprint] for fingerprint in new]
        below = {fp for r in made if r.step for fp in (*r.inputs, *dict(r.parts).values())}
        new = {fp for fp in below if not fp.startswith(BASE)} - known.keys()
    _check_order(folder, known)
    return [_named(known[fp], name) for name, fp in version.definitions if fp in known]


def _check_order(folder: Folder, known: Mapping[str, Recipe]) -> None:
    """Raises TableError for columns that are computed from each other."""
    try:
        graphlib.TopologicalSorter({fp: r.inputs for fp, r in known.items()}).prepare()
    except graphlib.CycleError as error:
        raise TableError(
            f"definitions of {str(folder)!r} are damaged: columns are computed from each other"
        ) from error


def _named(recipe: Recipe, name: str) -> Recipe:
    """The recipe under the column's name in a version; equal definitions share one file, which has
    the first name."""
    parts = recipe.parts if len(recipe.parts) > 1 else ((name, recipe.fingerprint),)
    return replace(recipe, name=name, parts=parts)


def _recipe(folder: Folder, fingerprint: str, steps: Mapping[str, Step]) -> Recipe:
    found = read_definition(folder, fingerprint)
    parts = found.parts or ((found.name, fingerprint),)
    step = steps.get(fingerprint) or _step_of(found, parts)
    if step is not None and step_reads(step) != found.reads:
        raise TableError(
            f"the definition {fingerprint} of {str(folder)!r} is damaged: it reads other columns"
        )
    return Recipe(found.name, fingerprint, step, found.reads, found.inputs, parts, found.given)


def _step_of(definition: Definition, parts: tuple[tuple[str, str], ...]) -> Step | None:
    """The step of a definition that is an expression; None if an operator has changed since, so
    that stored values stay valid."""
    if definition.term is None:
        return None
    step = decode_term(definition.term)
    names, fingerprints = zip(*parts, strict=True)
    try:
        same = column_fingerprints(step, definition.inputs, names) == fingerprints
    except RecursionError:
        raise TableError(f"the definition of {definition.name!r} is nested too deeply") from None
    return step if same else None


def _unstorable(step: Step) -> str | None:
    """Why a column must be computed whenever it is read."""
    if step_is_random(step):
        return "it is random, different in every epoch: storing it would freeze it"
    if isinstance(step, Function):
        if step.marks.impure:
            return "it is impure"
        if step.marks.batch_size is not None:
            return "it sees fixed chunks of rows, which depend on their order"
    elif any(isinstance(part, expr.RowId) for part in expr.walk(step)):
        return "it reads the row's own number, which changes as rows are deleted"
    opaque = opaque_parts(step)
    if opaque:
        return f"its fingerprint holds in one process only, because of {', '.join(opaque)}"
    return None


def _text(step: Step) -> str:
    if not isinstance(step, Function):
        return show_step(step)
    fn = step.fn.cls if isinstance(step.fn, Stateful) else step.fn
    try:
        return inspect.cleandoc(inspect.getsource(fn))[:_TEXT]
    except (OSError, TypeError):
        return step.name
