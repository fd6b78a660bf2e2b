"""Columns of a fragment, by fingerprint: read where they are stored, computed elsewhere.

Readers of parts stay open for the next rows of the same fragment. A reader of Lance serves one
thread at a time, so each is lent to one caller and returned.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from silva.columns import Column
from silva.errors import TableError
from silva.folders import OwnFolder
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.physical.stage.rows import Rows
from silva.physical.stage.steps import Call, CallColumns, Evaluate
from silva.plan.function import Function, Step
from silva.store.derived.definitions import BASE, Recipe
from silva.store.derived.stored import decode_column, stored_name
from silva.store.files.data_files import Checked
from silva.store.files.part_files import PartReader
from silva.store.versions.manifest import Fragment, Part, all_files


class DerivedReader:
    """Reads columns of fragments. Safe to use from several threads."""

    def __init__(self, data: OwnFolder, recipes: Sequence[Recipe]) -> None:
        self._recipes = {recipe.fingerprint: recipe for recipe in recipes}
        self._readers = Readers(data)
        self._local = threading.local()
        self.drawn: frozenset[str] = frozenset()
        """Global random generators that functions have drawn from."""

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
            found[fingerprint] = decode_column(name, column)
        for fingerprint, recipe in computed.items():
            if fingerprint not in found:  # else another column was made by the same step
                found = self._compute(recipe, found, len(rows)) | found
        return found

    def of_part(self, part: Part, recipe: Recipe) -> dict[str, Column]:
        """The columns that a step makes of all rows of a part, which holds its inputs."""
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
        """Collects what must be read and, inputs first, computed for a column."""
        if fingerprint.startswith(BASE):
            base[fingerprint[len(BASE) :]] = None
            return
        if fingerprint in stored or fingerprint in computed:
            return
        for part in fragment.parts:
            if (name := stored_name(part, fingerprint)) is not None:
                stored[fingerprint] = (part, name)
                return
        recipe = self._recipes.get(fingerprint)
        if recipe is None:
            raise TableError(f"the definition {fingerprint} is not among those of its version")
        if recipe.step is None and recipe.given is None:
            raise TableError(
                f"{recipe.name!r} is not stored for all rows, and this program does not have its "
                "function: derive it again before you read the table"
            )
        for below in recipe.inputs:
            self._gather(fragment, below, base, stored, computed)
        computed[fingerprint] = recipe

    def _compute(self, recipe: Recipe, found: dict[str, Column], count: int) -> dict[str, Column]:
        """Computes all columns that a step makes, by fingerprint."""
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


def compute(
    step: Step, into: tuple[str, ...], columns: Mapping[str, Column], count: int, worker: Worker
) -> dict[str, Column]:
    """The columns that a step makes of `count` rows; raises what the step raises on the first bad
    row."""
    rows = Rows(Context(0, 0), dict(columns), np.arange(count, dtype=np.uint64), None, count)
    shown = ",".join(into)
    if not isinstance(step, Function):
        Evaluate(step, into, shown).apply(rows, worker)
    elif step.marks.batched:
        CallColumns(step, into, shown).apply(rows, worker)
    else:
        Call(step, into, shown).apply(rows, worker)
    for failure in rows.failures:
        raise failure.cause or ValueError(failure.error)
    return {name: rows.columns[name] for name in into}


_HELD = 256
"""Parts whose readers stay open."""
_DENSE = 32
"""Rows that Lance reads in a run in the time of one that it picks (zstd, 8 to 50 bytes a row: 12 to
33 M rows/s in a run; picked, 16,384 of 400,000 rows: 0.4 M rows/s)."""


class Readers:
    """Reads rows of parts. Safe to use from several threads."""

    def __init__(self, data: OwnFolder) -> None:
        self._data = data
        self._checked = Checked()
        self._idle: OrderedDict[str, list[PartReader]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, part: Part, rows: np.ndarray, columns: Sequence[str]) -> dict[str, Column]:
        """The rows of a part at these positions, in this order."""
        name = " ".join(file.name for file in all_files(part))
        reader = self._lend(name) or PartReader(self._data, part, self._checked)
        found = _read(reader, rows, columns)
        self._take_back(name, reader)
        return found

    def _lend(self, name: str) -> PartReader | None:
        with self._lock:
            idle = self._idle.get(name)
            return idle.pop() if idle else None

    def _take_back(self, name: str, reader: PartReader) -> None:
        with self._lock:
            self._idle.setdefault(name, []).append(reader)
            self._idle.move_to_end(name)
            if len(self._idle) > _HELD:
                self._idle.popitem(last=False)


def _read(reader: PartReader, rows: np.ndarray, columns: Sequence[str]) -> dict[str, Column]:
    """Rows by position; reads the whole run they lie in, where they are dense."""
    if len(rows) < 2:
        return reader.read(rows, columns)
    first, last = int(rows.min()), int(rows.max())
    count = last - first + 1
    if count == len(rows) or count > _DENSE * len(rows):
        return reader.read(rows, columns)
    run = reader.read(np.arange(first, last + 1), columns)
    return {name: column.take(rows - first) for name, column in run.items()}
