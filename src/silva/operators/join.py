"""Looking rows up in another table: `match` and `latest` find row numbers, `take` reads columns.

A join is written as a derivation of these, so two joins with one table and one key look up once
(rule `share`). The tables are made when a plan is lowered; plans hold only what they are made of.
"""

from __future__ import annotations

from typing import Any

from silva.columns import Array, Column, Parts
from silva.operators._join.tables import take
from silva.order.draws import Draw
from silva.plan.operator import Operator, register_operator
from silva.plan.right_side import TABLE


def _find(columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    rows = params[TABLE].table.find(columns)
    found = rows >= 0
    return Array(rows, None if found.all() else found)


def _take(columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    (place,) = columns
    assert isinstance(place, Array)
    held, names = params[TABLE].table, (params["column"], *params["carries"])
    made = [take(held[name], place.data) for name in names]
    return made[0] if len(made) == 1 else Parts(tuple(made))


register_operator(Operator("join.match", _find, releases_gil=False))
register_operator(Operator("join.latest", _find, releases_gil=False))
register_operator(Operator("join.take", _take))
