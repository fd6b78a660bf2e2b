"""The same global batches for every number of ranks, and states that go from one world to another.

Ranks see parts of a batch, whose types depend on their own rows: arrays of different shapes are an
error, and objects beside a number that another rank has. So batches are lists of rows here, and
rows are compared, by value.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from fuzz_case import Case
from fuzz_ways import Different, Way, options

import silva as sv

Rows = list[str]


@dataclass
class Read:
    """Global batches that ranks gave together, and their states after the last one."""

    batches: list[Rows]
    states: list[dict[str, Any]]


class Worlds:
    """The checks of one case, which has shards and ends with `batch`."""

    def __init__(self, case: Case, chance: Random) -> None:
        self.case, self.chance = case, chance
        self.shards = case.shards or 1
        self.runs = 0
        self.full = case.in_rows(full=True).build()
        """Ends at the first batch that some shard cannot fill: all ranks take equal steps."""
        self.whole = case.in_rows(full=False).build()

    def check(self) -> None:
        if "at_most" in self.case.policy or "rate" in self.case.policy:
            return  # ranks count on their own
        try:
            alone = self._read(1, None, None)
        except Exception:  # noqa: BLE001  a row fails: compared elsewhere
            return
        steps = len(alone.batches)
        if not steps:
            return
        for world in (w for w in (2, 4) if self.shards % w == 0):
            self._same(alone.batches, self._read(world, None, steps), f"{world} ranks")
        self._change_worlds(alone.batches)
        self._reshard()

    def _read(self, world: int, state: Any, steps: int | None, stop: int | None = None) -> Read:
        """Global batches up to step `stop`, of so many ranks, each a loader of its own."""
        parts: list[list[Rows]] = []
        states = []
        for rank in range(world):
            self.runs += 1
            way = Way(sizes=self.chance.choice(((), (1,), (3, 1, 7))))
            ranked = {"rank": rank, "world": world, "steps": steps}
            with way.loader(self.full, **options(self.case), **ranked) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                given: list[Rows] = []
                for batch in loader:
                    given.append(rows_of(batch))
                    if len(given) == stop:
                        break
                parts.append(given)
                states.append(json.loads(json.dumps(loader.state_dict())))
        together = [[row for part in step for row in part] for step in zip(*parts, strict=True)]
        return Read(together, states)

    def _same(self, expected: list[Rows], found: Read, how: str) -> None:
        if expected == found.batches:
            return
        for i, (a, b) in enumerate(zip(expected, found.batches, strict=False)):
            if a != b:
                raise Different(
                    "ranks", f"{how}: global batch {i}:\n  expected {a}\n  found    {b}"
                )
        said = f"{how}: {len(found.batches)} global batches, not {len(expected)}"
        raise Different("ranks", said)

    def _change_worlds(self, alone: list[Rows]) -> None:
        """Ranks stop after some step, and as many as divide the shards go on."""
        worlds = [w for w in (1, 2, 4) if self.shards % w == 0]
        before, after = self.chance.choice(worlds), self.chance.choice(worlds)
        stop = self.chance.randrange(len(alone))
        if not stop:
            return
        state = sv.merge_states(self._read(before, None, len(alone), stop).states)
        found = self._read(after, state, len(alone))
        self._same(alone[stop:], found, f"{before} ranks, after step {stop} {after} ranks")

    def _reshard(self) -> None:
        """What remains is dealt out to other shards: no row is lost or repeated. (Where a mix ends
        depends on the shards if it repeats, or ends with the first pipeline.)"""
        if "stop='repeat'" in self.case.text or "stop='first'" in self.case.text:
            return
        size = self.case.batch_size
        shards = self.chance.choice([s for s in (1, 2, 4) if s != self.shards and size % s == 0])
        self.runs += 2
        rows: Counter[str] = Counter()
        with Way().loader(self.whole, **options(self.case)) as loader:
            try:
                expected = Counter(row for batch in loader for row in rows_of(batch))
            except (sv.RowError, sv.SourceError):
                return  # of a row that is in no full batch: compared elsewhere
        with Way().loader(self.whole, **options(self.case)) as loader:
            stop = self.chance.randrange(1, 4)
            for i, batch in enumerate(loader, start=1):
                rows.update(rows_of(batch))
                if i == stop:
                    break
            state = loader.state_dict()
        if state["epoch"]:
            return
        try:
            dealt = json.loads(json.dumps(sv.reshard(state, shards, self.whole)))
        except sv.StateError:
            return  # refused, and says so
        with Way().loader(self.whole.options(shards=shards), **options(self.case)) as loader:
            loader.load_state_dict(dealt)
            for batch in loader:
                rows.update(rows_of(batch))
        if rows != expected:
            lost, more = expected - rows, rows - expected
            said = f"{self.shards} shards, after step {stop} {shards}: lost {lost}, repeated {more}"
            raise Different("reshard", said)


def rows_of(batch: dict[str, Any]) -> Rows:
    return [repr([_plain(value) for value in row.values()]) for row in batch["rows"]]


def _plain(value: Any) -> Any:
    """Of equal values one form, whatever types the columns gave them that they stood in."""
    if isinstance(value, np.ma.MaskedArray):
        value = value.tolist()
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return float(value) if isinstance(value, int | float) else value
