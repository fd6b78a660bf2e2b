"""Operators that look rows up in another table: `match` and `latest` find row numbers, `take` reads
columns.

A join is a derivation of these, so two joins with the same table and key look each key up once
(rule `share`). A plan holds the right side of a join as a plan; its lookup table is built when the
plan is lowered, and is plain data that is sent to workers. `keys` turns the values of key columns
into integer codes, `times` turns times into integers of one unit, and `tables` finds rows by binary
search.
"""

from __future__ import annotations

from typing import Any

from silva.columns import Array, Column, Parts
from silva.columns.owned import without_shared_containers
from silva.operators.declare import column_operator
from silva.operators.join.tables import take
from silva.order.draws import Draw
from silva.plan.right_side import TABLE


@column_operator("join.match", releases_gil=False)
@column_operator("join.latest", releases_gil=False)
def _find(columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    rows = params[TABLE].table.find(columns)
    found = rows >= 0
    return Array(rows, None if found.all() else found)


@column_operator("join.take")
def _take(columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    (place,) = columns
    assert isinstance(place, Array)
    held, names = params[TABLE].table, (params["column"], *params["carries"])
    made = [without_shared_containers(take(held[name], place.data)) for name in names]
    return made[0] if len(made) == 1 else Parts(tuple(made))
