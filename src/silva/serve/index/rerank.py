"""`rerank`: the hits of a search in a better order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from silva.errors import PlanError
from silva.operators.arguments import column_name
from silva.plan.arguments import natural
from silva.plan.expr import Call, Col, Expr
from silva.plan.open import chooses
from silva.serve.models.model import Model, ModelRef


@chooses
def rerank(
    question: str,
    hits: str,
    *,
    by: Model | Callable[[str, str], float] | None,
    keep: int | None = None,
) -> Expr:
    """The hits of each row, scored again: the best first, of equal ones the lower id.

    `question` and `hits` are columns. `by` is a function of the question and a passage's text that
    returns a number, or a model with `score`: a language model ranks by how likely the question is
    after the passage, a cross-encoder by what it says of the pair; None leaves the order as it is.
    `keep` cuts the list.

    >>> import silva as sv
    >>> def shared_letters(question: str, text: str) -> float:
    ...     return len(set(question) & set(text))
    >>> hits = [{"id": 1, "score": 2.0, "text": "xyz"}, {"id": 2, "score": 1.0, "text": "abc"}]
    >>> rows = sv.from_items([{"question": "cab", "hits": hits}])
    >>> rows.derive(hits=sv.rerank("question", "hits", by=shared_letters, keep=1)).head()[0]["hits"]
    [{'id': 2, 'score': 3.0, 'text': 'abc'}]
    """
    if not (by is None or isinstance(by, Model) or callable(by)):
        raise PlanError(f"rerank(by=…) takes a model or a function(question, text), not {by!r}")
    params: tuple[tuple[str, Any], ...] = (
        ("by", ModelRef.of(by) if isinstance(by, Model) else by),
        ("keep", None if keep is None else natural("rerank(keep=…)", keep, least=1)),
    )
    return Expr(Call("index.rerank", (Col(column_name(question)), Col(column_name(hits))), params))
