"""Columns of one fragment, by fingerprint: read where they are stored, computed where not."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from silva.columns import Column
from silva.errors import TableError
from silva.physical.call import Worker
from silva.plan.function import Function
from silva.store.compute import compute
from silva.store.definitions import BASE, Recipe
from silva.store.layout import Part
from silva.store.manifest import Fragment
from silva.store.readers import Readers
from silva.store.stored import decoded, stored_name


class DerivedReader:
    """Reads columns of fragments. Safe to use from several threads."""

    def __init__(self, data: Path, recipes: Sequence[Recipe]) -> None:
        self._recipes = {recipe.fingerprint: recipe for recipe in recipes}
        self._readers = Readers(data)
        self._local = threading.local()
        self.drawn: frozenset[str] = frozenset()
        """Global generators that functions were found to draw from."""

    def read(
        self, fragment: Fragment, rows: np.ndarray, fingerprints: Sequence[str]
    ) -> dict[str, Column]:
        """Columns of the rows at these positions."""
        base: dict[str, None] = {}
        stored: dict[str, tuple[Part, str]] = {}
        computed: dict[str, Recipe] = {}
        for fingerprint in fingerprints:
            self._gather(fragment, fingerprint, base, stored, computed)
        found: dict[str, Column] = {}
        if base:
            read = self._readers.read(fragment.parts[0], rows, tuple(base))
            found |= {BASE + name: column for name, column in read.items()}
        for fingerprint, (part, name) in stored.items():
            (column,) = self._readers.read(part, rows, (name,)).values()
            found[fingerprint] = decoded(name, column)
        for fingerprint, recipe in computed.items():
            if fingerprint not in found:  # else another column was made by the same step
                found = self._compute(recipe, found, len(rows)) | found
        return found

    def of_part(self, part: Part, recipe: Recipe) -> dict[str, Column]:
        """What a step makes, computed of all rows of a part, which holds what it reads."""
        names = {fingerprint: fingerprint.removeprefix(BASE) for fingerprint in recipe.inputs}
        read = self._readers.read(part, np.arange(part.rows), tuple(names.values()))
        return self._compute(recipe, {fp: read[n] for fp, n in names.items()}, part.rows)

    def _gather(
        self,
        fragment: Fragment,
        fingerprint: str,
        base: dict[str, None],
        stored: dict[str, tuple[Part, str]],
        computed: dict[str, Recipe],
    ) -> None:
        """Notes what must be read and, inputs first, computed for a column."""
        if fingerprint.startswith(BASE):
            base[fingerprint[len(BASE) :]] = None
            return
        if fingerprint in stored or fingerprint in computed:
            return
        for part in fragment.parts:
            if (name := stored_name(part, fingerprint)) is not None:
                stored[fingerprint] = (part, name)
                return
        recipe = self._recipes[fingerprint]
        if recipe.step is None and recipe.given is None:
            raise TableError(
                f"{recipe.name!r} is not stored for all rows, and this program does not have its "
                "function: derive it again"
            )
        for below in recipe.inputs:
            self._gather(fragment, below, base, stored, computed)
        computed[fingerprint] = recipe

    def _compute(self, recipe: Recipe, found: dict[str, Column], count: int) -> dict[str, Column]:
        """All columns that a step makes, by fingerprint."""
        if recipe.given is not None:
            return {recipe.fingerprint: recipe.given.missing(count)}
        assert recipe.step is not None, "columns are gathered before"
        worker = getattr(self._local, "worker", None)
        if worker is None:
            worker = self._local.worker = Worker(shares_generators=False)
        columns = {n: found[fp] for n, fp in zip(recipe.reads, recipe.inputs, strict=True)}
        made = compute(recipe.step, tuple(dict(recipe.parts)), columns, count, worker)
        if isinstance(recipe.step, Function) and (drawn := worker.seeded(recipe.step)):
            self.drawn |= drawn
        return {fingerprint: made[name] for name, fingerprint in recipe.parts}
