"""The operators of models: `model.embed`, `model.generate`, `model.sample`, `model.score`.

A kernel renders the question of each row, and asks for those that differ. Rows whose question
failed are named in a `RowErrors`, so that no other row is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from silva.columns import Array, Column, Parts, Values
from silva.errors import ColumnError
from silva.operators.declare import column_operator
from silva.order.draws import Draw
from silva.plan.operator import RowErrors
from silva.serve.models.calling import of_one_width
from silva.serve.models.forgetting import request_name
from silva.serve.models.ledger import ledger
from silva.serve.models.model import Answer, Model, Question, keys_of
from silva.serve.models.observed import current as observer
from silva.serve.models.opened import models
from silva.serve.models.prompt import Message, Prompt, Rendered
from silva.serve.models.schema import Schema
from silva.serve.tenant import current

Params = dict[str, Any]
Q = TypeVar("Q")
V = TypeVar("V")


def _rows_at_once(kind: str) -> Callable[[Mapping[str, Any]], int]:
    """How many rows the model of an operator should get at once."""

    def wish(params: Mapping[str, Any]) -> int:
        rows: int = params["model"].model.rows_at_once(kind)
        return rows

    return wish


@column_operator("model.embed", by_row=True, best_rows=_rows_at_once("embed"))
def embed(columns: list[Column], params: Params, draw: Draw) -> Column:
    texts = [_text(params["model"].model, value) for value in columns[0].rows()]
    good = [text for text in texts if isinstance(text, str)]
    ids = _ids(texts, draw)
    found = of_one_width(dict(enumerate(_embed(params["model"].model, good, ids))))
    vectors = _merged(texts, list(found.values()))
    return Array(np.stack(vectors)) if vectors else Array(np.empty((0, 0), np.float32))


def _embed(model: Model, texts: list[str], ids: list[int]) -> list[np.ndarray | Exception]:
    keys = keys_of(model, "embed", [text.encode() for text in texts])
    found = models().running(model).vectors(model, keys, texts)
    _note(model, keys, ids)
    return _or_fallback(model, texts, ids, found, _embed)


@column_operator("model.generate", by_row=True, best_rows=_rows_at_once("generate"))
def generate(columns: list[Column], params: Params, draw: Draw) -> Column:
    return _generated(columns, params, draw, None)


@column_operator("model.sample", by_row=True, random=True, best_rows=_rows_at_once("generate"))
def sample(columns: list[Column], params: Params, draw: Draw) -> Column:
    return _generated(columns, params, draw, (draw.seeds() >> np.uint64(33)).tolist())


def _generated(
    columns: list[Column], params: Params, draw: Draw, seeds: list[int] | None
) -> Column:
    model: Model = params["model"].model
    prompt, settings = params["prompt"], params["settings"]
    rendered = _rendered(model, columns, prompt, settings.schema, len(draw.ids))
    places = [0] * len(draw.ids) if draw.places is None else draw.places.tolist()
    owners = list(zip(draw.ids.tolist(), places, strict=True))
    questions: list[Question | Exception] = [
        one
        if isinstance(one, Exception)
        else Question(one, settings, seeds[i] if seeds else None, owners[i])
        for i, one in enumerate(rendered)
    ]
    good = [one for one in questions if isinstance(one, Question)]
    ids = _ids(questions, draw)
    with current().step((params["model"].identity, prompt, settings)):
        answers = _generate(model, good, ids)
    if settings.schema is None:
        texts = [one if isinstance(one, Exception) else one.text for one in answers]
        return Values(_merged(questions, texts))
    found = _merged(questions, _parsed(model, good, answers, ids))
    parts = [Values([row[i] for row in found]) for i in range(len(settings.schema.names))]
    return parts[0] if len(parts) == 1 else Parts(tuple(parts))


def _generate(model: Model, questions: list[Question], ids: list[int]) -> list[Answer | Exception]:
    keys = keys_of(model, "generate", [q.key(by_parts=model.cuts_matter) for q in questions])
    # what shares a prefix is asked together
    order = sorted(range(len(questions)), key=lambda i: [one.text for one in questions[i].messages])
    running = models().running(model)
    made = running.texts(model, [keys[i] for i in order], [questions[i] for i in order])
    by_place = dict(zip(order, made, strict=True))
    found = [by_place[i] for i in range(len(order))]
    _note(model, keys, ids)
    if (asked := observer()) is not None:
        good = [one for one in found if isinstance(one, Answer)]
        counts = ((one.prompt_tokens, one.answer_tokens) for one in good)
        asked.note_tokens(counts, getattr(model, "price", (0.0, 0.0)))
    if (book := ledger()) is not None:
        owners = [one.row for one in questions]
        book.note_answers(owners, found, getattr(model, "price", (0.0, 0.0)))
    return _or_fallback(model, questions, ids, found, _generate)


def _parsed(
    model: Model, questions: list[Question], answers: list[Answer | Exception], ids: list[int]
) -> list[tuple[Any, ...] | Exception]:
    """The values of each answer by the schema. Those that do not fit are asked for again, with the
    error, all together."""
    asked, found = list(questions), list(answers)
    made: list[tuple[Any, ...] | Exception] = [ColumnError("there is no answer") for _ in questions]
    waiting = list(range(len(asked)))
    while waiting:
        again = []
        for i in waiting:
            made[i], repairs = _values(asked[i], found[i])
            if repairs is not None:
                asked[i] = repairs
                again.append(i)
        asks = _generate(model, [asked[i] for i in again], [ids[i] for i in again])
        for i, answer in zip(again, asks, strict=True):
            found[i] = answer
        waiting = again
    return made


def _values(
    question: Question, answer: Answer | Exception
) -> tuple[tuple[Any, ...] | Exception, Question | None]:
    """The values of one answer, or its error; and the question that asks for a better one."""
    settings = question.settings
    assert settings.schema is not None
    if isinstance(answer, Exception):
        return answer, None
    try:
        return settings.schema.parse(answer.text), None
    except ColumnError as error:
        if not settings.repairs:
            return error, None
        asks = Message("user", (f"{error}. Answer again.",))
        said = Message("assistant", (answer.text,))
        fewer = replace(settings, repairs=settings.repairs - 1)
        return error, replace(question, messages=(*question.messages, said, asks), settings=fewer)


@column_operator("model.score", by_row=True, best_rows=_rows_at_once("score"))
def score(columns: list[Column], params: Params, draw: Draw) -> Column:
    model = params["model"].model
    rendered = _rendered(model, columns, params["prompt"], None, len(draw.ids))
    pairs = [(one[0].text, one[1].text) for one in rendered if not isinstance(one, Exception)]
    found = score_pairs(model, pairs, _ids(rendered, draw))
    return Array(np.array(_merged(rendered, found), dtype=np.float64))


def score_pairs(
    model: Model, pairs: list[tuple[str, str]], ids: list[int]
) -> list[float | Exception]:
    """What a model, or its fallback, says of pairs of texts; `ids`: of whose row each is."""
    checked = [_checked_pair(pair) for pair in pairs]
    good = [pair for pair in checked if isinstance(pair, tuple)]
    of = [i for i, one in zip(ids, checked, strict=True) if isinstance(one, tuple)]
    found = iter(_score(model, good, of))
    return [one if isinstance(one, Exception) else next(found) for one in checked]


def _checked_pair(pair: tuple[str, str]) -> tuple[str, str] | Exception:
    try:
        return _checked(pair[0]), _checked(pair[1])
    except ColumnError as error:
        return error


def _score(model: Model, pairs: list[tuple[str, str]], ids: list[int]) -> list[float | Exception]:
    keys = keys_of(model, "score", [msgspec.msgpack.encode(pair) for pair in pairs])
    found = models().running(model).scores(model, keys, pairs)
    _note(model, keys, ids)
    return _or_fallback(model, pairs, ids, found, _score)


def _or_fallback(
    model: Model,
    items: list[Q],
    ids: list[int],
    found: list[V | Exception],
    ask: Callable[[Model, list[Q], list[int]], list[V | Exception]],
) -> list[V | Exception]:
    """What the model's fallback answers where the model has failed."""
    failed = [i for i, one in enumerate(found) if isinstance(one, Exception)]
    if model.fallback is None or not failed:
        return found
    spare = ask(model.fallback, [items[i] for i in failed], [ids[i] for i in failed])
    more = dict(zip(failed, spare, strict=True))
    return [more.get(i, one) for i, one in enumerate(found)]


def _ids(asked: Sequence[Any], draw: Draw) -> list[int]:
    """The identities of the rows that can be asked."""
    pairs = zip(draw.ids.tolist(), asked, strict=True)
    return [i for i, one in pairs if not isinstance(one, Exception)]


def _note(model: Model, keys: list[bytes], ids: list[int]) -> None:
    """Notes which requests have had these answers."""
    if model.lifetime != 0:
        pairs = zip(map(request_name, ids), keys, strict=True)
        models().answers.note(pairs)


def _rendered(
    model: Model, columns: list[Column], prompt: Prompt, schema: Schema | None, count: int
) -> list[Rendered | Exception]:
    """The messages of each row. What a schema asks for comes first, where rows share it."""
    fields = prompt.fields()
    rows = [column.rows() for column in columns]
    asks = () if schema is None else (Message("system", (schema.request(),)),)
    made: list[Rendered | Exception] = []
    for values in zip(*rows, strict=True) if rows else [()] * count:
        try:
            normal = (model.normal(v) if isinstance(v, str) else v for v in values)
            found = prompt.render(dict(zip(fields, normal, strict=True)))
            for one in found:
                _checked(one.text)
            made.append((*asks, *_as_chat(found)) if asks else found)
        except Exception as error:  # noqa: BLE001  show= is the user's: it is that row's error
            made.append(error)
    return made


def _as_chat(messages: Rendered) -> Rendered:
    """Plain text as what the user says."""
    return tuple(one if one.role else Message("user", one.parts) for one in messages)


def _text(model: Model, value: Any) -> str | Exception:
    if not isinstance(value, str):
        return ColumnError(f"embed takes text, not {type(value).__name__}")
    try:
        return _checked(model.normal(value))
    except Exception as error:  # noqa: BLE001  the user's function: it is that row's error
        return error


def _checked(text: str) -> str:
    """The text, if it can be sent to a model."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ColumnError(
            f"the text holds half of a character (a lone surrogate) at {error.start}: decode it "
            "with errors='replace'"
        ) from None
    return text


def _merged(asked: Sequence[Any], found: Sequence[V | Exception]) -> list[V]:
    """The values of all rows; RowErrors if a row could not be asked, or has no answer."""
    answers = iter(found)
    every = [one if isinstance(one, Exception) else next(answers) for one in asked]
    good = [row for row in every if not isinstance(row, Exception)]
    if len(good) == len(every):
        return good
    errors = {i: row for i, row in enumerate(every) if isinstance(row, Exception)}
    raise RowErrors(errors, Values([None if i in errors else row for i, row in enumerate(every)]))
