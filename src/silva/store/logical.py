"""A version of a table as a plan: its source, and a derive for each derived column that is read.

Definitions become ordinary nodes of the pipeline, so that the planner drops those that nothing
reads, moves filters before them, and reads them where they are stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from silva.errors import PlanError, TableError
from silva.pipeline import Pipeline
from silva.plan import expr
from silva.plan import node as logical
from silva.plan.function import Step
from silva.sources import from_columns
from silva.store.derived.definitions import (
    Recipe,
    add_definition,
    check_derived,
    current,
    define,
    recipes,
    with_definitions,
)
from silva.store.derived.table_source import TableSource
from silva.store.versions.manifest import Version, Wish
from silva.store.versions.table_folder import Folder

Derived = Callable[[Sequence[str]], list[logical.Derive]]
"""The derives over given columns."""


def table_pipeline(
    folder: Folder,
    version: Version,
    columns: Sequence[str] | None,
    steps: Mapping[str, Step],
    *,
    pinned: bool = False,
) -> Pipeline:
    """The rows of a version with these columns, or all. `steps` are the functions that this
    program has, by fingerprint. `pinned` says that the version was chosen."""
    names = tuple(current(folder, version)) if columns is None else tuple(columns)
    known = current(folder, version)
    for name in names:
        if name not in known:
            shown = ", ".join(map(repr, known))
            raise PlanError(f"there is no column {name!r}; the columns here are {shown}")
    found = recipes(folder, version, names, steps)
    source = replace(TableSource.of(folder, version), pinned=pinned)
    source, found = _given(source, found)
    plan: logical.Node = logical.Source(cast(logical.PlannedSource, source))
    occurrences: dict[str, int] = {}
    for step, into in _calls(found):
        written = ",".join(into)
        number = occurrences.get(written, 0)
        occurrences[written] = number + 1
        plan = logical.Derive(plan, step, into, f"{written}#{number}")
    pipeline = Pipeline(plan)
    return pipeline if pipeline.columns == names else pipeline.select(*names)


def _calls(found: Sequence[Recipe]) -> Iterator[tuple[Step, tuple[str, ...]]]:
    """Each step with the columns that it makes."""
    for parts, together in itertools.groupby(found, key=lambda recipe: recipe.parts):
        step = next(together).step
        if step is not None:
            yield step, tuple(dict(parts))


def _given(source: TableSource, found: list[Recipe]) -> tuple[TableSource, list[Recipe]]:
    """The source with the columns that need no function of this program, because they were put or
    are stored for all rows; and the recipes of the others."""
    left: list[Recipe] = []
    for recipe in found:
        if recipe.step is not None:
            left.append(recipe)
            continue
        name_in_use = any(recipe.name in (*other.reads, other.name) for other in left)
        if recipe.given is None:
            _check_stored(source, recipe, name_in_use)
        if not name_in_use:
            source = source.with_columns((recipe,), (recipe.name,))
            continue
        # A step reads the column that had this name before: rename after that step.
        hidden = f"silva.{recipe.fingerprint}"
        source = source.with_columns((replace(recipe, name=hidden),), (hidden,))
        inputs = (recipe.fingerprint,)
        own = (recipe.name, recipe.fingerprint)
        left.append(Recipe(*own, expr.Col(hidden), (hidden,), inputs, (own,)))
    return source, left


def _check_stored(source: TableSource, recipe: Recipe, name_in_use: bool) -> None:
    where = source.stored_in(recipe.fingerprint)
    into = tuple(dict(recipe.parts))
    again = f"{recipe.name}=…" if len(into) == 1 else f"…, into={into}"
    if where != "stored" and source.length():
        raise TableError(
            f"{recipe.name!r} of {source.describe()} is a function that this program does not "
            f"have, and it is {where or 'not stored'}. Derive it again on the table before you "
            f"read it, t.derive({again}), which changes nothing if it is the same; or "
            "name the columns that you need, columns=[…]"
        )
    if name_in_use:
        raise TableError(
            f"{recipe.name!r} of {source.describe()} was defined several times, and this "
            "program does not have the last function: derive it again"
        )


def derives(columns: Sequence[str], /, *function: Any, **arguments: Any) -> list[logical.Derive]:
    """The nodes that `Pipeline.derive` makes of its arguments over these columns; each step sees
    the columns of those before it."""
    plan = from_columns({name: [] for name in columns}).derive(*function, **arguments).plan
    made: list[logical.Derive] = []
    while isinstance(plan, logical.Derive):
        made.append(plan)
        plan = plan.input
    return made[::-1]


def add_columns(
    folder: Folder, derived: Derived, steps: dict[str, Step], head: Version
) -> Version | None:
    """The commit that adds definitions; their functions are added to `steps`."""
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
    what = f"derive {', '.join(new)}"
    return msgspec.structs.replace(head, definitions=definitions, what=what) if new else None


def add_wishes(
    folder: Folder, wishes: Mapping[str, Mapping[str, Any]], head: Version
) -> Version | None:
    """The commit that records what the user expects of columns."""
    for name in wishes:
        check_derived(folder, head, name)
    made = dict(head.wishes)
    for name, fields in wishes.items():
        made[name] = msgspec.structs.replace(made.get(name, Wish()), **fields)
    what = f"plan {', '.join(wishes)}"
    return None if made == head.wishes else msgspec.structs.replace(head, wishes=made, what=what)
