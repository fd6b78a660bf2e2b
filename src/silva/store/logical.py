"""A version of a table as a plan: its rows, and a derive for each derived column that is wanted.

Definitions are nodes of the pipeline like any other, so that the planner drops those that nobody
reads, moves filters before them, and reads them where they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    with_definition,
)
from silva.store.folder import Folder
from silva.store.manifest import Version, Wish
from silva.store.source import TableSource


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
    for recipe in found:
        if recipe.step is None:
            continue
        number = occurrences.get(recipe.name, 0)
        occurrences[recipe.name] = number + 1
        step_id = f"{recipe.name}#{number}"
        plan = logical.Derive(plan, recipe.step, (recipe.name,), step_id)
    pipeline = Pipeline(plan)
    return pipeline if pipeline.columns == names else pipeline.select(*names)


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
        left.append(Recipe(recipe.name, recipe.fingerprint, expr.Col(aside), (aside,), inputs))
    return source, left


def _check_stored(source: TableSource, recipe: Recipe, taken: bool) -> None:
    where = source.stored_in(recipe.fingerprint)
    if where != "stored" and source.length():
        raise TableError(
            f"{recipe.name!r} of {source.describe()} is a function that this program does not "
            f"have, and it is {where or 'not stored'}. Derive it again on the table that you "
            f"read, t.derive({recipe.name}=…), which changes nothing if it is the same; or "
            "name the columns that you need, columns=[…]"
        )
    if taken:
        raise TableError(
            f"{recipe.name!r} of {source.describe()} was defined several times, and this "
            "program does not have the last function: derive it again"
        )


def as_steps(columns: Sequence[str], given: Mapping[str, Any]) -> dict[str, Step]:
    """Functions and expressions as steps, each seeing the columns before it."""
    made: dict[str, Step] = {}
    pipeline = from_columns({name: [] for name in columns})
    for name, step in given.items():
        pipeline = pipeline.derive(step, into=name)
        assert isinstance(pipeline.plan, logical.Derive)
        made[name] = pipeline.plan.step
    return made


def add_columns(folder: Folder, given: Mapping[str, Any], steps: dict[str, Step]) -> commits.Change:
    """The commit that adds definitions; what it finds of functions goes into `steps`."""

    def change(head: Version) -> Version | None:
        known = current(folder, head)
        definitions = head.definitions
        new: list[str] = []
        for name, step in as_steps(tuple(known), given).items():
            fingerprint, data = define(known, name, step)
            steps[fingerprint] = step
            if known.get(name) == fingerprint:
                continue
            add_definition(folder, fingerprint, data)
            definitions = with_definition(folder, definitions, name, fingerprint)
            known[name] = fingerprint
            new.append(name)
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
