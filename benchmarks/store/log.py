"""The log of a recommender, generated: sessions of rows, each with the user's history so far.

A history is unchanged from one row of a session to the next with a given probability, or slides by
one item at every row. Items follow Zipf's law (exponent 1) over a million ids.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

_IDS = 1_000_000
_CANDIDATES = 4
"""Items that each row shows."""


@dataclass(frozen=True)
class Log:
    """What kind of log."""

    rows: int = 100_000
    session: int = 16
    """Rows of a session."""
    length: int = 50
    """Items of a history."""
    unchanged: float = 0.9
    """Probability that a history is that of the row before it in the session."""
    slides: bool = False
    """Each row's history is the one before it, moved on by one item; `unchanged` is not used."""

    @property
    def factor(self) -> float:
        """Rows for each distinct history, as predicted: S / (1 + (S - 1)(1 - d)).

        >>> round(Log(session=16, unchanged=0.9).factor, 3)
        6.4
        """
        return self.session / (1 + (self.session - 1) * (1 - self.unchanged))


@functools.cache
def _zipf() -> np.ndarray:
    weights = np.cumsum(1 / np.arange(1, _IDS + 1))
    return weights / weights[-1]


def zipf(rng: np.random.Generator, count: int) -> np.ndarray:
    """So many ids."""
    return np.searchsorted(_zipf(), rng.random(count)).astype(np.int64)


def table(log: Log, seed: int = 0) -> Any:
    """The log as an Arrow table, clustered by session and time: session, ts, dwell, hist, items."""
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    sessions = -(-log.rows // log.session)
    number = np.arange(log.rows) // log.session
    starts = np.sort(rng.integers(0, 86_400_000, sessions))
    within = np.cumsum(rng.integers(500, 60_000, (sessions, log.session)), axis=1).ravel()
    return pa.table(
        {
            "session": pa.array(np.sort(rng.integers(0, 1 << 62, sessions))[number]),
            "ts": pa.array(starts[number] + within[: log.rows]),
            "dwell": pa.array(rng.exponential(20, log.rows).astype(np.int32)),
            "hist": lists(_histories(log, rng, sessions)),
            "items": lists(zipf(rng, log.rows * _CANDIDATES).reshape(-1, _CANDIDATES)),
        }
    )


def _histories(log: Log, rng: np.random.Generator, sessions: int) -> np.ndarray:
    if log.slides:
        width = log.length + log.session - 1
        longer = zipf(rng, sessions * width).reshape(sessions, width)
        windows = np.lib.stride_tricks.sliding_window_view(longer, log.length, axis=1)
        return np.ascontiguousarray(windows.reshape(-1, log.length)[: log.rows])
    changes = rng.random(log.rows) >= log.unchanged
    changes[:: log.session] = True
    index = np.cumsum(changes) - 1
    return zipf(rng, (int(index[-1]) + 1) * log.length).reshape(-1, log.length)[index]


def lists(values: np.ndarray) -> Any:
    """The rows of a matrix as an Arrow array of lists."""
    import pyarrow as pa

    offsets = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()))
