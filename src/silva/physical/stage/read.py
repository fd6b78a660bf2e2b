"""Reading rows of a source in a worker: only what to read travels to it.

`Places` are places in the order of an indexed source, and `ReadPlaces` reads them. `UnitRows` are
runs of rows in units of a chunked source, and `ReadUnits` reads them from front to back, in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from silva.columns import Block, Column, Values
from silva.columns.owned import without_shared_containers
from silva.io.conditions import Condition
from silva.io.source import Chunked, Indexed
from silva.order.draws import Draw, stream_key
from silva.order.positions import Map, order_rows
from silva.physical.stage.call import Worker, watched
from silva.physical.stage.context import IN_SOURCE, TAG_SHIFT, UNIT_SHIFT, Context
from silva.physical.stage.global_generators import seeding
from silva.physical.stage.rows import Rows, concat_each

_SMALL_BYTES = 1 << 18
"""Smaller blocks are copied to join several into one."""


@runtime_checkable
class HasRowStatistics(Protocol):
    """An indexed source that knows, without reading them, which rows cannot meet conditions."""

    def may_hold_rows(self, rows: np.ndarray, conditions: tuple[Condition, ...]) -> np.ndarray: ...
    def passed_over(self, conditions: tuple[Condition, ...]) -> str | None: ...


@dataclass(frozen=True, eq=False)
class Places:
    """The input of a stage that reads an indexed source: places in the order."""

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
class ReadPlaces:
    """Reads rows of an indexed source at places of an order."""

    source: Indexed
    columns: tuple[str, ...]
    maps: tuple[Map, ...]
    tag: int
    identity_by_place: bool
    """Whether rows that are drawn more than once are distinguished by their place in the order."""
    conditions: tuple[Condition, ...] = ()
    """Conditions of the stage above; a row that cannot meet them by the source's statistics is not
    read."""

    @property
    def label(self) -> str:
        return f"read {', '.join(self.columns)}" if self.columns else "read"

    def passed_over(self, conditions: tuple[Condition, ...]) -> str | None:
        """What such conditions let the source skip, in words; None if nothing."""
        known = self.source
        return known.passed_over(conditions) if isinstance(known, HasRowStatistics) else None

    def index(self, places: Places, context: Context) -> np.ndarray:
        """The source's rows at these places."""
        length = self.source.length()
        return order_rows(self.maps, places.positions(), length, context.seed, context.epoch)

    def ids(self, places: Places, index: np.ndarray) -> np.ndarray:
        """The identities of the rows at these places: their number, unless the source knows them by
        other names."""
        identity = places.positions() if self.identity_by_place else index
        named = getattr(self.source, "identities", None)
        if named is not None and not self.identity_by_place:
            identity = named[index]
        words = identity.view(np.uint64)  # rows are not negative: the same bits
        return words | np.uint64(self.tag << TAG_SHIFT) if self.tag else words

    def identities(self, places: Places, context: Context) -> tuple[np.ndarray, np.ndarray]:
        """For each row, the source row that it is computed from, and its identity. Rows that
        `sample` draws twice have the same source row, and differ in their place."""
        index = self.index(places, context)
        return index.astype(np.uint64), self.ids(places, index)

    def rows(
        self, places: Places, context: Context, worker: Worker, late: tuple[str, ...] = ()
    ) -> Rows:
        """The rows at these places, without the columns in `late`, which `fetch` reads. A source
        may call code that draws from global generators (a dataset with random transforms): it is
        then read row by row, seeded."""
        all_index = self.index(places, context)
        all_ids = self.ids(places, all_index)
        possible = self._possible(all_index)
        index = all_index if possible is None else all_index[possible]
        names = tuple(n for n in self.columns if n not in late)

        def attempt(seeded: frozenset[str]) -> Rows:
            rows = Rows(context, {}, all_ids, None, len(places), index=all_index if late else None)
            if possible is not None:
                rows.keep(possible)
            ids = rows.ids
            seeds: Iterator[None] | None = None
            if seeded:
                key = stream_key(context.seed, context.epoch, self.label)
                seeds = seeding(seeded, Draw(key, ids).seeds().tolist())
                rows.columns = self._read_one_by_one(rows, index, names, None, seeds)
                return rows
            try:
                run = places if possible is None else None
                rows.columns = self._read(run, index, names)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  any error is the row's failure
                rows.columns = self._read_one_by_one(rows, index, names, error, None)
            return rows

        if not self.source.runs_user_code:
            return attempt(frozenset())
        return watched(self.source, worker, attempt)

    def fetch(self, rows: Rows, late: tuple[str, ...]) -> None:
        """Reads the remaining columns of the rows that the first filter kept."""
        assert rows.index is not None
        try:
            found = self._read_rows(rows.index, late) if len(rows) else {}
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  any error is the row's failure
            found = self._read_one_by_one(rows, rows.index, late, error, None)
        found = found or {name: Values([]) for name in late}
        own = {n: c for n, c in rows.columns.items() if n not in self.columns}
        first = {n: found[n] if n in late else rows.columns[n] for n in self.columns}
        rows.columns, rows.index = {**first, **own}, None

    def _possible(self, index: np.ndarray) -> np.ndarray | None:
        """Which rows can meet the conditions; None if all can."""
        if not self.conditions or not isinstance(self.source, HasRowStatistics):
            return None
        possible = self.source.may_hold_rows(index, self.conditions)
        return None if possible.all() else possible

    def _read(
        self, places: Places | None, index: np.ndarray, names: tuple[str, ...]
    ) -> dict[str, Column]:
        run = getattr(self.source, "read_run", None)  # quicker, where rows are in memory in order
        if run is not None and not self.maps and places is not None and places.picked is None:
            return dict(run(places.start, places.stop, names))
        return self._read_rows(index, names)

    def _read_rows(self, index: np.ndarray, names: tuple[str, ...]) -> dict[str, Column]:
        """The rows of the source. A row that is drawn more than once shares no container with
        itself, since the consumer may write into each."""
        found = dict(self.source.read(index, names))
        if not self.identity_by_place:
            return found
        return {name: without_shared_containers(column) for name, column in found.items()}

    def _read_one_by_one(
        self,
        rows: Rows,
        index: np.ndarray,
        names: tuple[str, ...],
        whole_error: BaseException | None,
        seeds: Iterator[None] | None,
    ) -> dict[str, Column]:
        failed = len(rows.failures)

        def read_one(i: int) -> dict[str, Column]:
            if seeds is not None:
                next(seeds)
            return self.source.read(index[i : i + 1], names)

        parts, good = rows.each(self.label, read_one, names)
        if len(rows.failures) == failed and whole_error is not None:
            raise whole_error
        rows.keep(good)
        return concat_each(parts, names)


@dataclass(frozen=True, eq=False)
class UnitRows:
    """The input of a stage that reads a chunked source: rows of one or several units."""

    runs: tuple[tuple[int, int, int], ...]
    """Consecutive runs of (unit, first row, end)."""
    most: int
    """The rows of a block that the stage should get."""
    picked: np.ndarray | None = None
    """The numbers of the rows to read among these, ascending; None for all."""

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
        return f"row {start} of unit {first} to row {stop - 1} of unit {last}"


@dataclass(frozen=True, eq=False)
class ReadUnits:
    """Reads units of a chunked source, or runs of rows of them.

    A unit that cannot be read is an error, whatever is done about rows that fail: nothing is known
    of its rows.
    """

    source: Chunked
    columns: tuple[str, ...]
    tag: int

    @property
    def label(self) -> str:
        return f"read {', '.join(self.columns)}" if self.columns else "read"

    def ids(self, unit: int, start: int, stop: int) -> np.ndarray:
        """The identities of a run of rows."""
        first = (self.tag << TAG_SHIFT) | (unit << UNIT_SHIFT)
        return np.arange(start, stop, dtype=np.uint64) + np.uint64(first)

    def identities(self, rows: UnitRows, context: Context) -> tuple[np.ndarray, np.ndarray]:
        """For each row, the source row that it is computed from, and its identity."""
        runs = [self.ids(*run) for run in rows.runs]
        ids = runs[0] if len(runs) == 1 else np.concatenate(runs)
        ids = ids if rows.picked is None else ids[rows.picked]
        return ids & np.uint64(IN_SOURCE), ids

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
