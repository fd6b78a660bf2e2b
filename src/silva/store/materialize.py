"""A derived column is stored: fragment by fragment, each as soon as it is done.

What is committed stays, whatever happens then; whoever goes on begins where it ended. Rows that
are appended meanwhile are computed when they are read, until they are stored too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import msgspec
import numpy as np

from silva.columns import Column, concat
from silva.errors import SilvaError, TableError
from silva.insight.words import plural
from silva.plan.node import Step
from silva.profile.machine import Machine
from silva.store import commits
from silva.store.definitions import BASE, Recipe, facts, read_definition, recipes
from silva.store.folder import Folder
from silva.store.layout import Grouped, Part
from silva.store.manifest import Bound, Fragment, Version
from silva.store.source import TableSource
from silva.store.statistics import statistics
from silva.store.stored import encoded, is_stored, stored_name
from silva.store.writer import Writer

_AT_ONCE = 8192
"""Rows that are computed at a time."""
_COMMIT = 1 << 20
"""Rows that are stored by one commit."""

New = dict[str, tuple[Part, dict[str, tuple[Bound, Bound]]]]
"""By the id of a fragment: a new part of it, and its statistics."""


def store_column(
    folder: Folder,
    branch: str,
    name: str,
    steps: Mapping[str, Step],
    on_error: Literal["raise", "skip"],
) -> None:
    """Stores what a branch defines a column to be now; `steps` are the functions of this
    program."""
    head = folder.head(branch)
    fingerprint = dict(head.definitions)[name]
    why = read_definition(folder, fingerprint).unstorable
    if why is not None:
        raise TableError(f"{name!r} cannot be stored: {why}")
    found = recipes(folder, head, (name,), steps)
    source = giving(TableSource.of(folder, head), found, name)
    with Writer(folder) as writer:
        for new in _stored_parts(writer, source, name, fingerprint, on_error):
            with writer.committing():
                commits.commit(folder, branch, _with_parts(folder, new, name, fingerprint))


def giving(source: TableSource, found: Sequence[Recipe], name: str) -> TableSource:
    """The source with one derived column."""
    return source.giving(tuple(facts(r) for r in found), (name,))


def _stored_parts(
    writer: Writer,
    source: TableSource,
    name: str,
    fingerprint: str,
    on_error: Literal["raise", "skip"],
) -> Iterator[New]:
    """Parts for the fragments that lack the column, as many at a time as are worth a commit."""
    new: New = {}
    rows = 0
    for number, fragment in enumerate(source.fragments):
        if is_stored(fragment, fingerprint):
            continue
        made = _once_each(writer, source, number, name, fingerprint)
        made = made or _part(writer, source, number, name, fingerprint, on_error)
        if made is None:
            continue
        new[fragment.id] = made
        rows += fragment.rows
        if rows >= _COMMIT:
            yield new
            new, rows = {}, 0
    if new:
        yield new


def _once_each(
    writer: Writer, source: TableSource, number: int, name: str, fingerprint: str
) -> tuple[Part, dict[str, tuple[Bound, Bound]]] | None:
    """The column computed once for each distinct row of what it reads, and stored under the same
    index. None where that is not all in one group; where it fails on some value, which may be one
    that only deleted rows have; or where it draws random numbers, which differ from row to row."""
    import pyarrow as pa

    fragment = source.fragments[number]
    recipe = next(r for r in source.recipes if r.fingerprint == fingerprint)
    group = _group_of(fragment.parts[0], recipe)
    if group is None or recipe.step is None:
        return None
    try:
        column = source.distinct(number, group, recipe)
    except Exception:  # noqa: BLE001  the user's own: rows are asked one by one which of them it is
        return None
    if source.draws_from():
        return None
    table = pa.table(encoded(name, fingerprint, column))
    bounds = statistics(table)
    known = {fingerprint: bounds[fingerprint]} if fingerprint in bounds else {}
    return writer.values(fragment.parts[0], group, table), known


def _group_of(part: Part, recipe: Recipe) -> int | None:
    """The group that holds all that a column is computed of."""
    if not all(fingerprint.startswith(BASE) for fingerprint in recipe.inputs):
        return None
    found = {
        stored.group if isinstance(stored := part.columns[name.removeprefix(BASE)], Grouped) else -1
        for name in recipe.inputs
    }
    return found.pop() if len(found) == 1 and -1 not in found else None


def _part(
    writer: Writer,
    source: TableSource,
    number: int,
    name: str,
    fingerprint: str,
    on_error: Literal["raise", "skip"],
) -> tuple[Part, dict[str, tuple[Bound, Bound]]] | None:
    import pyarrow as pa

    first, end = int(source.starts[number]), int(source.starts[number + 1])
    # functions hold Python's lock, or draw from generators that all threads share
    threads = 1 if source.runs_user_code else Machine.here().cpus
    try:
        with ThreadPoolExecutor(threads, "silva-store") as pool:
            compute = functools.partial(_computed, source, name, end)
            parts = list(pool.map(compute, range(first, end, _AT_ONCE)))
    except _FailedError as error:
        if on_error == "skip":
            return None
        raise TableError(
            f"{error}, so it cannot be stored there. On read, the loader's on_error decides; "
            "materialize(…, on_error='skip') stores the rest"
        ) from error.__cause__
    if drawn := source.draws_from():
        raise TableError(
            f"{name!r} cannot be stored: it draws from the generators of {', '.join(sorted(drawn))}"
        )
    fragment = source.fragments[number]
    column = concat(parts)
    if fragment.deleted is not None:  # what is put in the place of deleted rows is never read
        live = np.zeros(fragment.rows, np.int64)
        live[source.within(number, np.arange(first, end))] = 1
        column = column.take(np.maximum(np.cumsum(live) - 1, 0))
    table = pa.table(encoded(name, fingerprint, column))
    bounds = statistics(table)
    known = {fingerprint: bounds[fingerprint]} if fingerprint in bounds else {}
    return writer.part(table), known


class _FailedError(Exception):
    """A definition failed on some row."""


def _computed(source: TableSource, name: str, end: int, start: int) -> Column:
    rows = np.arange(start, min(start + _AT_ONCE, end))
    try:
        return source.read(rows, (name,))[name]
    except SilvaError:
        raise
    except Exception as error:
        raise _FailedError(
            f"{name!r} fails on a row from {start} to {int(rows[-1])} "
            f"({type(error).__name__}: {error})"
        ) from error


def _with_parts(folder: Folder, new: New, name: str, fingerprint: str) -> commits.Change:
    """The commit that names new parts, on top of any version that still has their fragments."""

    def change(head: Version) -> Version | None:
        changed = with_new(folder.all_fragments(head), new, fingerprint)
        if not changed:
            return None
        what = f"store {name} of {plural(len(changed), 'fragment')}"
        lists = commits.changed_lists(folder, head.lists, changed)
        return msgspec.structs.replace(head, lists=lists, what=what)

    return change


def with_new(
    fragments: Iterable[Fragment], new: New, fingerprint: str
) -> dict[str, Fragment | None]:
    """The fragments that get a new part, by id."""
    changed: dict[str, Fragment | None] = {}
    for fragment in fragments:
        if fragment.id in new and not is_stored(fragment, fingerprint):
            part, bounds = new[fragment.id]
            changed[fragment.id] = msgspec.structs.replace(
                fragment,
                parts=(*fragment.parts, part),
                statistics={**fragment.statistics, **bounds},
            )
    return changed


def drop_parts(folder: Folder, name: str) -> commits.Change:
    """The commit after which a column is computed on read again; older versions keep it."""

    def change(head: Version) -> Version | None:
        fingerprint = dict(head.definitions).get(name, "")
        changed: dict[str, Fragment | None] = {}
        for fragment in folder.all_fragments(head):
            if is_stored(fragment, fingerprint):
                kept = tuple(p for p in fragment.parts if not stored_name(p, fingerprint))
                bounds = {n: b for n, b in fragment.statistics.items() if n != fingerprint}
                changed[fragment.id] = msgspec.structs.replace(
                    fragment, parts=kept, statistics=bounds
                )
        if not changed:
            return None
        lists = commits.changed_lists(folder, head.lists, changed)
        return msgspec.structs.replace(head, lists=lists, what=f"compute {name} on read")

    return change
