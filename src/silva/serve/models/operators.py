"""The operators of models: `model.embed`, `model.generate`, `model.sample`, `model.score`.

A kernel renders the question of each row, and asks for those that differ. Rows whose question
failed are named in a `RowErrors`, so that no other row is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from silva.columns import Array, Column, Parts, Values
from silva.errors import ColumnError
from silva.operators.declare import column_operator
from silva.order.draws import Draw
from silva.plan.operator import RowErrors
from silva.serve.models.model import Answer, ModelRef, Question
from silva.serve.models.opened import models
from silva.serve.models.prompt import Message, Prompt, Rendered
from silva.serve.models.schema import Schema

Params = dict[str, Any]
V = TypeVar("V")


@column_operator("model.embed", by_row=True)
def embed(columns: list[Column], params: Params, draw: Draw) -> Column:
    ref: ModelRef = params["model"]
    running = models().running(ref)
    texts = [_text(value) for value in columns[0].rows()]
    good = [text for text in texts if isinstance(text, str)]
    keys = [ref.key("embed", text.encode("utf-8", "surrogatepass"), "") for text in good]
    found = running.vectors.ask(keys, good, lambda some: running.opened.embed(some), ref.model.deadline)
    vectors = _merged(texts, found)
    return Array(np.stack(vectors)) if vectors else Array(np.empty((0, 0), np.float32))


@column_operator("model.generate", by_row=True)
def generate(columns: list[Column], params: Params, draw: Draw) -> Column:
    return _generate(columns, params, draw, None)


@column_operator("model.sample", by_row=True, random=True)
def sample(columns: list[Column], params: Params, draw: Draw) -> Column:
    return _generate(columns, params, draw, (draw.seeds() >> np.uint64(33)).tolist())


def _generate(
    columns: list[Column], params: Params, draw: Draw, seeds: list[int] | None
) -> Column:
    ref, prompt, settings = params["model"], params["prompt"], params["settings"]
    running = models().running(ref)
    rendered = _rendered(columns, prompt, settings.schema, len(draw.ids))
    questions: list[Question | Exception] = [
        one if isinstance(one, Exception) else Question(one, settings, seeds[i] if seeds else None)
        for i, one in enumerate(rendered)
    ]
    good = [one for one in questions if isinstance(one, Question)]

    def call(some: list[Question]) -> list[Answer | Exception]:
        order = sorted(range(len(some)), key=lambda i: [m.text for m in some[i].messages])
        answers = running.opened.generate([some[i] for i in order])  # shared prefixes side by side
        made: list[Answer | Exception] = [answers[0]] * len(some)
        for i, answer in zip(order, answers, strict=True):
            made[i] = answer
        return made

    keys = [ref.key("generate", one.key(), "") for one in good]
    answers = running.texts.ask(keys, good, call, ref.model.deadline)
    if settings.schema is None:
        texts = [one if isinstance(one, Exception) else one.text for one in answers]
        return Values(_merged(questions, texts))
    rows = [_parsed(q, a, running, ref, call) for q, a in zip(good, answers, strict=True)]
    found = _merged(questions, rows)
    parts = [Values([row[i] for row in found]) for i in range(len(settings.schema.names))]
    return parts[0] if len(parts) == 1 else Parts(tuple(parts))


def _parsed(
    question: Question, answer: Answer | Exception, running: Any, ref: ModelRef, call: Any
) -> tuple[Any, ...] | Exception:
    """The values of one answer by the schema. One that does not fit is asked for again, with the
    error."""
    schema = question.settings.schema
    assert schema is not None
    for again in range(question.settings.repairs + 1):
        if isinstance(answer, Exception):
            return answer
        try:
            return schema.parse(answer.text)
        except ColumnError as error:
            if again == question.settings.repairs:
                return error
            wrong = (Message("assistant", (answer.text,)), Message("user", (f"{error}. Try again.",)))
            question = replace(question, messages=(*_as_chat(question.messages), *wrong))
            key = ref.key("generate", question.key(), "")
            (answer,) = running.texts.ask([key], [question], call, ref.model.deadline)
    raise AssertionError


@column_operator("model.score", by_row=True)
def score(columns: list[Column], params: Params, draw: Draw) -> Column:
    ref, prompt = params["model"], params["prompt"]
    running = models().running(ref)
    rendered = _rendered(columns, prompt, None, len(draw.ids))
    good = [(one[0].text, one[1].text) for one in rendered if not isinstance(one, Exception)]
    keys = [ref.key("score", msgspec.msgpack.encode(pair), "") for pair in good]
    found = running.scores.ask(keys, good, lambda some: running.opened.score(some), ref.model.deadline)
    return Array(np.array(_merged(rendered, found), dtype=np.float64))


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
    rows = [one if isinstance(one, Exception) else next(answers) for one in asked]
    errors = {i: row for i, row in enumerate(rows) if isinstance(row, Exception)}
    if errors:
        raise RowErrors(errors, Values([None if i in errors else row for i, row in enumerate(rows)]))
    return rows
