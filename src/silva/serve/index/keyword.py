"""BM25 over the words of the passages, by bm25s.

Words are lower-cased runs of letters, digits and underscores; nothing is stemmed or left out. The
variant is Lucene's with k1 = 1.2 and b = 0.75. What is stored are the matrix of scores, as plain
arrays, and the words as JSON.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from silva.errors import SilvaError, SourceError
from silva.insight.phases import Tell, tell_nobody
from silva.io.arrays.npy import decode_npy

_WORD = re.compile(r"\w+")
PARTS = ("data", "indices", "indptr")
KINDS = (*(f"keyword.{name}" for name in PARTS), "keyword.words")
"""The files of an index over words."""


def words(text: str) -> list[str]:
    """The words of a text, in order.

    >>> words("Who won the Cup-final?")
    ['who', 'won', 'the', 'cup', 'final']
    """
    return _WORD.findall(text.lower())


def build(texts: Sequence[str], tell: Tell = tell_nobody) -> dict[str, bytes]:
    """The files of an index over texts, by their kind."""
    bm25 = _bm25()
    numbers: dict[str, int] = {}
    passages = []
    for done, text in enumerate(texts, 1):
        passages.append([numbers.setdefault(word, len(numbers)) for word in words(text)])
        tell("words", done, len(texts))
    empty = len(numbers)
    numbers[""] = empty  # bm25s needs a word at least
    bm25.index((passages, numbers), show_progress=False)
    tell("BM25", len(texts), len(texts))
    made = {f"keyword.{name}": array_bytes(bm25.scores[name]) for name in PARTS}
    return {**made, "keyword.words": msgspec.json.encode(list(numbers))}


class Keywords:
    """An open index over the words of `rows` passages."""

    def __init__(self, files: dict[str, bytes], rows: int, shown: str) -> None:
        arrays = {name: read_array(files[f"keyword.{name}"], shown) for name in PARTS}
        try:
            known = msgspec.json.decode(files["keyword.words"], type=list[str])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise SilvaError(f"{shown} is damaged: {error}") from error
        _check(arrays, len(known), rows, shown)
        self._bm25 = _bm25()
        self._bm25.scores = {**arrays, "num_docs": rows}
        self._bm25.nonoccurrence_array = None  # Lucene's variant has none
        self._numbers = {word: number for number, word in enumerate(known)}

    def scores(self, text: str) -> np.ndarray:
        """The score of each passage. It depends on the text alone: words are added in order."""
        found = [self._numbers[word] for word in words(text) if word in self._numbers]
        return np.asarray(self._bm25.get_scores_from_ids(found), dtype=np.float64)


def _bm25() -> Any:
    from bm25s import BM25

    return BM25(k1=1.2, b=0.75, method="lucene", backend="numpy", csc_backend="numpy")


def _check(arrays: dict[str, np.ndarray], known: int, rows: int, shown: str) -> None:
    data, indices, indptr = (arrays[name] for name in PARTS)
    good = (
        data.ndim == indices.ndim == indptr.ndim == 1
        and data.dtype == np.float32
        and indices.dtype.kind == indptr.dtype.kind == "i"
        and len(data) == len(indices)
        and len(indptr) == known + 1
        and indptr[0] == 0
        and indptr[-1] == len(data)
        and bool((np.diff(indptr) >= 0).all())
        and (not len(indices) or (indices.min() >= 0 and indices.max() < rows))
    )
    if not good:
        raise SilvaError(f"{shown} is damaged: its words do not fit its rows. Build it again")


def array_bytes(array: np.ndarray) -> bytes:
    """An array as a file of numpy's."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def read_array(data: bytes, shown: str) -> np.ndarray:
    """The array in a file of numpy's, which holds plain numbers."""
    try:
        return decode_npy(data, shown)
    except SourceError as error:
        raise SilvaError(f"{shown} is damaged: {error}") from error
