"""The latest features of given keys, for serving: what `asof_join` would join now.

`asof_join` looks up each row of a pipeline in a `TimeTable`, and `Latest` looks up given keys in
the same table, so training and serving share one definition.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from silva.columns import Column
from silva.errors import PlanError
from silva.io.arrays.memory import as_column
from silva.joins.build import as_pairs, by_time, check_there, right_plan
from silva.loader import read_columns
from silva.operators.join.tables import TimeTable, take
from silva.physical.right_sides import RightSides
from silva.plan.fingerprint import fingerprint
from silva.plan.node import Node
from silva.plan.schema import columns


class Latest:
    """Looks up the latest row of each key, as of now or as of some time.

    The arguments are those of `asof_join`. The features are read once, at the first lookup: make a
    new `Latest` to see newer rows.

    >>> import silva as sv
    >>> counts = {"user": [1, 1, 2], "ts": [5, 20, 7], "seen": [1, 2, 9]}
    >>> latest = sv.Latest(counts, by="user", on="ts")
    >>> latest.get([2, 1, 3])["seen"].tolist()
    [9, 2, None]
    >>> latest.get([1], at=19)["seen"].tolist()
    [1]
    """

    def __init__(
        self,
        features: Any,
        *,
        by: str | Sequence[str],
        on: str,
        ttl: Any = None,
        lag: Any = None,
        available: str | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> None:
        plan = right_plan("Latest", features)
        pairs = as_pairs("Latest(by=…)", by)
        self._side = by_time(plan, pairs, on, ttl=ttl, lag=lag, available=available)
        self._names = _chosen(plan, columns, self._side.columns)
        self._read = RightSides(read_columns)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the features, equal in every process."""
        return fingerprint(self._side.plan)

    def get(self, keys: Any, at: Any = None) -> dict[str, Any]:
        """The columns of the latest row of each key, null where there is none.

        `keys` are values, or with several key columns a dict of columns. With `at`, a time or one
        for each key, a row counts as in `asof_join`, by its lag and ttl; without it, the latest row
        there is counts, however old.
        """
        asked = self._columns(keys)
        table = self._table
        if at is None:
            rows = table.last(asked)
        else:
            many = isinstance(at, list | tuple | range) or np.ndim(at)
            moments = at if many else [at] * len(asked[0])
            rows = table.find([*asked, as_column(self._side.time, moments, "get(at=…)")])
        return {name: take(self._held[name], rows).batch() for name in self._names}

    @functools.cached_property
    def _table(self) -> TimeTable:
        made: TimeTable = self._read.held(self._side).table
        return made

    @functools.cached_property
    def _held(self) -> dict[str, Column]:
        return self._read.columns(self._side.plan, self._names)

    def _columns(self, keys: Any) -> list[Column]:
        names = self._side.called
        if not isinstance(keys, Mapping):
            if len(names) > 1:
                raise PlanError(f"get takes a dict of the key columns {', '.join(names)}")
            keys = {names[0]: keys}
        if set(keys) != set(names):
            raise PlanError(
                f"get takes the key columns {', '.join(names)}, not {', '.join(map(str, keys))}"
            )
        found = [as_column(name, keys[name]) for name in names]
        if len({len(column) for column in found}) > 1:
            raise PlanError("get takes key columns of the same length")
        return found


def _chosen(
    plan: Node, wanted: str | Sequence[str] | None, found_by: tuple[str, ...]
) -> tuple[str, ...]:
    if wanted is None:
        return tuple(name for name in columns(plan) if name not in found_by)
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    check_there("Latest", "the table of features", plan, names)
    return names
