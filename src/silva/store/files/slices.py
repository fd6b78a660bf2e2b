"""A list column as slices of one long sequence: cut when it is written, gathered when it is read.

Rows share common items. Equal rows share all of them. A sliding history shares all but a few with
the row before it:

    oldest first            newest first
    row 0   a b c           row 0       c b a
    row 1     b c d         row 1     d c b
    row 2       c d e       row 2   e d c
            a b c d e               e d c b a

On the left each row continues where the row before it ended. On the right the same holds from the
last row to the first. The shorter of both is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Column, Dictionary, Lists, from_arrow
from silva.columns.codes import list_runs
from silva.columns.number_runs import NumberRuns, appearance, gathered, same
from silva.columns.owned import without_shared_containers

_MOST_NEW = 32
"""The most items that may leave a history from one row to the next."""
_WORTHWHILE = 0.8
"""If more than this share of the rows is distinct, they are returned one by one."""


def is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


@dataclass(frozen=True, eq=False, slots=True)
class Sequence:
    items: np.ndarray
    """The indices of the lists' items that make up the sequence, in order."""
    starts: np.ndarray
    """int64: where each row begins in the sequence."""


def share_items(runs: NumberRuns, numbers: np.ndarray) -> Sequence:
    """The sequence with shared items; `numbers` are equal where rows are."""
    first, number = appearance(numbers)
    rows = runs.take(first)
    forward, back = _chained(rows), _chained(rows.take(np.arange(len(rows))[::-1]))
    if len(back.items) < len(forward.items):
        return Sequence(back.items, back.starts[::-1][number])
    return Sequence(forward.items, forward.starts[number])


def _chained(rows: NumberRuns) -> Sequence:
    """Lets each row continue where the one before it ended, as far as they share items."""
    common = np.zeros(len(rows), dtype=np.int64)
    full = np.flatnonzero(rows.lengths)
    common[full[1:]] = _common(rows.take(full))
    fresh = rows.lengths - common
    items, _ = gathered(rows.starts + common, fresh)
    return Sequence(items, np.cumsum(fresh) - rows.lengths)


def _common(rows: NumberRuns) -> np.ndarray:
    """How many items at the end of each row the next row begins with; no row is empty."""
    found = np.zeros(max(len(rows) - 1, 0), dtype=np.int64)
    before, after = rows.lengths[:-1], rows.lengths[1:]
    longest = int(before.max(initial=0))
    for gone in range(min(_MOST_NEW + 1, longest)):
        count = before - gone
        open_ = np.flatnonzero((found == 0) & (count > 0) & (count <= after))
        a, b = rows.starts[open_] + gone, rows.starts[open_ + 1]
        equal = same(rows.items, a, b, count[open_])
        found[open_[equal]] = count[open_[equal]]
    return found


def cut_slices(lists: Any, shares: bool) -> tuple[np.ndarray, np.ndarray, Any]:
    """The start and length of each row in a sequence, and the items of the sequence."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    items = lists.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    length = np.diff(offsets)
    nulls = None
    if lists.null_count:
        nulls = ~from_arrow(lists.is_valid()).batch()
        length[nulls] = 0
    if shares:
        column = from_arrow(lists)
        assert isinstance(column, Lists)
        runs = list_runs(column)
        sequence = share_items(runs, runs.numbers())
    else:
        order, starts = gathered(offsets[:-1] - offsets[0], length)
        sequence = Sequence(order, starts[:-1])
    if not np.array_equal(sequence.items, np.arange(len(items))):
        items = items.take(sequence.items)
    length = length.astype(np.int32)
    if nulls is not None:
        length[nulls] = -1
    return sequence.starts, length, items


Take = Callable[[np.ndarray | range], Column]
"""Reads items at ascending positions."""


def gather_slices(take: Take, starts: np.ndarray, lengths: np.ndarray) -> Column:
    """The rows' lists, as a `Dictionary` where slices repeat. Each item is read once, however many
    rows share it; neighbouring slices are read as a range."""
    if (one_by_one := _end_to_end(take, starts, lengths)) is not None:
        return one_by_one
    first, inverse = appearance(_pairs(starts, lengths))
    if len(first) > _WORTHWHILE * len(starts):
        return _gathered(take, starts, lengths)
    return Dictionary(_gathered(take, starts[first], lengths[first]), inverse)


def _end_to_end(take: Take, starts: np.ndarray, lengths: np.ndarray) -> Lists | None:
    """The lists, where each row continues where the one before it ended: a run of rows that share
    nothing. None otherwise."""
    ends = starts + lengths
    if not len(starts) or (starts[1:] != ends[:-1]).any() or (lengths < 0).any():
        return None
    offsets = np.append(starts, ends[-1]) - starts[0]
    return Lists(take(range(int(starts[0]), int(ends[-1]))), offsets)


def _gathered(take: Take, starts: np.ndarray, lengths: np.ndarray) -> Lists:
    present = lengths >= 0
    length = np.where(present, lengths, 0).astype(np.int64)
    offsets = np.zeros(len(length) + 1, dtype=np.int64)
    np.cumsum(length, out=offsets[1:])
    places, spans, counts = _union(starts, length)
    if len(spans) == 1:
        items = take(range(int(spans[0]), int(spans[0] + counts[0])))
    else:
        items = take(gathered(spans, counts)[0])
    if len(items) != offsets[-1] or (places != offsets[:-1])[length > 0].any():
        # an item that several rows have in common: the consumer may write into each row's
        items = without_shared_containers(items.take(gathered(places, length)[0]))
    return Lists(items, offsets, None if present.all() else present)


def _pairs(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """One number for each pair of start and length; all empty lists have one, and all nulls."""
    most = int(lengths.max(initial=0)) + 2
    pairs: np.ndarray = np.where(lengths > 0, starts, 0) * most + lengths + 1
    return pairs


def _union(starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each slice begins among the items that slices cover, and the runs of these items, as
    starts and counts."""
    places = np.zeros(len(starts), dtype=np.int64)
    full = np.flatnonzero(lengths)
    full = full[np.argsort(starts[full], kind="stable")]
    begins = starts[full]
    reach = np.maximum.accumulate(begins + lengths[full])
    opens = np.ones(len(full), dtype=bool)
    opens[1:] = begins[1:] > reach[:-1]
    heads = np.flatnonzero(opens)
    spans = begins[heads]
    counts = reach[np.append(heads[1:], len(full)) - 1] - spans if len(full) else spans
    before = np.cumsum(counts) - counts
    run = np.cumsum(opens) - 1
    places[full] = before[run] + begins - spans[run]
    return places, spans, counts
