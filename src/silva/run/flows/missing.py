"""The rows of a segment's input that a store lacks: the only ones worth computing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Block
from silva.physical import plan as physical
from silva.physical.context import IN_SOURCE, Context
from silva.physical.places import Places
from silva.physical.units import UnitRows
from silva.run.flows.inputs import Input
from silva.run.flows.trail import Offset, Trail
from silva.run.rowstore import RowStore

_RUN_BYTES = 4 << 20
_RUN_ROWS = 4096
"""A run of rows is at most this long, and this large where it is all kept."""

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

    def __init__(
        self, source: Input, node: physical.Segment, context: Context, store: RowStore
    ) -> None:
        self._source, self._node, self._context, self._store = source, node, context, store
        self._ahead: Run | None = None
        self._following: Run | None = None
        """Read before its turn, for the store to know what comes."""
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
        """Reads one run ahead, so that what the store has of it is on its way. Only for places,
        which cost nothing and never fail: of other inputs, none may wait for what comes after."""
        self._following = following = self._read(rows)
        if following is not None:
            kept = np.ones(len(following.keys), dtype=bool)
            kept[following.missing] = False
            self._store.expect(following.keys[kept])

    def left(self) -> None:
        return None

    def _read(self, rows: int) -> Run | None:
        """Rows of the input: more of them where many are kept, since those cost no computing."""
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
    """Of each row, the key under which it is kept and its identity in the plan.

    Which number its source has in the plan is no part of the key: another plan with the same
    fingerprint below its cache may number its sources otherwise.
    """
    if isinstance(payload, Block):
        return payload.ids & np.uint64(IN_SOURCE), payload.ids
    read: Any = node.stage.read
    keys, ids = read.identities(payload, context)
    return keys, ids
