"""The numbers of a state, compared with each other: rows read, rows given, batches and steps.

A cursor says how far each source has been read; the failures count rows that were read; the step
counts batches. Where these contradict each other, rows would come twice, or never. Filters and
failed rows leave rows out, explode and pack make any number of rows of one, and states that began
with silva 0.1 count the rows since then: so most comparisons are bounds, which every state that a
loader wrote satisfies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from silva.order import cursors as forms
from silva.order.cursor_checks import MOST, CheckScope, RowLedger, refuse
from silva.order.cursors import Cursor, Form
from silva.order.forms import batching
from silva.plan import node as logical


class RowCounts(NamedTuple):
    """What a cursor says about one shard of a node."""

    read: int
    """The most rows that were read from sources."""
    least: int
    """The fewest rows that the node has given, if no filter and no failure left any out."""
    most: int
    """The most rows that it has given."""


def check_numbers(
    plan: logical.Node,
    form: Form,
    cursors: Mapping[str, Cursor],
    counts: Mapping[str, Any],
    *,
    step: int,
    shards: int,
    seed: int,
    epoch: int,
) -> None:
    """Raises `StateError` where the step, the cursors and the failures contradict each other."""
    leaves_out = _leaves_out(plan)
    for shard, cursor in cursors.items():
        if _is_dealt(cursor):
            continue
        where = f"the cursor of shard {shard}"
        scope = CheckScope(RowLedger(), shards, int(shard), seed, epoch, where)
        failed, seen = counts.get(shard, (0, 0))
        counting = _Counting(scope, exact=not leaves_out and not failed)
        if isinstance(form, forms.BucketForm):
            rows, least, most = _bucket(form, cursor, step, counting)
        else:
            rows = counting.rows(form, cursor)
            goes_on = counting.exact and rows.most < _size(form, scope) < MOST
            least, most = _batch(plan, step, scope, goes_on)
        if seen > rows.read:
            refuse(scope, f"{seen} rows were read, but the cursor comes after {rows.read}")
        if rows.most < least:
            refuse(scope, f"at least {least} rows were given, but the cursor comes after fewer")
        if not leaves_out and rows.least - failed > most:
            refuse(scope, f"at most {most} rows were given, but the cursor comes after more")


def _is_dealt(cursor: Cursor) -> bool:
    """Whether places were dealt out again, or read out of order: then no number says how many of
    them this shard has read."""
    if isinstance(cursor, dict):
        return "ranges" in cursor or any(map(_is_dealt, cursor.values()))
    return isinstance(cursor, list | tuple) and any(map(_is_dealt, cursor))


def _leaves_out(plan: logical.Node) -> bool:
    """Whether rows may be left out on the way to a batch, or batches after it."""
    node = plan
    while not isinstance(node, logical.Batch | logical.Bucket) and len(node.inputs) == 1:
        if isinstance(node, logical.SkipRows) and batching(node) is not None:
            return True
        (node,) = node.inputs
    return any(isinstance(node, logical.Filter) for node in logical.walk(plan))


def _batch(plan: logical.Node, step: int, scope: CheckScope, goes_on: bool) -> tuple[int, int]:
    """The fewest and the most rows that a shard gave to so many batches. Several shards need not
    end together, and the last batch may be short, unless more rows are to come (`goes_on`)."""
    batch = batching(plan)
    if isinstance(batch, logical.Batch) and batch.size is None:
        return 0, MOST
    each = 1 if not isinstance(batch, logical.Batch) else (batch.size or 0) // scope.shards
    if goes_on:
        return step * each, step * each
    return ((step - 1) * each + 1 if step and scope.shards == 1 else 0), step * each


def _bucket(
    form: forms.BucketForm, cursor: Cursor, step: int, counting: _Counting
) -> tuple[RowCounts, int, int]:
    """The rows that went into buckets, and how many are in batches or wait."""
    scope, given = counting.scope, 0 if cursor is None else cursor["given"]
    if scope.shards == 1 and given != step:
        refuse(scope, f"{given} batches were given in {step} steps")
    if cursor is None:
        return RowCounts(0, 0, 0), 0, 0
    sizes = [max(size // scope.shards, 1) for size in form.sizes]
    waiting = sum(map(len, cursor["waiting"]))
    least = min(sizes) if cursor["phase"] == "filling" else 1
    rows = counting.rows(form.input, cursor["of"])
    return rows, given * least + waiting, given * max(sizes) + waiting


@dataclass(frozen=True)
class _Counting:
    """Counts the rows before a checked cursor."""

    scope: CheckScope
    exact: bool
    """Whether no filter and no failure has left rows out."""

    def rows(self, form: Form, cursor: Cursor) -> RowCounts:
        if cursor is None:
            return RowCounts(0, 0, 0)
        match form:
            case forms.PlacesForm():
                count = cursor["at"] - form.bounds(self.scope)[0]
                return RowCounts(count, count, count)
            case forms.UnitsForm():
                return self._units(form, cursor)
            case forms.PartsForm():
                return RowCounts(self.rows(form.input, cursor["in"]).read, 0, MOST)
            case forms.WindowsForm():
                return self._windows(form, cursor)
            case forms.ChunksForm():
                read, _, most = self.rows(form.input, cursor["in"])
                given = cursor["given"]
                whole = cursor["in"]["window"] * form.size if given else 0
                return RowCounts(read, whole + given, most + given)
            case forms.CountedForm():
                read, least, most = self.rows(form.input, cursor["of"])
                count = cursor[form.name]
                if form.name == "taken":
                    return RowCounts(read, count, count)
                return RowCounts(read, max(least - count, 0), max(most - count, 0))
            case forms.ConcatForm():
                read, least, most = self.rows(form.many[cursor["child"]], cursor["of"])
                before = sum(_size(child, self.scope) for child in form.many[: cursor["child"]])
                known = before if self.exact and before < MOST else 0
                return RowCounts(read + before, least + known, most + before)
            case forms.ZipForm():
                each = self._each(form.many, cursor)
                return RowCounts(
                    sum(rows.read for rows in each),
                    max(rows.least for rows in each),
                    min(rows.most for rows in each),
                )
            case forms.MixForm():
                return self._mix(form, cursor)
        return RowCounts(MOST, 0, MOST)

    def _each(self, many: tuple[Form, ...], cursor: Cursor) -> list[RowCounts]:
        return [self.rows(child, at) for child, at in zip(many, cursor["each"], strict=True)]

    def _mix(self, form: forms.MixForm, cursor: Cursor) -> RowCounts:
        passes = cursor.get("passes", [0] * len(form.many))
        read = 0
        numbers = zip(cursor["given"], passes, self._each(form.many, cursor), strict=True)
        for child, (given, done, rows) in enumerate(numbers):
            if given > rows.most and not done:
                where = self.scope.child(child)
                refuse(where, f"{given} rows were given, but its cursor comes after fewer")
            read += MOST if done else rows.read
        given = sum(cursor["given"])
        return RowCounts(read, given, given)

    def _windows(self, form: forms.WindowsForm, cursor: Cursor) -> RowCounts:
        read, before, most = self.rows(form.input, cursor["from"])
        given = cursor["given"]
        if form.made:
            return RowCounts(read, given, MOST)
        width = form.most + 1
        whole = cursor["window"] * width
        # Only the last window may be short, and after it nothing is given.
        short = max(whole - width + 1, 0)
        if short > most or (self.exact and before > whole):
            refuse(self.scope, f"window {cursor['window']} does not begin where the state says")
        return RowCounts(read, whole + given if given else short, whole + given)

    def _units(self, form: forms.UnitsForm, cursor: Cursor) -> RowCounts:
        rows = form.source.unit_rows()
        if rows is None:
            return RowCounts(MOST, 0, MOST)
        starts = np.append(0, np.cumsum(rows[form.order(self.scope.seed, self.scope.epoch)]))
        (unit, row), _, _ = form.bounds(self.scope)
        count = int(starts[cursor["unit"]]) + cursor["row"] - int(starts[unit]) - row
        return RowCounts(count, count, count)


def _size(form: Form, scope: CheckScope) -> int:
    """The most rows that a whole shard reads or gives; `MOST` or more where nobody knows."""
    match form:
        case forms.PlacesForm():
            start, stop = form.bounds(scope)
            return stop - start
        case forms.WindowsForm() if not form.made:
            return _size(form.input, scope)
        case forms.ChunksForm():
            return _size(form.input, scope)
        case forms.ConcatForm():
            return sum(_size(child, scope) for child in form.many)
    return MOST
