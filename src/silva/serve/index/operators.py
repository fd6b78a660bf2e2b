"""The operators of indices: `index.search` and `index.rerank`.

A row that cannot be searched for is named in a `RowErrors`, so no other row is searched again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from silva.columns import Column, Values
from silva.errors import ColumnError, SilvaError, StepError
from silva.operators.declare import column_operator
from silva.order.draws import Draw
from silva.plan.operator import RowErrors
from silva.serve.index.contents import Hits
from silva.serve.models.model import ModelRef
from silva.serve.models.operators import score_pairs

Params = dict[str, Any]
Found = Hits | Exception
_PROMPT = "Passage: {text}\nPlease write a question based on this passage.\nQuestion: "


@column_operator("index.search", by_row=True)
def search(columns: list[Column], params: Params, draw: Draw) -> Column:
    contents, by, k = params["index"].index.contents(), params["by"], params["k"]
    where = params["where"].term if "where" in params else None
    rows = [column.rows() for column in columns]
    texts = rows[0] if by != "vector" else [""] * len(draw.ids)
    queries = rows[-1] if by != "keyword" else [None] * len(draw.ids)
    found: dict[Any, Found] = {}
    keys = [_key(text, query) for text, query in zip(texts, queries, strict=True)]
    for key, text, query in zip(keys, texts, queries, strict=True):
        if key not in found:
            try:
                found[key] = contents.search(by, _text(text), query, k, where)
            except ColumnError as error:
                found[key] = error
            except SilvaError as error:  # no row is at fault, but the index
                raise StepError(f"{params['index']!r} cannot be searched: {error}") from error
    return _column([_own(found[key]) for key in keys])


def _key(text: Any, query: Any) -> tuple[Any, ...]:
    """What a search depends on, so that equal rows of a block are searched for once. What is
    neither text nor an array of numbers is equal to itself alone."""
    said = text if isinstance(text, str) else id(text)
    if isinstance(query, np.ndarray) and query.dtype.kind in "fiu":
        return said, query.dtype.str, query.shape, query.tobytes()
    return said, None if query is None else id(query)


def _own(found: Found) -> Found:
    """Hits of a row's own: a step may change them."""
    return found if isinstance(found, Exception) else [dict(hit) for hit in found]


def _best_rows(params: Mapping[str, Any]) -> int:
    by = params["by"]
    return by.model.rows_at_once("score") if isinstance(by, ModelRef) else 1


@column_operator("index.rerank", by_row=True, best_rows=_best_rows)
def rerank(columns: list[Column], params: Params, draw: Draw) -> Column:
    by, keep = params["by"], params["keep"]
    questions = columns[0].rows()
    lists: list[Found] = []
    for question, hits in zip(questions, columns[1].rows(), strict=True):
        try:
            _text(question)
            lists.append(_hits(hits))
        except ColumnError as error:
            lists.append(error)
    if by is None:
        return _column([one if isinstance(one, Exception) else one[:keep] for one in lists])
    pairs = [
        (question, hit["text"])
        for question, hits in zip(questions, lists, strict=True)
        if not isinstance(hits, Exception)
        for hit in hits
    ]
    ids = [
        identity
        for identity, hits in zip(draw.ids.tolist(), lists, strict=True)
        if not isinstance(hits, Exception)
        for _ in hits
    ]
    scores = iter(
        _by_model(by, pairs, ids) if isinstance(by, ModelRef) else _by_function(by, pairs)
    )
    return _column(
        [one if isinstance(one, Exception) else _sorted(one, scores, keep) for one in lists]
    )


def _by_model(
    ref: ModelRef, pairs: list[tuple[str, str]], ids: list[int]
) -> list[float | Exception]:
    """What a cross-encoder says of the pair; else how likely the question is after the passage, per
    token (Sachan et al., 2022)."""
    model = ref.model
    asked = [(model.normal(question), model.normal(text)) for question, text in pairs]
    if not model.reads_pairs:
        asked = [(_PROMPT.format(text=text), question) for question, text in asked]
    return score_pairs(model, asked, ids)


def _by_function(
    function: Callable[[str, str], Any], pairs: list[tuple[str, str]]
) -> list[float | Exception]:
    found: list[float | Exception] = []
    for pair in pairs:
        try:
            found.append(float(function(*pair)))
        except Exception as error:  # noqa: BLE001  the user's function: it is that row's error
            found.append(error)
    return found


def _sorted(hits: Hits, scores: Any, keep: int | None) -> Found:
    """The hits by their new scores; of equal ones, the lower id."""
    values = [next(scores) for _ in hits]
    for value in values:
        if isinstance(value, Exception):
            return value
        if np.isnan(value):
            return ColumnError("rerank: a score is not a number (NaN)")
    scored = [{**hit, "score": value} for hit, value in zip(hits, values, strict=True)]
    try:
        return sorted(scored, key=lambda hit: (-hit["score"], hit["id"]))[:keep]
    except TypeError as error:
        return ColumnError(f"rerank: hits of equal scores are sorted by their ids: {error}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ColumnError(f"an index is asked with text, not {type(value).__name__}")


def _hits(value: Any) -> Hits:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise ColumnError(f"rerank takes a list of hits, not {type(value).__name__}")
    for hit in value:
        if not (isinstance(hit, Mapping) and "id" in hit and isinstance(hit.get("text"), str)):
            raise ColumnError(f"a hit has an id and a text, unlike {hit!r:.80}")
    return [dict(hit) for hit in value]


def _column(found: list[Found]) -> Column:
    errors = {i: one for i, one in enumerate(found) if isinstance(one, Exception)}
    made = Values([None if i in errors else one for i, one in enumerate(found)])
    if errors:
        raise RowErrors(errors, made)
    return made
