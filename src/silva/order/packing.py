"""Which sequences share a line: best fit, longest first, within one window of sequences."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

Span = tuple[int, int, int]
"""(sequence, start, stop): a run of one sequence's items."""


def split_long(lengths: np.ndarray, limit: int) -> list[Span]:
    """Every sequence as spans of at most `limit` items."""
    return [
        (i, at, min(at + limit, n))
        for i, n in enumerate(lengths.tolist())
        for at in range(0, n, limit)
    ]


def pack_spans(spans: list[Span], limit: int) -> list[list[Span]]:
    """Lines of spans that hold at most `limit` items each; each line keeps the spans' order.

    >>> pack_spans([(0, 0, 3), (1, 0, 4), (2, 0, 1)], 4)
    [[(0, 0, 3), (2, 0, 1)], [(1, 0, 4)]]
    """
    longest_first = sorted(spans, key=lambda p: (p[1] - p[2], p[0], p[1]))
    lines: list[list[Span]] = []
    room: list[tuple[int, int]] = []  # (items left, line), sorted
    for span in longest_first:
        size = span[2] - span[1]
        at = bisect_left(room, (size, -1))
        if at == len(room):
            line, left = len(lines), limit
            lines.append([])
        else:
            left, line = room.pop(at)
        lines[line].append(span)
        if left > size:
            insort(room, (left - size, line))
    for line_spans in lines:
        line_spans.sort()
    return sorted(lines)
