"""The operators of models: `model.embed`, `model.generate`, `model.sample`, `model.score`.

A kernel renders the question of each row, and asks for those that differ. Rows whose question
failed are named in a `RowErrors`, so that no other row is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from silva.columns import Array, Column, Parts, Values
from silva.errors import ColumnError
from silva.operators.declare import column_operator
from silva.order.draws import Draw
from silva.plan.operator import RowErrors
from silva.serve.models.model import Answer, Model, OpenModel, Question, key_of
from silva.serve.models.opened import models
from silva.serve.models.prompt import Message, Prompt, Rendered
from silva.serve.models.schema import Schema
from silva.serve.tenant import current, listener

Params = dict[str, Any]
Q = TypeVar("Q")
V = TypeVar("V")


@column_operator("model.embed", by_row=True)
def embed(columns: list[Column], params: Params, draw: Draw) -> Column:
    texts = [_text(value) for value in columns[0].rows()]
    good = [text for text in texts if isinstance(text, str)]
    vectors = _merged(texts, _embed(params["model"].model, good))
    return Array(np.stack(vectors)) if vectors else Array(np.empty((0, 0), np.float32))


def _embed(model: Model, texts: list[str]) -> list[np.ndarray | Exception]:
    running = models().running(model)
    keys = [key_of(model, "embed", text.encode("utf-8", "surrogatepass")) for text in texts]
    found = running.vectors.ask(keys, texts, running.open(model).embed, model.patience)
    return _or_fallback(model, texts, found, _embed)


@column_operator("model.generate", by_row=True)
def generate(columns: list[Column], params: Params, draw: Draw) -> Column:
    return _generated(columns, params, draw, None)


@column_operator("model.sample", by_row=True, random=True)
def sample(columns: list[Column], params: Params, draw: Draw) -> Column:
    return _generated(columns, params, draw, (draw.seeds() >> np.uint64(33)).tolist())


def _generated(
    columns: list[Column], params: Params, draw: Draw, seeds: list[int] | None
) -> Column:
    model: Model = params["model"].model
    prompt, settings = params["prompt"], params["settings"]
    rendered = _rendered(columns, prompt, settings.schema, len(draw.ids))
    questions: list[Question | Exception] = [
        one if isinstance(one, Exception) else Question(one, settings, seeds[i] if seeds else None)
        for i, one in enumerate(rendered)
    ]
    good = [one for one in questions if isinstance(one, Question)]
    with current().step((params["model"].identity, prompt, settings)):
        answers = _generate(model, good)
    if settings.schema is None:
        texts = [one if isinstance(one, Exception) else one.text for one in answers]
        return Values(_merged(questions, texts))
    rows = [_parsed(model, one, answer) for one, answer in zip(good, answers, strict=True)]
    found = _merged(questions, rows)
    parts = [Values([row[i] for row in found]) for i in range(len(settings.schema.names))]
    return parts[0] if len(parts) == 1 else Parts(tuple(parts))


def _generate(model: Model, questions: list[Question]) -> list[Answer | Exception]:
    running = models().running(model)

    def call(some: list[Question]) -> list[Answer | Exception]:
        order = sorted(range(len(some)), key=lambda i: [m.text for m in some[i].messages])
        answers = _asked(running.open(model), [some[i] for i in order])  # shared prefixes together
        made = dict(zip(order, answers, strict=True))
        return [made[i] for i in range(len(some))]

    keys = [key_of(model, "generate", one.key()) for one in questions]
    found = running.texts.ask(keys, questions, call, model.patience)
    return _or_fallback(model, questions, found, _generate)


def _asked(opened: OpenModel, questions: list[Question]) -> list[Answer | Exception]:
    """What the model answers; to one whom somebody listens to, piece by piece if it can."""
    on_text, stream = listener(), getattr(opened, "stream", None)
    if on_text is not None and stream is not None and len(questions) == 1:
        return [stream(questions[0], on_text)]
    return opened.generate(questions)


def _parsed(
    model: Model, question: Question, answer: Answer | Exception
) -> tuple[Any, ...] | Exception:
    """The values of one answer by the schema. One that does not fit is asked for again, with the
    error."""
    schema = question.settings.schema
    assert schema is not None
    repairs = question.settings.repairs
    while not isinstance(answer, Exception):
        try:
            return schema.parse(answer.text)
        except ColumnError as error:
            if not repairs:
                return error
            repairs -= 1
            asks = Message("user", (f"{error}. Answer again.",))
            messages = (*question.messages, Message("assistant", (answer.text,)), asks)
            question = replace(question, messages=messages)
            (answer,) = _generate(model, [question])
    return answer


@column_operator("model.score", by_row=True)
def score(columns: list[Column], params: Params, draw: Draw) -> Column:
    rendered = _rendered(columns, params["prompt"], None, len(draw.ids))
    pairs = [(one[0].text, one[1].text) for one in rendered if not isinstance(one, Exception)]
    found = _score(params["model"].model, pairs)
    return Array(np.array(_merged(rendered, found), dtype=np.float64))


def _score(model: Model, pairs: list[tuple[str, str]]) -> list[float | Exception]:
    running = models().running(model)
    keys = [key_of(model, "score", msgspec.msgpack.encode(pair)) for pair in pairs]
    found = running.scores.ask(keys, pairs, running.open(model).score, model.patience)
    return _or_fallback(model, pairs, found, _score)


def _or_fallback(
    model: Model,
    items: list[Q],
    found: list[V | Exception],
    ask: Callable[[Model, list[Q]], list[V | Exception]],
) -> list[V | Exception]:
    """What the model's fallback answers where the model has failed."""
    failed = [i for i, one in enumerate(found) if isinstance(one, Exception)]
    if model.fallback is None or not failed:
        return found
    more = dict(zip(failed, ask(model.fallback, [items[i] for i in failed]), strict=True))
    return [more.get(i, one) for i, one in enumerate(found)]


def _rendered(
    columns: list[Column], prompt: Prompt, schema: Schema | None, count: int
) -> list[Rendered | Exception]:
    """The messages of each row. What a schema asks for comes first, where rows share it."""
    fields = prompt.fields()
    rows = [column.rows() for column in columns]
    asks = () if schema is None else (Message("system", (schema.request(),)),)
    made: list[Rendered | Exception] = []
    for values in zip(*rows, strict=True) if rows else [()] * count:
        try:
            found = prompt.render(dict(zip(fields, values, strict=True)))
            made.append((*asks, *_as_chat(found)) if asks else found)
        except Exception as error:  # noqa: BLE001  show= is the user's: whatever it is, it is that row's
            made.append(error)
    return made


def _as_chat(messages: Rendered) -> Rendered:
    """Plain text as what the user says."""
    return tuple(one if one.role else Message("user", one.parts) for one in messages)


def _text(value: Any) -> str | Exception:
    if isinstance(value, str):
        return value
    return ColumnError(f"embed takes text, not {type(value).__name__}")


def _merged(asked: Sequence[Any], found: Sequence[V | Exception]) -> list[V]:
    """The values of all rows; RowErrors if a row could not be asked, or has no answer."""
    answers = iter(found)
    every = [one if isinstance(one, Exception) else next(answers) for one in asked]
    good = [row for row in every if not isinstance(row, Exception)]
    if len(good) == len(every):
        return good
    errors = {i: row for i, row in enumerate(every) if isinstance(row, Exception)}
    raise RowErrors(errors, Values([None if i in errors else row for i, row in enumerate(every)]))
