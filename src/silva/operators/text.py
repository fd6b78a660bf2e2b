"""The text operators: importing this module registers them.

Text is read as Arrow strings and written as such; tokens are lists, of int32 ids or of strings.
What the operators mean is said where they are written, in `text_expr`.
"""

from __future__ import annotations

import silva.operators.text_laws  # noqa: F401  registers them
from silva.operators._text import letters, tokens
from silva.operators._text.tokenize import tokenize
from silva.operators.text_expr import TextExpr, TokensExpr, text
from silva.plan.operator import Operator, register_operator

for _operator in (
    Operator("text.decode", letters.decode),
    Operator("text.lower", letters.lower),
    Operator("text.upper", letters.upper),
    Operator("text.strip", letters.strip),
    Operator("text.normalize", letters.normalize),
    Operator("text.replace", letters.replace),
    Operator("text.split", letters.split),
    Operator("text.length", letters.length),
    Operator("text.tokenize", tokenize),
    Operator("text.python.tokenize", tokenize, releases_gil=False),
    Operator("text.add_tokens", tokens.add_tokens),
    Operator("text.to_ids", tokens.to_ids),
):
    register_operator(_operator)

__all__ = ["TextExpr", "TokensExpr", "text"]
