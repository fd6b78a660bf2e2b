"""Approximate search by a graph of usearch (HNSW), with a measured floor for its recall.

The floor is checked when the graph is built: passages of the index itself are queries, each without
itself among its neighbours, and the exact search says which neighbours are true. Per k, recall is
the mean of shares in [0, 1], so the Chernoff bound on such means holds for it. The candidates that
the graph keeps while it searches are doubled until the bound reaches the floor. The confidence is
shared out among all that is tried. Candidates are scored exactly afterwards.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from silva.errors import SilvaError
from silva.insight.phases import Tell, tell_nobody
from silva.serve.index.vectors import cosines
from silva.serve.index.version import Recall

_QUERIES = 1000
"""Passages that are used as queries."""
_MOST = 10
"""The largest k that is measured, and searched approximately."""
_EXPANSIONS = (64, 128, 256, 512, 1024, 2048)
_ADDED = 1024
"""Vectors after which the progress is told."""
_DELTA = 0.05
"""One minus the confidence of the bound."""


class Graph:
    """An open graph. Usearch is not told which Python thread calls, so one searches at a time."""

    def __init__(self, graph: Any, recall: Recall) -> None:
        self._graph = graph
        self._graph.expansion_search = recall.expansion
        self._count = recall.most + 1
        self._lock = threading.Lock()

    @staticmethod
    def read(data: bytes, recall: Recall, shown: str) -> Graph:
        """From bytes whose digest was checked: native code reads them."""
        from usearch.index import Index

        found = Index.restore(data)
        if found is None:
            raise SilvaError(f"{shown} is damaged: its graph cannot be read. Build it again")
        return Graph(found, recall)

    def candidates(self, query: np.ndarray) -> np.ndarray:
        """The rows that may be nearest, ascending."""
        with self._lock:
            keys = self._graph.search(query, self._count, threads=1).keys
        return np.sort(np.asarray(keys, dtype=np.int64))


def build(vectors: np.ndarray, floor: float, tell: Tell = tell_nobody) -> tuple[bytes, Recall]:
    """The graph of unit vectors and its recall; SilvaError where it misses the floor."""
    from usearch.index import Index

    graph = Index(ndim=vectors.shape[1], metric="ip", dtype="f32", expansion_add=128)
    for start in range(0, len(vectors), _ADDED):
        some = np.arange(start, min(start + _ADDED, len(vectors)))
        graph.add(some, vectors[some], threads=1)  # one thread: the same graph each time
        tell("graph", int(some[-1]) + 1, len(vectors))
    recall = _measure(graph, vectors, floor, tell)
    data = graph.save()
    assert data is not None  # it was given no file
    return bytes(data), recall


def _measure(graph: Any, vectors: np.ndarray, floor: float, tell: Tell) -> Recall:
    count = min(len(vectors), _QUERIES)
    most = min(_MOST, len(vectors) - 1)
    if most < 1:
        raise SilvaError("recall= needs passages to measure it on: leave it out")
    queries = np.random.default_rng(0).choice(len(vectors), count, replace=False)
    scores = [_others(cosines(vectors, vectors[q]), q) for q in queries]
    least = [-np.sort(-np.partition(-s, most - 1)[:most]) for s in scores]  # of the k-th neighbour
    delta = _DELTA / (most * len(_EXPANSIONS))
    best = 0.0
    for expansion in _EXPANSIONS:
        graph.expansion_search = expansion
        shares = np.empty((count, most))
        for row, query in enumerate(queries):
            keys = np.asarray(graph.search(vectors[query], most + 1, threads=1).keys, np.int64)
            found = np.sort(scores[row][keys[keys != query]])[::-1]
            for k in range(1, most + 1):
                shares[row, k - 1] = (found[:k] >= least[row][k - 1]).sum() / k
            tell(f"recall with {expansion} candidates", row + 1, count)
        means = shares.mean(axis=0)
        bound = min(lower_bound(float(mean), count, delta) for mean in means)
        best = max(best, bound)
        if bound >= floor:
            return Recall(floor, bound, float(means.min()), count, most, expansion)
    raise SilvaError(
        f"the recall of an approximate search is at least {best:.3f} by {count} queries, below "
        f"recall={floor:g}: ask for less, leave recall= out, or index more passages"
    )


def _others(scores: np.ndarray, itself: int) -> np.ndarray:
    scores[itself] = -np.inf
    return scores


def lower_bound(mean: float, count: int, delta: float) -> float:
    """The least mean, with confidence 1 - delta, of values in [0, 1] of which `count` have this
    mean: the p below it with count · KL(mean, p) = ln(1 / delta) (Chernoff, Hoeffding).

    >>> round(lower_bound(1.0, 300, 0.05), 4), round(lower_bound(0.9, 300, 0.05), 4)
    (0.9901, 0.8524)
    """
    low, high = 0.0, mean
    for _ in range(60):
        middle = (low + high) / 2
        if count * _kl(mean, middle) > math.log(1 / delta):
            low = middle
        else:
            high = middle
    return low


def _kl(a: float, b: float) -> float:
    if b in (0.0, 1.0):
        return 0.0 if a == b else math.inf
    first = a * math.log(a / b) if a > 0 else 0.0
    second = (1 - a) * math.log((1 - a) / (1 - b)) if a < 1 else 0.0
    return first + second
