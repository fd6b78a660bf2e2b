"""What a stage's worker reads itself: places in the order of an indexed source, or units of a
chunked one. Only where to read travels to the worker, not the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silva.columns import Block, Column, Values, concat
from silva.io.source import runs_user_code
from silva.order.draws import Draw, stream_key
from silva.order.positions import Map, order_rows
from silva.physical.call import Worker, watched
from silva.physical.context import Context
from silva.physical.globals import seeding
from silva.physical.rows import Rows

TAG_SHIFT = np.uint64(56)
"""A row's identity holds its source in the top 8 bits."""
IN_SOURCE = (np.uint64(1) << TAG_SHIFT) - np.uint64(1)
"""The part of an identity that is the row in its source."""
UNIT_SHIFT = 32
"""A row of a chunked source is known as (unit << 32 | row in it)."""
_SMALL_BYTES = 1 << 18
"""Blocks that are worth a copy to make one of several."""


@dataclass(frozen=True, eq=False)
class Places:
    """Input of a stage that reads an indexed source: places in the order."""

    start: int
    stop: int
    picked: np.ndarray | None = None
    """These places instead of a run, where rows are fetched again by identity."""

    def __len__(self) -> int:
        return self.stop - self.start if self.picked is None else len(self.picked)

    def positions(self) -> np.ndarray:
        return np.arange(self.start, self.stop) if self.picked is None else self.picked

    def slice(self, start: int, stop: int) -> Places:
        picked = None if self.picked is None else self.picked[start:stop]
        return Places(self.start + start, self.start + stop, picked)

    def take(self, rows: np.ndarray) -> Places:
        return replace(self, picked=self.positions()[rows])

    def describe(self) -> str:
        return f"rows {self.start} to {self.stop - 1} of the order"


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Input of a stage that reads a chunked source: rows of one unit, or of several."""

    runs: tuple[tuple[int, int, int], ...]
    """(unit, first row, end), one after the other."""
    most: int
    """Rows that a stage should have at a time."""
    picked: np.ndarray | None = None
    """Of all these rows just the ones with these numbers, which ascend."""

    def __len__(self) -> int:
        if self.picked is not None:
            return len(self.picked)
        return sum(stop - start for _, start, stop in self.runs)

    def slice(self, start: int, stop: int) -> UnitRows:
        return self.take(np.arange(start, stop))

    def take(self, rows: np.ndarray) -> UnitRows:
        return replace(self, picked=rows if self.picked is None else self.picked[rows])

    def describe(self) -> str:
        (first, start, _), (last, _, stop) = self.runs[0], self.runs[-1]
        return f"row {start} of chunk {first} to row {stop - 1} of chunk {last}"


@dataclass(frozen=True, eq=False)
class ReadPlaces:
    """Reads rows of an indexed source at places of an order."""

    source: Any
    columns: tuple[str, ...]
    maps: tuple[Map, ...]
    tag: int
    identity_by_place: bool
    """Rows drawn more than once are told apart by their place in the order."""

    @property
    def label(self) -> str:
        return f"read {', '.join(self.columns)}" if self.columns else "read"

    def index(self, places: Places, context: Context) -> np.ndarray:
        """The source's rows at these places."""
        length = self.source.length()
        return order_rows(self.maps, places.positions(), length, context.seed, context.epoch)

    def ids(self, places: Places, index: np.ndarray) -> np.ndarray:
        """The identities of the rows at these places."""
        identity = places.positions() if self.identity_by_place else index
        words = identity.view(np.uint64)  # rows are not negative: the same bits
        return words | (np.uint64(self.tag) << TAG_SHIFT) if self.tag else words

    def identities(self, places: Places, context: Context) -> tuple[np.ndarray, np.ndarray]:
        """Of each row, what it is computed from and its identity: rows drawn by `sample` are told
        apart by their place, but computed alike."""
        index = self.index(places, context)
        return index.astype(np.uint64), self.ids(places, index)

    def rows(
        self, places: Places, context: Context, worker: Worker, late: tuple[str, ...] = ()
    ) -> Rows:
        """The rows at these places, without the columns in `late`, which `fetch` reads. A source
        may call code that draws from global generators (a dataset with random transforms): it is
        then read row by row, seeded."""
        index = self.index(places, context)
        ids = self.ids(places, index)
        names = tuple(n for n in self.columns if n not in late)

        def attempt(seeded: frozenset[str]) -> Rows:
            rows = Rows(context, {}, ids, None, len(places), index=index if late else None)
            seeds: Iterator[None] | None = None
            if seeded:
                key = stream_key(context.seed, context.epoch, self.label)
                seeds = seeding(seeded, Draw(key, ids).seeds().tolist())
                rows.columns = self._read_one_by_one(rows, index, names, None, seeds)
                return rows
            try:
                rows.columns = self._read(places, index, names)
            except Exception as error:  # noqa: BLE001  any error is the row's failure
                rows.columns = self._read_one_by_one(rows, index, names, error, None)
            return rows

        if not runs_user_code(self.source):
            return attempt(frozenset())
        return watched(self.source, worker, attempt)

    def fetch(self, rows: Rows, late: tuple[str, ...]) -> None:
        """Reads the columns that were left for later, of the rows that are still there."""
        assert rows.index is not None
        try:
            found = dict(self.source.read(rows.index, late)) if len(rows) else {}
        except Exception as error:  # noqa: BLE001  any error is the row's failure
            found = self._read_one_by_one(rows, rows.index, late, error, None)
        found = found or {name: Values([]) for name in late}
        own = {n: c for n, c in rows.columns.items() if n not in self.columns}
        first = {n: found[n] if n in late else rows.columns[n] for n in self.columns}
        rows.columns, rows.index = {**first, **own}, None

    def _read(self, places: Places, index: np.ndarray, names: tuple[str, ...]) -> dict[str, Column]:
        run = getattr(self.source, "read_run", None)  # quicker, where rows are in memory in order
        if run is not None and not self.maps and places.picked is None:
            return dict(run(places.start, places.stop, names))
        return dict(self.source.read(index, names))

    def _read_one_by_one(
        self,
        rows: Rows,
        index: np.ndarray,
        names: tuple[str, ...],
        whole_error: Exception | None,
        seeds: Iterator[None] | None,
    ) -> dict[str, Column]:
        good = np.ones(len(rows), dtype=bool)
        failed = len(rows.failures)
        parts: list[dict[str, Column]] = []
        substitute = rows.context.on_error == "substitute"
        for i in range(len(index)):
            if seeds is not None:
                next(seeds)
            try:
                parts.append(self.source.read(index[i : i + 1], names))
            except Exception as error:  # noqa: BLE001  any error is the row's failure
                rows.fail(i, self.label, error)
                if substitute:
                    parts.append({n: Values([rows.context.substitute]) for n in names})
                    continue
                good[i] = False
                if rows.context.on_error == "raise":
                    good[i:] = False
                    break
        if len(rows.failures) == failed and whole_error is not None:
            raise whole_error
        rows.keep(good)
        return {n: concat([p[n] for p in parts]) if parts else Values([]) for n in names}


@dataclass(frozen=True, eq=False)
class ReadUnits:
    """Reads units of a chunked source, or runs of rows of them.

    A unit that cannot be read is an error, whatever is done about rows that fail: nothing is known
    of its rows.
    """

    source: Any
    columns: tuple[str, ...]
    tag: int

    @property
    def label(self) -> str:
        return f"read {', '.join(self.columns)}" if self.columns else "read"

    def ids(self, unit: int, start: int, stop: int) -> np.ndarray:
        """The identities of a run of rows."""
        first = (self.tag << int(TAG_SHIFT)) | (unit << UNIT_SHIFT)
        return np.arange(start, stop, dtype=np.uint64) + np.uint64(first)

    def identities(self, rows: UnitRows, context: Context) -> tuple[np.ndarray, np.ndarray]:
        """Of each row, what it is computed from and its identity."""
        runs = [self.ids(*run) for run in rows.runs]
        ids = runs[0] if len(runs) == 1 else np.concatenate(runs)
        ids = ids if rows.picked is None else ids[rows.picked]
        return ids & IN_SOURCE, ids

    def blocks(self, rows: UnitRows) -> Iterator[Block]:
        """The rows as they are read, in blocks of bounded size; small ones are joined."""
        held: list[Block] = []
        for block in self._blocks(rows):
            small = block.nbytes < _SMALL_BYTES
            if held and not (small and sum(map(len, held)) + len(block) <= rows.most):
                yield Block.concat(held)
                held = []
            if small:
                held.append(block)
            else:
                yield block
        if held:
            yield Block.concat(held)

    def _blocks(self, rows: UnitRows) -> Iterator[Block]:
        before = 0
        for unit, start, stop in rows.runs:
            if rows.picked is None:
                yield from self.unit_blocks(unit, start, stop, rows.most)
                continue
            first, last = np.searchsorted(rows.picked, (before, before + stop - start))
            wanted = rows.picked[first:last] - before + start
            before += stop - start
            if len(wanted):
                yield from self._picked(unit, wanted, rows.most)

    def _picked(self, unit: int, wanted: np.ndarray, most: int) -> Iterator[Block]:
        at = int(wanted[0])
        for block in self.unit_blocks(unit, at, int(wanted[-1]) + 1, most):
            first, last = np.searchsorted(wanted, (at, at + len(block)))
            if first < last:
                yield block.take(wanted[first:last] - at)
            at += len(block)

    def unit_blocks(self, unit: int, start: int, stop: int, most: int) -> Iterator[Block]:
        """A run of rows in blocks of at most so many."""
        for block in self.cut(self.source.open(unit, start, self.columns), unit, start, stop):
            for at in range(0, len(block), most):
                yield block.slice(at, at + most)

    def cut(
        self, runs: Iterator[dict[str, Column]], unit: int, start: int, stop: int | None
    ) -> Iterator[Block]:
        """What the source gives of a unit from row `start` on, as blocks, up to row `stop`."""
        for columns in runs:
            end = start + len(next(iter(columns.values())))
            if stop is not None and end > stop:
                columns = {n: c.slice(0, stop - start) for n, c in columns.items()}
                end = stop
            if start < end:
                ids = self.ids(unit, start, end)
                yield Block({n: c for n, c in columns.items() if n}, ids)
            if end == stop:
                return
            start = end


Reads = ReadPlaces | ReadUnits
