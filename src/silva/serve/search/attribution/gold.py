"""Gold values: what a step should have given, and whether it has.

The gold value of hits is an id or a list of ids: the passages are looked up in the index that was
searched. Of several gold answers, as metrics allow them, the first is put in the place of what a
step gives. Whether a step is right says the metric, if it reads the column; hits are right if they
hold all gold ids, and other values if they equal one of the gold ones, texts as `exact_match` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.plan.expr import Call, walk
from silva.serve.index.index import Index, IndexRef
from silva.serve.search.attribution.interventions import Pipeline, Row, Written
from silva.serve.search.metrics import Metric, normalised


class Gold:
    """The gold values of one column that a step writes."""

    def __init__(
        self, pipeline: Pipeline, step: Written, column: str, given: Any, metric: Metric
    ) -> None:
        self.column = column
        self._metric = metric
        found = (pipeline.base.row(step.number + 1, n) for n in range(len(pipeline.rows)))
        seen = [row[column] for row in found if row is not None]
        raw = [_given(given, row) for row in pipeline.rows]
        calls = walk(term) if isinstance(term := step.unit.step.runs, Call) else ()
        searches = any(isinstance(one, Call) and one.op.startswith("index.") for one in calls)
        self._is_hits = searches or any(map(_are_hits, [*seen, *raw]))
        self._several = [_several(value, seen) for value in raw]
        self.values: list[Any] = [several[0] if several else None for several in self._several]
        """What a perfect step gives for each row."""
        if self._is_hits:
            self.values = _hits(raw, _index_of(pipeline, step), column)

    def is_right(self, number: int, row: Row | None, known: Row) -> bool:
        """Whether a step has given a gold value. `row`: the row after it; `known`: what else is
        known of it."""
        if row is None or self.column not in row:
            return False
        value, gold = row[self.column], self.values[number]
        if value is None:
            return gold is None
        if self._is_hits:
            ids = {_id(hit) for hit in value}
            return all(_id(hit) in ids for hit in gold)
        every = {**known, **row}
        reads = self._metric.reads
        if self.column in reads and every.keys() >= set(reads):
            return self._metric(every) >= self._metric({**every, self.column: gold})
        return any(_equal(value, one) for one in self._several[number])


def _given(given: Any, row: Row) -> Any:
    if callable(given):
        return given(row)
    if given not in row:
        raise PlanError(f"gold= names the column {given!r}, which the rows do not have")
    return row[given]


def _several(value: Any, seen: Sequence[Any]) -> list[Any]:
    """The alternatives of a gold value: a list is one value where the step gives lists."""
    is_list = isinstance(value, list | tuple | set | frozenset)
    if is_list and not any(isinstance(one, list | tuple | np.ndarray) for one in seen):
        return list(value)
    return [value]


def _are_hits(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(
        isinstance(hit, Mapping) and {"id", "text"} <= hit.keys() for hit in value
    )


def _id(hit: Any) -> Any:
    return hit["id"] if isinstance(hit, Mapping) else hit


def _hits(raw: Sequence[Any], index: Index | None, column: str) -> list[list[Any]]:
    """Hits for each row: those that were given, or those with the ids that were."""
    wanted = [list(v) if isinstance(v, list | tuple | set | np.ndarray) else [v] for v in raw]
    ids = list(
        dict.fromkeys(one for some in wanted for one in some if not isinstance(one, Mapping))
    )
    if ids and index is None:
        raise PlanError(
            f"gold={{{column!r}: …}} names passages by their ids, but {column!r} is not searched "
            "in an index: give a function from a row to the hits"
        )
    found = {} if index is None else dict(zip(ids, index.lookup(ids), strict=True))
    return [[one if isinstance(one, Mapping) else found[one] for one in some] for some in wanted]


def _index_of(pipeline: Pipeline, step: Written) -> Index | None:
    """The index that a step searches, or else the last one before it."""
    for one in sorted(pipeline.steps, key=lambda one: -one.number):
        if one is not step and one.number not in step.ancestors:
            continue
        term = one.unit.step.runs
        parts = walk(term) if isinstance(term, Call) else ()
        for part in parts:
            ref = dict(part.params).get("index") if isinstance(part, Call) else None
            if isinstance(ref, IndexRef):
                return ref.index
    return None


def _equal(value: Any, gold: Any) -> bool:
    if isinstance(value, str) and isinstance(gold, str):
        return normalised(value) == normalised(gold)
    return bool(np.array_equal(value, gold))
