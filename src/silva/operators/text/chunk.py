"""Long text cut into chunks, as retrieval (RAG) and long-context models need them.

Laws, exact: by characters and without overlap, the chunks of a text joined are the text; by words,
the words of all chunks, without those that overlap, are the words of the text.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np

from silva.columns import Column, Lists, Strings
from silva.errors import PlanError
from silva.operators.arguments import integer, one_of
from silva.operators.declare import column_operator
from silva.operators.items.items import valid_text
from silva.operators.items.ragged import offsets_of
from silva.operators.list import ListExpr
from silva.operators.native import pa
from silva.operators.text.read import read_text
from silva.plan.expr import Call, Expr

_WORD = re.compile(r"\S+")


class ChunkMethods(Expr):
    """Methods that cut text into chunks."""

    __slots__ = ()

    def chunk(
        self, size: int, overlap: int = 0, by: Literal["words", "characters"] = "words"
    ) -> ListExpr:
        """Cuts into a list of chunks of `size` words or characters; each begins with the last
        `overlap` of the one before.

        The last chunk may be shorter, and ends where the text ends. Words are what `split()` finds.
        A chunk of words is the text from its first word to its last, with the white space between
        them as it was. Text without words (without characters) has no chunks.

        >>> import silva as sv
        >>> sv.text("page").chunk(200, overlap=20)
        page.chunk(size=200, overlap=20, by='words')
        """
        size, overlap = integer("size", size, 1), integer("overlap", overlap, 0)
        if overlap >= size:
            raise PlanError(f"overlap must be less than size ({size}), not {overlap}")
        one_of("by", by, ("words", "characters"))
        params = (("size", size), ("overlap", overlap), ("by", by))
        return ListExpr(Call("text.chunk", (self.term,), params))


@column_operator("text.chunk", releases_gil=False)
def chunk(columns: list[Column], params: dict[str, Any], draw: object) -> Column:
    text = read_text(columns[0])
    size, overlap = params["size"], params["overlap"]
    cut = _cut_words if params["by"] == "words" else _cut_characters
    rows = [[] if row is None else cut(row, size, overlap) for row in text.to_pylist()]
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    chunks = pa.array([chunk for row in rows for chunk in row], text.type)
    return Lists(Strings(chunks), offsets_of(lengths), valid_text(text))


def _cut_characters(text: str, size: int, overlap: int) -> list[str]:
    return [text[first : first + size] for first in _firsts(len(text), size, overlap)]


def _cut_words(text: str, size: int, overlap: int) -> list[str]:
    words = [word.span() for word in _WORD.finditer(text)]
    firsts = _firsts(len(words), size, overlap)
    return [text[words[i][0] : words[min(i + size, len(words)) - 1][1]] for i in firsts]


def _firsts(count: int, size: int, overlap: int) -> range:
    """The first unit of each chunk: none begins within the overlap at the end, which the chunk
    before it holds already."""
    return range(0, max(count - overlap, min(count, 1)), size - overlap)
