"""The rows of a segment's input that a store lacks and the stage must compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.cache.row_store import RowStore
from silva.columns import Block
from silva.physical import plan as physical
from silva.physical.stage.context import IN_SOURCE, Context
from silva.physical.stage.read import Places, UnitRows
from silva.run.flows.inputs import Input
from silva.run.flows.trail import Offset, Trail

_RUN_BYTES = 4 << 20
_RUN_ROWS = 4096
"""A run of rows has at most so many rows, and so many bytes if it is all stored."""

Payload = Places | UnitRows | Block


@dataclass(frozen=True, eq=False, slots=True)
class Run:
    """Consecutive input rows, and which of them must be computed."""

    payload: Payload
    keys: np.ndarray
    ids: np.ndarray
    missing: np.ndarray
    trail: Any

    def todo(self) -> Payload:
        """The input for the stage."""
        if len(self.missing) == len(self.keys):
            return self.payload
        return self.payload.take(self.missing)


class MissingRows:
    """A segment's input as the executor sees it: only what is missing.

    A run that is kept as a whole ends the executor's input for the moment (`kept`): it has no work
    for a stage, and nothing that comes after it may be handed out before.
    """

    overtaking: None = None

    def __init__(
        self, source: Input, node: physical.Segment, context: Context, store: RowStore
    ) -> None:
        self._source, self._node, self._context, self._store = source, node, context, store
        self._ahead: Run | None = None
        self._following: Run | None = None
        """A run that was read ahead, so that the store can prefetch it."""
        self.kept: Run | None = None
        self.ended = False

    def next(self, rows: int) -> tuple[Payload, Run] | None:
        """The next run with at most `rows` missing rows."""
        ahead = self._ahead or self._following or self._read(rows)
        if ahead is self._following:
            self._following = None
        if ahead is None:
            self.ended = True
            return None
        stop = len(ahead.keys)
        if len(ahead.missing) > rows * self._source.slack:
            stop = int(ahead.missing[rows])
        run = _cut(ahead, 0, stop)
        self._ahead = _cut(ahead, stop, len(ahead.keys)) if stop < len(ahead.keys) else None
        if len(run.missing):
            return run.todo(), run
        self.kept = run
        if self._ahead is None and isinstance(run.payload, Places):
            self._expect(rows)
        return None

    def _expect(self, rows: int) -> None:
        """Reads one run ahead, so that the store can prefetch its rows. Only for places, which cost
        nothing and never fail: other inputs must not be read before they are needed."""
        self._following = following = self._read(rows)
        if following is not None:
            kept = np.ones(len(following.keys), dtype=bool)
            kept[following.missing] = False
            self._store.expect(following.keys[kept])

    def left(self) -> None:
        return None

    def _read(self, rows: int) -> Run | None:
        """Reads the next run: a longer one if many rows are stored, which need no computing."""
        kept = len(self._store)
        if kept:
            rows = max(rows, min(_RUN_ROWS, _RUN_BYTES * kept // max(self._store.nbytes, 1)))
        found = self._source.next(rows)
        if found is None:
            return None
        payload, trail = found
        keys, ids = identities(self._node, payload, self._context)
        return Run(payload, keys, ids, np.flatnonzero(~self._store.has(keys)), trail)


def _cut(run: Run, start: int, stop: int) -> Run:
    if stop - start == len(run.keys):
        return run
    missing = run.missing[(run.missing >= start) & (run.missing < stop)] - start
    trail: Trail = run.trail if start == 0 else Offset(run.trail, start)
    return Run(
        run.payload.slice(start, stop), run.keys[start:stop], run.ids[start:stop], missing, trail
    )


def identities(
    node: physical.Segment, payload: Payload, context: Context
) -> tuple[np.ndarray, np.ndarray]:
    """The store's key and the identity in the plan of each row.

    The key does not contain the number of the source in the plan: another plan with the same
    fingerprint below its cache may number its sources differently.
    """
    if isinstance(payload, Block):
        return payload.ids & np.uint64(IN_SOURCE), payload.ids
    read: Any = node.stage.read
    keys, ids = read.identities(payload, context)
    return keys, ids
