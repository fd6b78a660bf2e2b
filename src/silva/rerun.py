"""Runs one row alone: `pipeline.row(key)`, with the key that an error message shows.

A key is `source:row`, or `source:unit/row` for a chunked source, followed by `:place` for an item
of an exploded row. The row passes through the steps between its source and the first node that
regroups rows: `batch`, `bucket`, `pack`, or a `zip` with other rows. Of `mix` and `concat`, only
the branch of the row's source runs.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import Any

import numpy as np

from silva.columns import Block, Column
from silva.errors import PlanError, SilvaError
from silva.loader import Loader
from silva.options import LoaderOptions
from silva.physical import plan as physical
from silva.physical.stage.call import Worker
from silva.physical.stage.context import UNIT_SHIFT, Context
from silva.physical.stage.read import Places, ReadUnits
from silva.physical.stage.rows import Rows
from silva.plan.node import Node, option

Row = dict[str, Any]

_KEY = re.compile(r"(?P<source>\d+):((?P<unit>\d+)/)?(?P<row>\d+)(:(?P<place>\d+))?", re.ASCII)
_REGROUPS = (physical.Batch, physical.Bucket, physical.Pack, physical.Zip, physical.BatchSegment)


def rerun(plan: Node, key: str, *, epoch: int = 0) -> Row | list[Row]:
    """Returns the columns of one row; a list of them if it is exploded and the key names no item.

    Raises the user's own exception if a step fails on the row. Random steps draw as in `epoch`.

    >>> import silva as sv
    >>> rows = sv.from_columns({"x": range(9)}).derive(y=lambda x: 10 / (x - 5))
    >>> rerun(rows.plan, "0:3")
    {'x': 3, 'y': -5.0}
    >>> rerun(rows.plan, "0:5")
    Traceback (most recent call last):
    ...
    ZeroDivisionError: division by zero
    row 0:5, in `y = lambda(x)...`
    """
    tag, number, place = _parse(key)
    with Loader(plan, LoaderOptions(backend="inline")) as loader:
        path = _path(loader.facts().plan, tag)
    if path is None:
        raise PlanError(f"row {key!r}: this pipeline has no source number {tag}")
    context = Context(int(option(plan, "seed", 0)), epoch, "skip")
    rows = _read(path[0], number, context, key)
    _check(rows, key, place)
    for node in path[1:]:
        if isinstance(node, _REGROUPS):
            break
        if isinstance(node, physical.Segment):
            rows = _run(node, rows, key, place)
    return _found(rows, key, place)


def _parse(key: str) -> tuple[int, int, int | None]:
    found = _KEY.fullmatch(key) if isinstance(key, str) else None
    if found is None:
        raise PlanError(
            "a row's key is `source:row` or `source:unit/row`, with `:place` for an item of an "
            f"exploded row, e.g. '0:17', not {key!r}"
        )
    number = (int(found["unit"] or 0) << UNIT_SHIFT) | int(found["row"])
    return int(found["source"]), number, int(found["place"]) if found["place"] else None


def _path(node: physical.PhysicalNode, tag: int) -> list[Any] | None:
    """Returns the physical nodes from the feed of source `tag` up to `node`."""
    if isinstance(node, physical.IndexedFeed | physical.ChunkedFeed):
        return [node] if node.read.tag == tag else None
    for child in node.inputs:
        found = _path(child, tag)
        if found is not None:
            return [*found, node]
    return None


def _read(feed: Any, number: int, context: Context, key: str) -> Rows:
    if isinstance(feed, physical.IndexedFeed):
        read = feed.read
        size = feed.size if read.identity_by_place else read.source.length()
        if number >= size:
            raise PlanError(f"there is no row {key!r}: the source has {size} rows")
        # Rows drawn with replacement are identified by their place in the order, others by row.
        order = read.maps if read.identity_by_place else ()
        return replace(read, maps=order, conditions=()).rows(
            Places(number, number + 1), context, Worker(shares_generators=False)
        )
    unit, row = number >> UNIT_SHIFT, number & ((1 << UNIT_SHIFT) - 1)
    columns = _chunked_row(feed.read, unit, row, key)
    return Rows(context, columns, feed.read.ids(unit, row, row + 1), None, 1)


def _chunked_row(read: ReadUnits, unit: int, row: int, key: str) -> dict[str, Column]:
    if unit < read.source.units():
        for run in read.source.open(unit, row, read.columns):
            return {name: column.slice(0, 1) for name, column in run.items() if name}
    raise PlanError(f"there is no row {key!r}: unit {unit} does not exist or has fewer rows")


def _run(node: physical.Segment, rows: Rows, key: str, place: int | None) -> Rows:
    worker = Worker(shares_generators=False)
    rows = Rows(rows.context, rows.columns, rows.ids, rows.places, len(rows))
    for step in node.stage.steps:
        step.apply(rows, worker)
        _check(rows, key, place)
        if not len(rows):
            raise SilvaError(f"row {key} is not in the result: `{step.label}` drops it")
    return rows


def _check(rows: Rows, key: str, place: int | None) -> None:
    """Raises the user's exception if a step failed on the row, or on the item that `key` names."""
    for failure in rows.failures:
        whole = failure.key.count(":") == 1  # it failed before it was exploded
        if place is None or whole or failure.key == key:
            error = failure.cause or SilvaError(failure.error)
            with contextlib.suppress(Exception):  # a user's exception class may refuse notes
                error.add_note(f"row {failure.key}, in `{failure.step}`")
            raise error


def _found(rows: Rows, key: str, place: int | None) -> Row | list[Row]:
    block = rows.block()
    if place is not None:
        if block.places is None:
            raise PlanError(f"key {key!r} names an item, but no step explodes this row")
        picked = np.flatnonzero(block.places == np.uint64(place))
        if not len(picked):
            raise SilvaError(f"row {key} is not in the result: a filter or a failure drops it")
        return _dicts(block.take(picked[:1]))[0]
    found = _dicts(block)
    return found[0] if block.places is None else found


def _dicts(block: Block) -> list[Row]:
    names = list(block.columns)
    columns = [column.rows() for column in block.columns.values()]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
