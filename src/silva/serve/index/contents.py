"""An open version of an index: its parts in memory, and the search over them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from silva.columns import Array, table_columns
from silva.errors import SilvaError
from silva.physical.stage.evaluate import evaluate
from silva.plan.expr import Term, columns_read, show_term
from silva.plan.fingerprint import digest
from silva.serve.index import graph, keyword, vectors
from silva.serve.index.version import IndexFolder, Version

Hits = list[dict[str, Any]]
T = TypeVar("T")
_DIGITS = 5
"""Scores are rounded to so many decimals: machines differ in the seventh."""
_MASKS = 32
"""Filters whose rows are remembered."""


class Contents:
    """The parts of one version, each read when it is first needed. Threads may share it."""

    def __init__(self, folder: IndexFolder, version: Version) -> None:
        self._folder, self._version = folder, version
        self._lock = threading.RLock()
        self._read: dict[str, Any] = {}
        self._masks: OrderedDict[str, np.ndarray] = OrderedDict()
        self._shown = f"the index {str(folder)!r}"

    # Parts.

    def _once(self, kind: str, read: Callable[[], T]) -> T:
        with self._lock:
            if kind not in self._read:
                self._read[kind] = read()
            return cast(T, self._read[kind])

    @property
    def rows(self) -> Any:
        """The rows in the order of their ids, as an Arrow table."""
        return self._once("rows", self._rows)

    def _rows(self) -> Any:
        import pyarrow as pa

        data = self._folder.read(self._version, "rows")
        try:
            table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise SilvaError(f"{self._shown} is damaged: {error}") from error
        needed = {self._version.roles.id, self._version.roles.text} - {None}
        if table.num_rows != self._version.rows or needed - set(table.schema.names):
            raise SilvaError(f"{self._shown} is damaged: its rows are not those of its version")
        return table.combine_chunks()

    @property
    def keywords(self) -> keyword.Keywords:
        def read() -> keyword.Keywords:
            files = {kind: self._folder.read(self._version, kind) for kind in keyword.KINDS}
            return keyword.Keywords(files, self.rows.num_rows, self._shown)

        return self._once("keywords", read)

    @property
    def vectors(self) -> np.ndarray:
        def read() -> np.ndarray:
            data = self._folder.read(self._version, "vectors")
            return vectors.read_vectors(data, self._version.rows, self._version.dims, self._shown)

        return self._once("vectors", read)

    @property
    def graph(self) -> graph.Graph:
        def read() -> graph.Graph:
            assert self._version.recall is not None
            data = self._folder.read(self._version, "graph")
            return graph.Graph.read(data, self._version.recall, self._shown)

        return self._once("graph", read)

    def load(self, by: str) -> None:
        """Reads all parts that a search needs, so that it no longer depends on the files."""
        if not self._version.rows:
            return
        self.rows  # noqa: B018  each part is read when it is first looked at
        if by != "vector":
            self.keywords  # noqa: B018
        if by != "keyword":
            self.vectors  # noqa: B018
            if self._version.recall is not None:
                self.graph  # noqa: B018

    # Search.

    def search(self, by: str, text: str | None, query: Any, k: int, where: Term | None) -> Hits:
        """The k best passages: the highest score first, of equal ones the lower id."""
        if not self._version.rows:
            return []
        allowed = None if where is None else np.flatnonzero(self._mask(where))
        recall = self._version.recall
        if by == "keyword":
            scores = self.keywords.scores(cast(str, text))
            found = np.flatnonzero(scores > 0)  # a passage without any of the words is no hit
            allowed = found if allowed is None else np.intersect1d(allowed, found)
        else:
            vector = vectors.query_vector(query, self._version.dims)
            graphed = recall is not None and allowed is None and k <= recall.most
            if by == "vector" and graphed and vector.any():  # to zeros, all passages are alike
                near = self.graph.candidates(vector)
                return self._best(vectors.cosines(self.vectors[near], vector), near, k)
            scores = vectors.cosines(self.vectors, vector)
            if by == "hybrid":
                scores = standard(scores) + standard(self.keywords.scores(cast(str, text)))
        if allowed is None:
            return self._best(scores, None, k)
        return self._best(scores[allowed], allowed, k)

    def lookup(self, ids: Sequence[Any]) -> Hits:
        """The passages with these ids, in this order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        there = self.rows.column(self._version.roles.id)
        try:
            rows = pc.index_in(pa.array(list(ids), there.type), value_set=there.combine_chunks())
        except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError):
            raise SilvaError(f"the ids of {self._shown} are {there.type}") from None
        for each, row in zip(ids, rows.to_pylist(), strict=True):
            if row is None:
                raise SilvaError(f"{self._shown} has no passage {each!r}")
        return self._hits(rows.to_numpy(zero_copy_only=False), np.ones(len(rows)))

    def _best(self, scores: np.ndarray, rows: np.ndarray | None, k: int) -> Hits:
        rounded = np.round(scores, _DIGITS) + 0.0
        places = top(rounded, k)
        picked = places if rows is None else rows[places]
        return self._hits(picked, rounded[places])

    def _hits(self, picked: np.ndarray, scores: np.ndarray) -> Hits:
        roles = self._version.roles
        ids = self.rows.column(roles.id).take(picked).to_pylist()
        texts = [""] * len(ids)
        if roles.text is not None:
            texts = self.rows.column(roles.text).take(picked).to_pylist()
        return [
            {"id": each, "score": score, "text": text}
            for each, score, text in zip(ids, scores.tolist(), texts, strict=True)
        ]

    def _mask(self, where: Term) -> np.ndarray:
        """The rows that satisfy a condition; null counts as no."""
        key = digest(where)
        with self._lock:
            if key not in self._masks:
                self._masks[key] = self._evaluate(where)
                if len(self._masks) > _MASKS:
                    self._masks.popitem(last=False)
            return self._masks[key]

    def _evaluate(self, where: Term) -> np.ndarray:
        names = list(columns_read(where))
        if missing := set(names) - set(self.rows.schema.names):
            raise SilvaError(f"{self._shown} has no column {min(missing)!r} to filter by")
        columns = table_columns(self.rows.select(names))
        ids = np.arange(self._version.rows, dtype=np.uint64)
        found = evaluate(where, columns, ids, None, (0,)).settled()
        if not isinstance(found, Array) or found.data.dtype != bool or found.data.ndim != 1:
            raise SilvaError(f"search(where=…): {show_term(where)} is not a condition")
        return found.data if found.valid is None else found.data & found.valid


def standard(scores: np.ndarray) -> np.ndarray:
    """Scores less their mean over all passages, by their standard deviation; zeros where all are
    equal."""
    away = scores - scores.mean()
    spread = float(np.sqrt((away * away).mean()))
    return away / spread if spread > 0 else np.zeros_like(scores)


def top(scores: np.ndarray, k: int) -> np.ndarray:
    """The places of the k highest scores, of equal ones the first."""
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        places = np.flatnonzero(scores >= least)
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")][:k]
