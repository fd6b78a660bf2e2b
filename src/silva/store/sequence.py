"""Lists as slices of one long sequence, in which rows share the items they have in common.

Rows that are equal share all of them. A history that slides shares all but a few with the row
before it:

    oldest first            newest first
    row 0   a b c           row 0       c b a
    row 1     b c d         row 1     d c b
    row 2       c d e       row 2   e d c
            a b c d e               e d c b a

On the left each row goes on where the row before it ended. On the right it is the same when the
rows are gone through from the last to the first. Whichever way is shorter is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silva.columns.runs import Runs, appearance, gathered, same

_MOST_NEW = 32
"""Items that leave a history from one row to the next."""


@dataclass(frozen=True, eq=False, slots=True)
class Sequence:
    items: np.ndarray
    """Which of the lists' items make up the sequence, in its order."""
    starts: np.ndarray
    """int64: where each row begins in it."""


def end_to_end(runs: Runs) -> Sequence:
    """All items of all rows: nothing is shared."""
    items, offsets = gathered(runs.starts, runs.lengths)
    return Sequence(items, offsets[:-1])


def shared(runs: Runs, numbers: np.ndarray) -> Sequence:
    """The shorter of both ways through the rows; `numbers` are equal where rows are."""
    first, number = appearance(numbers)
    rows = runs.take(first)
    forward, back = _chained(rows), _chained(rows.take(np.arange(len(rows))[::-1]))
    if len(back.items) < len(forward.items):
        return Sequence(back.items, back.starts[::-1][number])
    return Sequence(forward.items, forward.starts[number])


def _chained(rows: Runs) -> Sequence:
    """Each row goes on where the one before it ended, as far as they have items in common."""
    common = np.zeros(len(rows), dtype=np.int64)
    full = np.flatnonzero(rows.lengths)
    common[full[1:]] = _common(rows.take(full))
    fresh = rows.lengths - common
    items, _ = gathered(rows.starts + common, fresh)
    return Sequence(items, np.cumsum(fresh) - rows.lengths)


def _common(rows: Runs) -> np.ndarray:
    """How many items at the end of each row the next one begins with; all rows hold some."""
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
