"""Reading rows of an indexed source, at places in an order, in a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silva.columns import Column, Values, concat
from silva.io.conditions import Condition
from silva.order.draws import Draw, stream_key
from silva.order.positions import Map, order_rows
from silva.physical.stage.call import Worker, watched
from silva.physical.stage.context import TAG_SHIFT, Context
from silva.physical.stage.global_generators import seeding
from silva.physical.stage.rows import Rows


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

    source: Any
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

    def index(self, places: Places, context: Context) -> np.ndarray:
        """The source's rows at these places."""
        length = self.source.length()
        return order_rows(self.maps, places.positions(), length, context.seed, context.epoch)

    def ids(self, places: Places, index: np.ndarray) -> np.ndarray:
        """The identities of the rows at these places."""
        identity = places.positions() if self.identity_by_place else index
        words = identity.view(np.uint64)  # rows are not negative: the same bits
        return words | np.uint64(self.tag << TAG_SHIFT) if self.tag else words

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
            found = dict(self.source.read(rows.index, late)) if len(rows) else {}
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
        if not self.conditions:
            return None
        possible: np.ndarray = self.source.may_hold_rows(index, self.conditions)
        return None if possible.all() else possible

    def _read(
        self, places: Places | None, index: np.ndarray, names: tuple[str, ...]
    ) -> dict[str, Column]:
        run = getattr(self.source, "read_run", None)  # quicker, where rows are in memory in order
        if run is not None and not self.maps and places is not None and places.picked is None:
            return dict(run(places.start, places.stop, names))
        return dict(self.source.read(index, names))

    def _read_one_by_one(
        self,
        rows: Rows,
        index: np.ndarray,
        names: tuple[str, ...],
        whole_error: BaseException | None,
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
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  any error is the row's failure
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
