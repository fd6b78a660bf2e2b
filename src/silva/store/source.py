"""A version of a table as a source: any row at the same cost, whatever fragment it is in.

Rows are numbered through all fragments, without those that are deleted. What is asked for is read
fragment by fragment, each through a reader that stays open.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from silva.columns import Column, Values, concat, from_arrow, to_arrow
from silva.errors import PlanError
from silva.io.batches import short_type
from silva.io.travel import Travels
from silva.order.groups import Groups
from silva.plan.conditions import Condition
from silva.plan.fingerprint import digest
from silva.plan.function import Function
from silva.store.audit import Read, job_name, note
from silva.store.definitions import BASE, Recipe
from silva.store.derived import DerivedReader
from silva.store.folder import Folder
from silva.store.keys import live_rows
from silva.store.manifest import Fragment, ListRef, Version
from silva.store.normal import arrow_schema
from silva.store.stored import is_stored

_HOLES = 64
"""Fragments with deleted rows of which it is kept where the others are."""


@dataclass(frozen=True)
class TableSource(Travels):
    access: ClassVar[Literal["indexed"]] = "indexed"
    path: str
    branch: str
    number: int
    schema: str
    lists: tuple[ListRef, ...]
    recipes: tuple[Recipe, ...] = ()
    """How derived columns are computed, where they are not stored."""
    given: tuple[str, ...] = ()
    """The derived columns that this source gives, stored or not."""

    @staticmethod
    def of(folder: Folder, version: Version) -> TableSource:
        source = TableSource(
            str(folder.path), version.branch, version.number, version.schema, version.lists
        )
        source.starts  # noqa: B018  lists that are damaged or gone are no row's failure
        return source

    # What there is.

    @functools.cached_property
    def folder(self) -> Folder:
        return Folder(self.path)

    @functools.cached_property
    def fragments(self) -> tuple[Fragment, ...]:
        return tuple(f for ref in self.lists for f in self.folder.fragments(ref.name))

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The number of the first row of each fragment, and of all rows at the end."""
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
        """The columns, and what each of them is known by."""
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
        """Which rows there are: neither which branch has them nor what else is stored of them."""
        rows = [(f.id, f.deleted.file.name if f.deleted else "") for f in self.fragments]
        given = [(name, self._fingerprints[name]) for name in self.given]
        return f"table:{digest((self.schema, rows, *given))}"

    def length(self) -> int:
        return sum(ref.rows for ref in self.lists)

    # Rows.

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        if not columns:
            return {}
        if not len(rows):
            return {name: self._empty(name) for name in columns}
        places = self.places(rows)
        first = int(places[0])
        if (places == first).all():
            return self._read(first, rows, columns)
        order = None if (np.diff(places) >= 0).all() else np.argsort(places, kind="stable")
        if order is not None:
            rows, places = rows[order], places[order]
        edges = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(rows)]
        parts = [self._read(int(places[a]), rows[a:b], columns) for a, b in pairwise(edges)]
        found = {name: concat([part[name] for part in parts]) for name in columns}
        if order is None:
            return found
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return {name: column.take(back) for name, column in found.items()}

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

    def _read(self, number: int, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        fragment, positions = self.fragments[number], self.within(number, rows)
        wanted = {name: self._fingerprints[name] for name in columns}
        found = self._derived.read(fragment, positions, tuple(wanted.values()))
        return {name: found[fingerprint] for name, fingerprint in wanted.items()}

    @functools.cached_property
    def _derived(self) -> DerivedReader:
        return DerivedReader(self.folder.data, self.recipes)

    @functools.cached_property
    def _live(self) -> Callable[[int], np.ndarray]:
        return functools.lru_cache(maxsize=_HOLES)(
            lambda number: live_rows(self.folder, self.fragments[number])
        )

    # Who reads.

    def note_read(self, columns: tuple[str, ...], epoch: int) -> None:
        """Notes that somebody begins an epoch over these columns."""
        read = Read(time.time(), job_name(), os.getpid(), self.branch, self.number, epoch, columns)
        note(self.folder, read)

    # Groups.

    @property
    def group(self) -> str | None:
        return self.folder.schema(self.schema).group

    def groups(self) -> Groups:
        """Rows of the same group, wherever they were appended; reads the column of the group."""
        if self.group is None:
            raise PlanError(
                f"{self.describe()} has no group: sv.Table.create(path, data, group=…) gives it one"
            )
        return Groups(*_clustered([self._codes(i) for i in range(len(self.fragments))]))

    def _codes(self, number: int) -> Any:
        assert self.group is not None
        rows = np.arange(self.starts[number], self.starts[number + 1])
        return to_arrow(self._read(number, rows, (self.group,))[self.group])

    # Derived columns.

    def stored_in(self, fingerprint: str) -> str | None:
        """Where a derived column is stored, in words; None if nowhere."""
        count = sum(is_stored(fragment, fingerprint) for fragment in self.fragments)
        if not count:
            return None
        every = count == len(self.fragments)
        return "stored" if every else f"stored in {count} of {len(self.fragments)} fragments"

    def giving(self, recipes: tuple[tuple[Any, ...], ...], names: tuple[str, ...]) -> TableSource:
        """The source with derived columns of its own."""
        made = tuple(Recipe(*recipe) for recipe in recipes)
        return replace(self, recipes=self.recipes + made, given=self.given + names)

    @property
    def runs_user_code(self) -> bool:
        """Whether functions are called for rows of which their columns are not stored."""
        functions = [r for r in self.recipes if isinstance(r.step, Function)]
        return not all(is_stored(f, r.fingerprint) for r in functions for f in self.fragments)

    def inputs_of(self, rows: np.ndarray, recipe: Recipe) -> dict[str, Column]:
        """The columns that a derived column of this source is computed of."""
        found: dict[str, list[Column]] = {name: [] for name in recipe.reads}
        places = self.places(rows)
        for number in np.unique(places).tolist():
            positions = self.within(number, rows[places == number])
            read = self._derived.read(self.fragments[number], positions, recipe.inputs)
            for name, fingerprint in zip(recipe.reads, recipe.inputs, strict=True):
                found[name].append(read[fingerprint])
        return {name: concat(columns) for name, columns in found.items()}

    def distinct(self, number: int, group: int, recipe: Recipe) -> dict[str, Column]:
        """What a step makes, by fingerprint, of the distinct rows of a group of a fragment."""
        values = self.fragments[number].parts[0].groups[group].values
        return self._derived.of_part(values, recipe)

    def draws_from(self) -> frozenset[str]:
        """The global generators that its functions were found to use."""
        return self._derived.drawn

    # Statistics.

    def may_hold_rows(self, rows: np.ndarray, conditions: tuple[Condition, ...]) -> np.ndarray:
        """For each row, whether its fragment can hold one that meets all conditions."""
        found: np.ndarray = self._possible(conditions)[self.places(rows)]
        return found

    def passed_over(self, conditions: tuple[Condition, ...]) -> str:
        """How many fragments are not read, of how many."""
        possible = self._possible(conditions)
        noun = "fragment" if len(possible) == 1 else "fragments"
        return f"{(~possible).sum()} of {len(possible):,} {noun} skipped by their statistics"

    @functools.cached_property
    def _possible(self) -> Callable[[tuple[Condition, ...]], np.ndarray]:
        return functools.lru_cache(maxsize=8)(self._find_possible)

    def _find_possible(self, conditions: tuple[Condition, ...]) -> np.ndarray:
        known = {n: n for n, kind in self._types.items() if _is_number(kind)}
        known |= {name: self._fingerprints[name] for name in self.given}
        asked = [(c, known[c.column]) for c in conditions if c.column in known]
        possible = [
            all(c.may_hold(*f.statistics[name]) for c, name in asked if name in f.statistics)
            for f in self.fragments
        ]
        return np.array(possible, dtype=bool)


def _clustered(parts: list[Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """Where groups begin, in the order in which they first come, and the rows in that order."""
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
