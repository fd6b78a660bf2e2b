"""Stores derived columns, fragment by fragment, each as soon as it is computed.

After an interruption, committed fragments stay, and the next call continues with the others. Rows
that are appended meanwhile are computed on read until the next call stores them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec
import numpy as np

from silva.columns import Column, concat
from silva.cost.machine import Machine
from silva.errors import SilvaError, TableError
from silva.facts.formatting import plural
from silva.plan.function import Step
from silva.store.append.data_writer import DataWriter, compute_bounds
from silva.store.derived.definitions import BASE, Recipe, check_derived, read_definition, recipes
from silva.store.derived.stored import encode_column, is_stored, stored_name
from silva.store.derived.table_source import TableSource
from silva.store.versions import commits
from silva.store.versions.manifest import Bounds, Fragment, InGroup, Part, Version
from silva.store.versions.table_folder import Folder

_AT_ONCE = 8192
"""Rows that are computed at once."""
_COMMIT = 1 << 20
"""Rows that are stored by one commit."""

NewParts = dict[str, tuple[Part, Bounds]]
"""New parts of a fragment with the bounds of their columns, by the fingerprint of a column."""
New = dict[str, NewParts]
"""New parts, by the id of a fragment."""


def store_columns(
    folder: Folder,
    branch: str,
    names: Sequence[str],
    steps: Mapping[str, Step],
    on_error: Literal["raise", "skip"],
) -> None:
    """Stores columns of one step as the branch defines them now. `steps` are the functions of this
    program."""
    head = folder.head(branch)
    for name in names:
        check_derived(folder, head, name)
    last = dict(head.definitions)
    wanted = {last[name]: name for name in names}
    for fingerprint, name in wanted.items():
        why = read_definition(folder, fingerprint).unstorable
        if why is not None:
            raise TableError(f"{name!r} cannot be stored: {why}")
    found = recipes(folder, head, names, steps)
    source = TableSource.of(folder, head).with_columns(found, names)
    with DataWriter(folder) as writer:
        for new in _stored_parts(writer, source, wanted, on_error):
            with writer.committing():
                commits.commit(folder, branch, functools.partial(_with_parts, folder, new, names))


def made_together(folder: Folder, version: Version, names: Sequence[str]) -> list[list[str]]:
    """The columns, grouped by the step that makes them."""
    last = dict(version.definitions)
    found: dict[Any, list[str]] = {}
    for name in dict.fromkeys(names):
        parts = read_definition(folder, last[name]).parts
        found.setdefault(parts or name, []).append(name)
    return list(found.values())


def _stored_parts(
    writer: DataWriter,
    source: TableSource,
    wanted: Mapping[str, str],
    on_error: Literal["raise", "skip"],
) -> Iterator[New]:
    """New parts for the fragments that lack columns (names by fingerprint), in portions that are
    worth a commit."""
    new: New = {}
    rows = 0
    for number, fragment in enumerate(source.fragments):
        lacking = {fp: name for fp, name in wanted.items() if not is_stored(fragment, fp)}
        if not lacking:
            continue
        made = _once_each(writer, source, number, lacking)
        made = made or _parts(writer, source, number, lacking, on_error)
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
    writer: DataWriter, source: TableSource, number: int, wanted: Mapping[str, str]
) -> NewParts | None:
    """Columns computed once for each distinct row of their inputs, and stored under the same index.
    None where the inputs are not in one group; where a value fails, which may belong to deleted
    rows only; or where the step draws random numbers, which differ from row to row."""
    fragment = source.fragments[number]
    recipe = next(r for r in source.recipes if r.fingerprint in wanted)
    group = _group_of(fragment.parts[0], recipe)
    if group is None or recipe.step is None:
        return None
    try:
        columns = source.distinct(number, group, recipe)
    except Exception:  # noqa: BLE001  the user's own: computing row by row finds the bad row
        return None
    if source.draws_from():
        return None
    write = functools.partial(writer.values, fragment.parts[0], group)
    return {fp: _new_part(name, fp, columns[fp], write) for fp, name in wanted.items()}


def _new_part(
    name: str, fingerprint: str, column: Column, write: Callable[[Any], Part]
) -> tuple[Part, Bounds]:
    import pyarrow as pa

    table = pa.table(encode_column(name, fingerprint, column))
    return write(table), compute_bounds(table)


def _group_of(part: Part, recipe: Recipe) -> int | None:
    """The group that holds all inputs of a column."""
    if not all(fingerprint.startswith(BASE) for fingerprint in recipe.inputs):
        return None
    found = {part.columns[fingerprint.removeprefix(BASE)] for fingerprint in recipe.inputs}
    stored = found.pop() if len(found) == 1 else None
    return stored.group if isinstance(stored, InGroup) else None


def _parts(
    writer: DataWriter,
    source: TableSource,
    number: int,
    wanted: Mapping[str, str],
    on_error: Literal["raise", "skip"],
) -> NewParts | None:
    first, end = int(source.starts[number]), int(source.starts[number + 1])
    compute = functools.partial(_computed, source, tuple(wanted.values()), end)
    starts = range(first, end, _AT_ONCE)
    try:
        if source.runs_user_code:
            # Functions hold the GIL, or draw from generators that all threads share; and only on
            # this thread does an interrupt reach them.
            parts = list(map(compute, starts))
        else:
            with ThreadPoolExecutor(Machine.here().cpus, "silva-store") as pool:
                parts = list(pool.map(compute, starts))
    except _FailedError as error:
        if on_error == "skip":
            return None
        raise TableError(
            f"{error}, so its fragment cannot be stored. materialize(…, on_error='skip') stores "
            "the others; on read, the loader's on_error decides about such rows"
        ) from error.__cause__
    if drawn := source.draws_from():
        raise TableError(
            f"{_shown(wanted.values())} cannot be stored: it draws from the generators of "
            f"{', '.join(sorted(drawn))}"
        )
    fragment = source.fragments[number]
    places: np.ndarray | None = None
    if fragment.deleted is not None:  # the values at deleted positions are never read
        live = np.zeros(fragment.rows, np.int64)
        live[source.within(number, np.arange(first, end))] = 1
        places = np.maximum(np.cumsum(live) - 1, 0)
    new: NewParts = {}
    for fingerprint, name in wanted.items():
        column = concat([part[name] for part in parts])
        column = column if places is None else column.take(places)
        new[fingerprint] = _new_part(name, fingerprint, column, writer.part)
    return new


class _FailedError(Exception):
    """A definition failed on some row."""


def _computed(
    source: TableSource, names: tuple[str, ...], end: int, start: int
) -> dict[str, Column]:
    rows = np.arange(start, min(start + _AT_ONCE, end))
    try:
        return source.read(rows, names)
    except SilvaError:
        raise
    except Exception as error:
        raise _FailedError(
            f"{_shown(names)} fails on a row from {start} to {int(rows[-1])} "
            f"({type(error).__name__}: {error})"
        ) from error


def _shown(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _with_parts(folder: Folder, new: New, names: Sequence[str], head: Version) -> Version | None:
    """The commit that adds new parts to the fragments that the branch still has."""
    changed = with_new(folder.all_fragments(head), new)
    what = f"store {', '.join(names)} of {plural(len(changed), 'fragment')}"
    return commits.replace_fragments(folder, head, changed, what)


def with_new(fragments: Iterable[Fragment], new: New) -> dict[str, Fragment | None]:
    """The fragments that get new parts, by id."""
    changed: dict[str, Fragment | None] = {}
    for fragment in fragments:
        for fingerprint, (part, bounds) in new.get(fragment.id, {}).items():
            if is_stored(fragment, fingerprint):
                continue
            fragment = changed[fragment.id] = msgspec.structs.replace(
                fragment,
                parts=(*fragment.parts, part),
                statistics={**fragment.statistics, **bounds},
            )
    return changed


def drop_parts(folder: Folder, name: str, head: Version) -> Version | None:
    """The commit that drops a stored column; older versions keep it."""
    check_derived(folder, head, name)
    fingerprint = dict(head.definitions)[name]
    changed: dict[str, Fragment | None] = {}
    for fragment in folder.all_fragments(head):
        if is_stored(fragment, fingerprint):
            kept = tuple(p for p in fragment.parts if not stored_name(p, fingerprint))
            bounds = {n: b for n, b in fragment.statistics.items() if n != fingerprint}
            changed[fragment.id] = msgspec.structs.replace(fragment, parts=kept, statistics=bounds)
    return commits.replace_fragments(folder, head, changed, f"compute {name} on read")
