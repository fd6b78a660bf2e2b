"""A version of a table as a plan: its rows, and a derive for each derived column that is wanted.

Definitions are nodes of the pipeline like any other, so that the planner drops those that nobody
reads, moves filters before them, and reads them where they are stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from silva.errors import PlanError, TableError
from silva.pipeline import Pipeline
from silva.plan import expr
from silva.plan import node as logical
from silva.plan.node import Step
from silva.sources import from_columns
from silva.store import commits
from silva.store.definitions import (
    Recipe,
    add_definition,
    current,
    define,
    facts,
    recipes,
    with_definitions,
)
from silva.store.folder import Folder
from silva.store.manifest import Version, Wish
from silva.store.source import TableSource

Derived = Callable[[Sequence[str]], list[logical.Derive]]
"""The derives over the columns that there are."""


def table_pipeline(
    folder: Folder, version: Version, columns: Sequence[str] | None, steps: Mapping[str, Step]
) -> Pipeline:
    """The rows of a version with these columns, or all. `steps` are the functions that this
    program has."""
    names = tuple(current(folder, version)) if columns is None else tuple(columns)
    known = current(folder, version)
    for name in names:
        if name not in known:
            shown = ", ".join(map(repr, known))
            raise PlanError(f"there is no column {name!r}; the columns here are {shown}")
    found = recipes(folder, version, names, steps)
    source = TableSource.of(folder, version)
    source, found = _given(source, found)
    plan: logical.Node = logical.Source(source)
    occurrences: dict[str, int] = {}
    for step, into in _calls(found):
        written = ",".join(into)
        number = occurrences.get(written, 0)
        occurrences[written] = number + 1
        plan = logical.Derive(plan, step, into, f"{written}#{number}")
    pipeline = Pipeline(plan)
    return pipeline if pipeline.columns == names else pipeline.select(*names)


def _calls(found: Sequence[Recipe]) -> Iterator[tuple[Step, tuple[str, ...]]]:
    """Steps, and the columns that they make; those that one step makes stand side by side."""
    for parts, together in itertools.groupby(found, key=lambda recipe: recipe.parts):
        step = next(together).step
        if step is not None:
            yield step, tuple(dict(parts))


def _given(source: TableSource, found: list[Recipe]) -> tuple[TableSource, list[Recipe]]:
    """The source with the columns that no function of this program makes: those that were put, and
    those that it has stored for all rows; and what is left to do."""
    left: list[Recipe] = []
    for recipe in found:
        if recipe.step is not None:
            left.append(recipe)
            continue
        taken = any(recipe.name in (*other.reads, other.name) for other in left)
        if recipe.given is None:
            _check_stored(source, recipe, taken)
        if not taken:
            source = source.giving((facts(recipe),), (recipe.name,))
            continue
        # a step reads what had the name before: it takes the name after that step
        aside = f"silva.{recipe.fingerprint}"
        source = source.giving((facts(replace(recipe, name=aside)),), (aside,))
        inputs = (recipe.fingerprint,)
        own = (recipe.name, recipe.fingerprint)
        left.append(Recipe(*own, expr.Col(aside), (aside,), inputs, (own,)))
    return source, left


def _check_stored(source: TableSource, recipe: Recipe, taken: bool) -> None:
    where = source.stored_in(recipe.fingerprint)
    into = tuple(dict(recipe.parts))
    again = f"{recipe.name}=…" if len(into) == 1 else f"…, into={into}"
    if where != "stored" and source.length():
        raise TableError(
            f"{recipe.name!r} of {source.describe()} is a function that this program does not "
            f"have, and it is {where or 'not stored'}. Derive it again on the table that you "
            f"read, t.derive({again}), which changes nothing if it is the same; or "
            "name the columns that you need, columns=[…]"
        )
    if taken:
        raise TableError(
            f"{recipe.name!r} of {source.describe()} was defined several times, and this "
            "program does not have the last function: derive it again"
        )


def derives(columns: Sequence[str], /, *function: Any, **arguments: Any) -> list[logical.Derive]:
    """What `Pipeline.derive` makes of its arguments, over these columns; each step sees those
    before it."""
    plan = from_columns({name: [] for name in columns}).derive(*function, **arguments).plan
    made: list[logical.Derive] = []
    while isinstance(plan, logical.Derive):
        made.append(plan)
        plan = plan.input
    return made[::-1]


def add_columns(folder: Folder, derived: Derived, steps: dict[str, Step]) -> commits.Change:
    """The commit that adds definitions; what it finds of functions goes into `steps`."""

    def change(head: Version) -> Version | None:
        known = current(folder, head)
        definitions = head.definitions
        new: list[str] = []
        for derive in derived(tuple(known)):
            made = define(known, derive)
            own = {name: fingerprint for name, (fingerprint, _) in made.items()}
            steps.update(dict.fromkeys(own.values(), derive.step))
            if all(known.get(name) == fingerprint for name, fingerprint in own.items()):
                continue
            for fingerprint, data in made.values():
                add_definition(folder, fingerprint, data)
            definitions = with_definitions(folder, definitions, tuple(own.items()))
            known |= own
            new += own
        if not new:
            return None
        what = f"derive {', '.join(new)}"
        return msgspec.structs.replace(head, definitions=definitions, what=what)

    return change


def add_wishes(wishes: Mapping[str, Mapping[str, Any]]) -> commits.Change:
    """The commit that notes what people said about columns."""

    def change(head: Version) -> Version | None:
        made = dict(head.wishes)
        for name, said in wishes.items():
            made[name] = msgspec.structs.replace(made.get(name, Wish()), **said)
        if made == head.wishes:
            return None
        return msgspec.structs.replace(head, wishes=made, what=f"plan {', '.join(wishes)}")

    return change
