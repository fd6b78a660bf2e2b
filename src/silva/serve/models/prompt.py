"""Prompts: templates that read the columns they name in braces, and what a row makes of them.

Only `{name}` with a plain identifier is a field. `{{name}}` is the text `{name}`, and every other
brace is itself, so JSON and code need no escapes. What is inserted is data: it is never searched
for fields again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from silva.errors import ColumnError, PlanError
from silva.plan.arguments import one_of
from silva.plan.class_tags import tagged

_BRACES = re.compile(r"\{\{([^\W\d]\w*)\}\}|\{([^\W\d]\w*)\}")
ROLES = ("system", "user", "assistant")
Show = Callable[[Any], str]


class Message(NamedTuple):
    """A part of a prompt as a model gets it."""

    role: str
    parts: tuple[str, ...]
    """The text, cut where fields begin and end: rows that share leading parts share work."""

    @property
    def text(self) -> str:
        return "".join(self.parts)


Rendered = tuple[Message, ...]
"""The messages of one row."""


@tagged("Template", "role text")
@dataclass(frozen=True)
class Template:
    """A text with fields, and the role in which it is said; an empty role is plain text that is
    completed."""

    role: str
    text: str

    def pieces(self) -> Iterator[tuple[str, bool]]:
        """Literal texts, and the names of fields (True), in order."""
        at, literal = 0, ""
        for found in _BRACES.finditer(self.text):
            literal += self.text[at : found.start()]
            at = found.end()
            if found[1] is not None:
                literal += f"{{{found[1]}}}"
                continue
            if literal:
                yield literal, False
            literal = ""
            yield found[2], True
        literal += self.text[at:]
        if literal:
            yield literal, False

    def fields(self) -> tuple[str, ...]:
        """The names of its fields, each once.

        >>> Template("", 'Answer {question} as {"json": {}} or {{literal}}').fields()
        ('question',)
        """
        return tuple(dict.fromkeys(text for text, is_field in self.pieces() if is_field))


@tagged("Prompt", "templates show")
@dataclass(frozen=True)
class Prompt:
    """The templates of a step."""

    templates: tuple[Template, ...]
    show: Show | None = None
    """Renders the value of a field that is not text; None for `show_value`."""

    @staticmethod
    def of(prompt: str | None, messages: Any, show: Any = None) -> Prompt:
        """A prompt from what `generate` was given: one text, or messages."""
        if (prompt is None) == (messages is None):
            raise PlanError('generate takes a template, "… {question} …", or messages=[…]')
        if show is not None and not callable(show):
            raise PlanError(f"show= takes a function from a value to its text, not {show!r}")
        if messages is None:
            return Prompt((_template("", prompt),), show)
        if isinstance(messages, str | Mapping) or not isinstance(messages, Iterable):
            raise PlanError(f"messages= takes a list of (role, template), not {messages!r}")
        made = tuple(_message(message) for message in messages)
        if not made:
            raise PlanError("messages= is empty")
        return Prompt(made, show)

    def fields(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        return tuple(dict.fromkeys(f for one in self.templates for f in one.fields()))

    def render(self, row: Mapping[str, Any]) -> Rendered:
        """The messages of one row.

        >>> row = {"hits": [{"id": 7, "score": 1.0, "text": "A {x}."}], "question": "Why?"}
        >>> prompt = Prompt.of("{hits}\\n\\nQ: {question}", None)
        >>> print(prompt.render(row)[0].text)
        [1] A {x}.
        <BLANKLINE>
        Q: Why?
        """
        show = self.show or show_value
        return tuple(
            Message(
                template.role,
                tuple(
                    _shown(text, row[text], show) if is_field else text
                    for text, is_field in template.pieces()
                ),
            )
            for template in self.templates
        )

    def __repr__(self) -> str:
        return repr(" ".join(template.text for template in self.templates))


def show_value(value: Any) -> str:
    """A value as a prompt shows it: hits and lists of text are numbered in their order.

    >>> show_value([{"id": 3, "score": 0.5, "text": "One."}, "Two."])
    '[1] One.\\n[2] Two.'
    >>> show_value(3.5), show_value({"a": 1})
    ('3.5', '{"a": 1}')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()  # NumPy shows the ends of a long array alone
        if isinstance(value, str):
            return value
    if isinstance(value, bytes):
        raise ColumnError("a prompt takes text, not bytes: decode them before")
    if isinstance(value, Sequence):
        return "\n".join(f"[{n}] {_item(item)}" for n, item in enumerate(value, 1))
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _item(item: Any) -> str:
    is_hit = isinstance(item, Mapping) and isinstance(item.get("text"), str)
    return str(item["text"]) if is_hit else show_value(item)


def _shown(name: str, value: Any, show: Show) -> str:
    if value is None:
        raise ColumnError(f"the prompt reads {{{name}}}, which this row does not have: fill nulls")
    text = value if isinstance(value, str) else show(value)
    if not isinstance(text, str):
        raise ColumnError(f"show= returned {type(text).__name__} for {{{name}}}, not text")
    return text


def _template(role: str, text: Any) -> Template:
    if not isinstance(text, str):
        raise PlanError(f"a prompt is a text, not {text!r}")
    return Template(role, text)


def _message(message: Any) -> Template:
    if isinstance(message, Mapping):
        if set(message) != {"role", "content"}:
            raise PlanError(f"a message has the keys role and content, not {sorted(message)}")
        message = (message["role"], message["content"])
    if not isinstance(message, tuple | list) or len(message) != 2:
        raise PlanError(f'a message is ("user", "…"), not {message!r}')
    role, text = message
    return _template(one_of("the role of a message", role, *ROLES), text)
