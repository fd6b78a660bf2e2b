"""`python -m benchmarks.grouped`: grouped batches beside plain ones of the same table.

Tables whose rows come in runs of two and of eight, read in order and shuffled, in batches of 64 and
512: the CPU seconds of an epoch with `batch(n, grouped="hist")` and of one with `batch(n)` beside
it, the median of many such pairs. Grouped batches should cost no more: they copy fewer rows, and
the groups of arrays are not found before somebody reads them. What reading them costs is shown too.
Exits with 1 if grouped batches cost more than 1.05 times as much, with 95 % certainty: an epoch
takes milliseconds, and a busy machine makes one in a few take longer.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import silva as sv
from benchmarks.measure import Ratio, ratio

_ROWS = 40_000
_ROUNDS = 40
_MOST = 1.05
"""CPU seconds of grouped batches per second of plain ones; beyond 1 is noise."""
_REPEATS = (2, 8)
_BATCHES = (64, 512)


def _lists(rng: np.random.Generator, rows: int, longest: int) -> list[np.ndarray]:
    return [rng.integers(0, 100_000, n) for n in rng.integers(1, longest, rows)]


def _windows(rng: np.random.Generator, rows: int) -> list[np.ndarray]:
    items = rng.integers(0, 100_000, rows + 50)
    return [items[i : i + 50] for i in range(rows)]


KINDS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "lists of 40": lambda rng, rows: _lists(rng, rows, 80),
    "lists of 4": lambda rng, rows: _lists(rng, rows, 8),
    "windows of 50": _windows,
    "64 floats": lambda rng, rows: list(rng.random((rows, 64), np.float32)),
    "plain integers": lambda rng, rows: rng.integers(0, 1 << 40, rows).tolist(),
    "plain floats": lambda rng, rows: rng.random(rows).tolist(),
    "text": lambda rng, rows: [f"user {i:08d} of somewhere" for i in range(rows)],
}
"""Distinct rows of each kind."""


def _epoch(loader: sv.Loader, read: bool = False) -> float:
    """CPU seconds of an epoch; with `read`, those of reading the groups included."""
    began = time.process_time()
    for batch in loader:
        if read:
            _ = batch["hist"].values, batch["hist"].inverse
    return time.process_time() - began


def ratios(path: str) -> Iterator[tuple[str, Ratio, Ratio]]:
    """CPU seconds of grouped batches per second of plain ones, as they are handed out and with
    their groups read."""
    for shuffled in (False, True):
        rows = sv.read_table(path)
        rows = rows.shuffle(seed=1) if shuffled else rows
        for size in _BATCHES:
            given: dict[str, Any] = {"workers": 0, "backend": "inline", "cache": "off"}
            with (
                rows.batch(size).loader(**given) as plain,
                rows.batch(size, grouped="hist").loader(**given) as grouped,
            ):
                spent = [
                    (_epoch(plain), _epoch(grouped), _epoch(grouped, read=True))
                    for _ in range(_ROUNDS)
                ]
            theirs, ours, with_groups = map(list, zip(*spent[1:], strict=True))
            how = f"{'shuffled' if shuffled else 'in order'}, batches of {size}"
            yield how, ratio(ours, theirs), ratio(with_groups, theirs)


def main(kinds: list[str]) -> int:
    rng = np.random.default_rng(0)
    worst = 0.0
    for kind in kinds:
        for repeats in _REPEATS:
            distinct = KINDS[kind](rng, _ROWS // repeats)
            hist = [distinct[i // repeats] for i in range(_ROWS)]
            with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
                path = f"{folder}/table"
                sv.from_columns({"hist": hist, "x": range(_ROWS)}).to_table(path)
                for how, found, read in ratios(path):
                    worst = max(worst, found.low)
                    print(f"{kind}, {repeats} of each, {how}: {found}; read: {read}", flush=True)
    print(
        f"with 95 % certainty, the worst costs {worst:.2f} times the CPU seconds of plain batches"
    )
    return int(worst > _MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(KINDS)))
