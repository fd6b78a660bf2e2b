"""A version of a table as an indexed source: any row costs the same, whatever its fragment.

Rows are numbered through all fragments, without deleted ones. They are read fragment by fragment,
through readers that stay open.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from silva.columns import Column, Values, concat, from_arrow, to_arrow
from silva.errors import PlanError
from silva.io.arrow_batches import short_type
from silva.io.conditions import Condition
from silva.io.source import Travels, register_source
from silva.order.positions import Groups
from silva.plan.fingerprint import digest
from silva.plan.function import Function
from silva.store.append.new_keys import live_rows
from silva.store.append.normal_form import arrow_schema
from silva.store.derived.columns import DerivedReader
from silva.store.derived.definitions import BASE, Recipe
from silva.store.derived.stored import is_stored
from silva.store.versions.audit import Read, job_name, note
from silva.store.versions.manifest import Fragment, ListRef, Version
from silva.store.versions.table_folder import Folder

_HOLES = 64
"""Fragments with deleted rows whose live positions are cached."""


@register_source("table")
@dataclass(frozen=True)
class TableSource(Travels):
    path: str
    branch: str
    number: int
    schema: str
    lists: tuple[ListRef, ...]
    recipes: tuple[Recipe, ...] = ()
    """The recipes of derived columns, for rows where they are not stored."""
    given: tuple[str, ...] = ()
    """The derived columns that this source reads, stored or not."""
    pinned: bool = False
    """Whether the version was chosen, and is not just the last one of its branch."""

    @staticmethod
    def of(folder: Folder, version: Version) -> TableSource:
        source = TableSource(
            str(folder.path), version.branch, version.number, version.schema, version.lists
        )
        source.starts  # noqa: B018  raises for damaged lists now, not as a row's failure
        return source

    def refreshed(self) -> TableSource:
        """The last version of the branch, read in the same way; itself if it is that one, or was
        chosen."""
        folder = Folder(self.path)
        head = None if self.pinned else folder.head(self.branch)
        if head is None or head.number == self.number:
            return self
        return replace(TableSource.of(folder, head), recipes=self.recipes, given=self.given)

    # Facts.

    @functools.cached_property
    def folder(self) -> Folder:
        return Folder(self.path)

    @functools.cached_property
    def fragments(self) -> tuple[Fragment, ...]:
        return tuple(f for ref in self.lists for f in self.folder.fragments(ref))

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The number of the first row of each fragment, and at the end the number of rows."""
        counts = np.array([0, *(f.live for f in self.fragments)], dtype=np.int64)
        return np.cumsum(counts)

    @functools.cached_property
    def _types(self) -> dict[str, Any]:
        found = arrow_schema(self.folder.schema(self.schema))
        return {field.name: field.type for field in found}

    def columns(self) -> tuple[str, ...]:
        return tuple(self.fingerprints())

    def types(self) -> dict[str, str]:
        own = {n: t for n, t in self._types.items() if n not in self.given}
        return {name: short_type(kind) for name, kind in own.items()}

    def fingerprints(self) -> dict[str, str]:
        """The fingerprint of each column."""
        return self._fingerprints

    @functools.cached_property
    def _fingerprints(self) -> dict[str, str]:
        derived = {recipe.name: recipe.fingerprint for recipe in self.recipes}
        base = {name: BASE + name for name in self._types}
        return base | {name: derived[name] for name in self.given}

    def describe(self) -> str:
        return f"table {self.path} ({self.branch} {self.number})"

    def fingerprint(self) -> str:
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        """Covers the rows, but neither their branch nor what else is stored."""
        rows = [(f.id, f.deleted.file.name if f.deleted else "") for f in self.fragments]
        given = [(name, self._fingerprints[name]) for name in self.given]
        return digest((self.schema, rows, *given))

    def length(self) -> int:
        return sum(ref.rows for ref in self.lists)

    # Rows.

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        if not columns:
            return {}
        if not len(rows):
            return {name: self._empty(name) for name in columns}
        wanted = {name: self._fingerprints[name] for name in columns}
        found = self._read(rows, tuple(wanted.values()))
        return {name: found[fingerprint] for name, fingerprint in wanted.items()}

    def inputs_of(self, rows: np.ndarray, recipe: Recipe) -> dict[str, Column]:
        """The columns that a derived column of this source is computed from."""
        found = self._read(rows, recipe.inputs)
        return {n: found[fp] for n, fp in zip(recipe.reads, recipe.inputs, strict=True)}

    def _read(self, rows: np.ndarray, fingerprints: tuple[str, ...]) -> dict[str, Column]:
        """The columns with these fingerprints, read fragment by fragment."""
        places = self.places(rows)
        order = None if (np.diff(places) >= 0).all() else np.argsort(places, kind="stable")
        if order is not None:
            rows, places = rows[order], places[order]
        edges = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(rows)]
        parts: list[dict[str, Column]] = []
        for start, end in pairwise(edges):
            number = int(places[start])
            positions = self.within(number, rows[start:end])
            parts.append(self._derived.read(self.fragments[number], positions, fingerprints))
        if len(parts) == 1:
            return parts[0]
        found = {fp: concat([part[fp] for part in parts]) for fp in fingerprints}
        if order is None:
            return found
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return {fp: column.take(back) for fp, column in found.items()}

    def places(self, rows: np.ndarray) -> np.ndarray:
        """The number of the fragment of each row."""
        found: np.ndarray = np.searchsorted(self.starts, rows, side="right") - 1
        return found

    def within(self, number: int, rows: np.ndarray) -> np.ndarray:
        """Positions within the files of a fragment."""
        local: np.ndarray = rows - self.starts[number]
        return local if self.fragments[number].deleted is None else self._live(number)[local]

    def _empty(self, name: str) -> Column:
        import pyarrow as pa

        for recipe in self.recipes:
            if recipe.fingerprint == self._fingerprints[name] and recipe.given is not None:
                return recipe.given.missing(0)
        own = self._types.get(name) if name not in self.given else None
        return Values([]) if own is None else from_arrow(pa.array([], type=own))

    @functools.cached_property
    def _derived(self) -> DerivedReader:
        return DerivedReader(self.folder.data, self.recipes)

    @functools.cached_property
    def _live(self) -> Callable[[int], np.ndarray]:
        return functools.lru_cache(maxsize=_HOLES)(
            lambda number: live_rows(self.folder, self.fragments[number])
        )

    # Audit.

    def note_read(self, columns: tuple[str, ...], epoch: int) -> None:
        """Notes in the audit log that an epoch over these columns starts."""
        read = Read(time.time(), job_name(), os.getpid(), self.branch, self.number, epoch, columns)
        note(self.folder, read)

    # Groups.

    @property
    def group(self) -> str | None:
        return self.folder.schema(self.schema).group

    def groups(self) -> Groups:
        """The rows of each group, wherever they were appended; reads the group's column."""
        name = self.group
        if name is None:
            raise PlanError(
                f"{self.describe()} has no group: pass sv.Table.create(path, data, group=…)"
            )
        runs = [np.arange(start, end) for start, end in pairwise(self.starts)]
        return Groups(*_clustered([to_arrow(self.read(rows, (name,))[name]) for rows in runs]))

    # Derived columns.

    def stored_in(self, fingerprint: str) -> str | None:
        """Where a derived column is stored, in words; None if nowhere."""
        count = sum(is_stored(fragment, fingerprint) for fragment in self.fragments)
        if not count:
            return None
        every = count == len(self.fragments)
        return "stored" if every else f"stored in {count} of {len(self.fragments)} fragments"

    def giving(self, recipes: tuple[tuple[Any, ...], ...], names: tuple[str, ...]) -> TableSource:
        """The source with derived columns of its own, for the rule `read_stored`, which knows the
        fields of a `Recipe` but not its class."""
        return self.with_columns([Recipe(*recipe) for recipe in recipes], names)

    def with_columns(self, recipes: Sequence[Recipe], names: Sequence[str]) -> TableSource:
        """The source with derived columns of its own."""
        own = (*self.recipes, *recipes)
        return replace(self, recipes=own, given=(*self.given, *names))

    @property
    def runs_user_code(self) -> bool:
        """Whether some rows need a function call, because a column is not stored for them."""
        functions = [r for r in self.recipes if isinstance(r.step, Function)]
        return not all(is_stored(f, r.fingerprint) for r in functions for f in self.fragments)

    def distinct(self, number: int, group: int, recipe: Recipe) -> dict[str, Column]:
        """The columns that a step makes of the distinct rows of a fragment's group, by
        fingerprint."""
        values = self.fragments[number].parts[0].groups[group].values
        return self._derived.of_part(values, recipe)

    def draws_from(self) -> frozenset[str]:
        """The global generators that its functions were found to use."""
        return self._derived.drawn

    # Statistics.

    def may_hold_rows(self, rows: np.ndarray, conditions: tuple[Condition, ...]) -> np.ndarray:
        """For each row, whether its fragment may hold a row that meets all conditions."""
        found: np.ndarray = self._possible(conditions)[self.places(rows)]
        return found

    def passed_over(self, conditions: tuple[Condition, ...]) -> str:
        """How many fragments are skipped, as text."""
        possible = self._possible(conditions)
        noun = "fragment" if len(possible) == 1 else "fragments"
        return f"{(~possible).sum()} of {len(possible):,} {noun} skipped by their statistics"

    @functools.cached_property
    def _possible(self) -> Callable[[tuple[Condition, ...]], np.ndarray]:
        """For each fragment, whether its statistics allow a row that meets all conditions."""
        known = {n: n for n, kind in self._types.items() if _is_number(kind)}
        known |= {name: self._fingerprints[name] for name in self.given}

        def may_hold(fragment: Fragment, condition: Condition) -> bool:
            bounds = fragment.statistics.get(known.get(condition.column, ""))
            if bounds is None or any(isinstance(bound, str) for bound in bounds):
                return True
            return condition.may_hold(*bounds)

        return functools.lru_cache(maxsize=8)(
            lambda conditions: np.array(
                [all(may_hold(f, c) for c in conditions) for f in self.fragments], dtype=bool
            )
        )


def _clustered(parts: list[Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """Where groups begin, in the order of their first rows, and the rows in that order."""
    import pyarrow as pa

    if not parts:
        return np.zeros(1, np.int64), None
    chunks = pa.chunked_array(parts).dictionary_encode().combine_chunks()
    codes = chunks.indices.to_numpy().astype(np.int64)
    starts = np.append(0, np.cumsum(np.bincount(codes)))
    if (np.diff(codes) >= 0).all():
        return starts, None
    return starts, np.argsort(codes, kind="stable")


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
