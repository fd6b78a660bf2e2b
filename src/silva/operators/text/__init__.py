"""Text operators: method, declaration and kernel of each stand in one file.

Text is read as Arrow strings and written as such (`read`); tokens are lists, of int32 ids or of
strings. Tokenizers (`tokenizer`) and vocabularies (`tokens`) that people pass in become data that
plans can compare and fingerprint.
"""

from __future__ import annotations

import silva.operators.text.laws  # noqa: F401  registers the laws
from silva.operators.arguments import column_name
from silva.operators.text.letters import LetterMethods
from silva.operators.text.tokenize import ChunkMethods, TokenizeMethods
from silva.operators.text.tokens import TokensExpr
from silva.plan.expr import Col
from silva.plan.open import chooses


class TextExpr(LetterMethods, ChunkMethods, TokenizeMethods):
    """A column of text. Nulls stay nulls. Letters, white space and characters are what Python's
    `str` says they are.

    >>> text("line").strip().lower()
    line.strip().lower()
    """

    __slots__ = ()


@chooses
def text(name: str) -> TextExpr:
    """A column of text, by name.

    >>> text("line").strip().length()
    line.strip().length()
    """
    return TextExpr(Col(column_name(name)))


__all__ = ["TextExpr", "TokensExpr", "text"]
