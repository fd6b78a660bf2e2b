"""Lists as slices of one long sequence, in which rows share common items.

Equal rows share all items. A sliding history shares all but a few with the row before it:

    oldest first            newest first
    row 0   a b c           row 0       c b a
    row 1     b c d         row 1     d c b
    row 2       c d e       row 2   e d c
            a b c d e               e d c b a

On the left each row continues where the row before it ended. On the right the same holds from the
last row to the first. The shorter of both is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silva.columns.number_runs import NumberRuns, appearance, gathered, same

_MOST_NEW = 32
"""The most items that may leave a history from one row to the next."""


@dataclass(frozen=True, eq=False, slots=True)
class Sequence:
    items: np.ndarray
    """The indices of the lists' items that make up the sequence, in order."""
    starts: np.ndarray
    """int64: where each row begins in the sequence."""


def end_to_end(runs: NumberRuns) -> Sequence:
    """All items of all rows: nothing is shared."""
    items, offsets = gathered(runs.starts, runs.lengths)
    return Sequence(items, offsets[:-1])


def shared(runs: NumberRuns, numbers: np.ndarray) -> Sequence:
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
