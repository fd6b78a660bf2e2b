"""OpenAI's protocol: what is sent, and what comes back, decoded as data of a known type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from silva.serve.models.model import Answer, Count, Question


class Tokens(msgspec.Struct):
    prompt_tokens: Count = 0
    completion_tokens: Count = 0


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class Completion(msgspec.Struct):
    """A generated answer."""

    choices: list[_Choice]
    usage: Tokens | None = None

    def is_whole(self) -> bool:
        return bool(self.choices) and self.choices[0].message.content is not None

    def answer(self) -> Answer:
        choice, usage = self.choices[0], self.usage or Tokens()
        finish = "length" if choice.finish_reason == "length" else "stop"
        text = choice.message.content or ""
        return Answer(text, finish, usage.prompt_tokens, usage.completion_tokens)


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class Embeddings(msgspec.Struct):
    """The vectors of some texts."""

    data: list[_Vector]
    usage: Tokens | None = None

    def is_whole(self, count: int) -> bool:
        """Whether there is one vector for each text, all of one width."""
        indices = sorted(one.index for one in self.data)
        widths = {len(one.embedding) for one in self.data}
        return indices == list(range(count)) and len(widths) == 1 and 0 not in widths

    def vectors(self) -> list[list[float]]:
        return [one.embedding for one in sorted(self.data, key=lambda one: one.index)]


class _Delta(msgspec.Struct):
    content: str | None = None


class _Piece(msgspec.Struct):
    delta: _Delta
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Piece] = []
    usage: Tokens | None = None


class Streamed:
    """An answer that comes as server-sent events."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._texts: list[str] = []
        self.bytes = 0
        self.finish: str | None = None
        self.usage: Tokens | None = None

    def add(self, line: str) -> None:
        """Reads one line.

        >>> made = Streamed(print)
        >>> made.add('data: {"choices": [{"delta": {"content": "Rome"}}]}')
        Rome
        >>> made.add('data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}')
        >>> made.answer().text
        'Rome'
        """
        self.bytes += len(line)
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            return
        found = msgspec.json.decode(data, type=_Chunk)
        self.usage = found.usage or self.usage
        for piece in found.choices[:1]:
            self.finish = piece.finish_reason or self.finish
            if piece.delta.content:
                self._texts.append(piece.delta.content)
                self._on_text(piece.delta.content)

    @property
    def has_begun(self) -> bool:
        """Whether a text was handed over."""
        return bool(self._texts)

    def answer(self) -> Answer:
        usage = self.usage or Tokens()
        finish = "length" if self.finish == "length" else "stop"
        text = "".join(self._texts)
        return Answer(text, finish, usage.prompt_tokens, usage.completion_tokens)


def completion_body(name: str, question: Question) -> dict[str, Any]:
    """The body of a request for one answer."""
    settings = question.settings
    body: dict[str, Any] = {
        "model": name,
        "messages": [{"role": m.role or "user", "content": m.text} for m in question.messages],
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
    }
    if settings.stop:
        body["stop"] = list(settings.stop)
    if question.seed is not None:
        body["seed"] = question.seed
    if settings.schema is not None:
        form = {"name": "answer", "schema": settings.schema.json_schema(), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return body


def embeddings_body(name: str, texts: list[str]) -> dict[str, Any]:
    return {"model": name, "input": texts, "encoding_format": "float"}
