"""Local GGUF models: llama.cpp in a child process, with prompts that share their prefixes exactly.

Matrix products change in the last bits with the shape of a batch, so a prompt that is evaluated in
other pieces may get another text. Here the pieces depend on the request alone: a prompt is cut
where its fields begin and end, and each piece is one evaluation. What an earlier prompt has left in
the cache is used up to such a cut and no further, so answers do not depend on what was asked
before.
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import itertools
import json
import os
import secrets
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from silva.errors import PlanError, SilvaError
from silva.lifetime import close_at_exit
from silva.serve.models.model import Answer, Model, Question
from silva.serve.models.prompt import Message
from silva.serve.models.usage import Meter, Usage

_BATCH = 512
"""Tokens of one evaluation; longer pieces are cut at multiples of it."""
_MAGIC = b"GGUF"
_DEADLINE = 600.0
"""Seconds for one evaluation, or for loading the model."""


class ModelError(SilvaError):
    """A local model has ended, or cannot answer a question."""


@dataclass(frozen=True)
class Gguf(Model):
    """A model in a GGUF file: `Gguf("model.gguf")`.

    Answers are bit for bit the same whatever was asked before, for a file, a number of threads, a
    version of llama.cpp and a type of machine. Needs the library xllamacpp (extra `models`).
    """

    path: str
    context: int = 4096
    """Tokens of a prompt and its answer together."""
    threads: int = 1
    fallback: Model | None = None

    def __post_init__(self) -> None:
        try:
            with open(self.path, "rb") as file:
                magic = file.read(len(_MAGIC))
        except OSError as error:
            raise PlanError(f"the model {self.path!r} cannot be read: {error.strerror}") from None
        if magic != _MAGIC:
            raise PlanError(f"{self.path!r} is not a GGUF file")

    def __repr__(self) -> str:
        return os.path.basename(self.path)

    @property
    def identity(self) -> str:
        status = os.stat(self.path)
        digest = _digest_of(self.path, status.st_size, status.st_mtime_ns)
        library = version("xllamacpp")
        return "\0".join(("gguf", digest, library, str(self.threads), str(self.context)))

    def open(self) -> OpenGguf:
        return OpenGguf(self)


@functools.lru_cache(maxsize=64)
def _digest_of(path: str, size: int, changed: int) -> str:
    """The digest of a file that has not changed since it was last asked for."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class OpenGguf:
    """The child process, started when it is needed and again after it has ended."""

    def __init__(self, model: Gguf) -> None:
        self._model = model
        self._meter = Meter()
        self._child: _Child | None = None
        close_at_exit(self)

    @property
    def usage(self) -> Usage:
        return self._meter.read()

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        return [self._generate(question) for question in questions]

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        return [ModelError(f"{self._model!r} generates, and does not embed") for _ in texts]

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        return [ModelError(f"{self._model!r} generates, and does not score") for _ in pairs]

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _generate(self, question: Question) -> Answer | Exception:
        try:
            if self._child is None:
                self._child = _Child(self._model)
            answer = self._child.answer(question)
        except ModelError as error:
            return error
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            self.close()  # the next question starts another one
            return ModelError(f"{self._model!r} has ended or does not answer: {error!r}")
        self._meter.add(
            calls=1,
            prompt_tokens=answer.prompt_tokens,
            answer_tokens=answer.answer_tokens,
            computed_tokens=answer.computed_tokens or 0,
        )
        return answer


class _Child:
    """A running child process, and what its cache holds."""

    def __init__(self, model: Gguf) -> None:
        self._model = model
        self._key = secrets.token_hex(16)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "silva.serve.models.gguf_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        settings = {
            "path": os.path.abspath(model.path),
            "context": model.context,
            "threads": model.threads,
            "batch": _BATCH,
            "key": self._key,
        }
        self._process.stdin.write(json.dumps(settings) + "\n")
        self._process.stdin.flush()
        select.select([self._process.stdout], [], [], _DEADLINE)
        os.set_blocking(self._process.stdout.fileno(), False)
        address = urlsplit((self._process.stdout.readline() or "").strip())
        if address.port is None:
            self.close()
            raise ModelError(f"{model!r} cannot be loaded: its process ended with {self._code}")
        self._http = http.client.HTTPConnection("127.0.0.1", address.port, timeout=_DEADLINE)
        self._cached: list[int] = []
        """The tokens in the cache."""
        self._cuts: list[int] = []
        """Where the pieces of the latest prompt ended."""

    @property
    def _code(self) -> int | None:
        return self._process.poll()

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def answer(self, question: Question) -> Answer:
        pieces = list(self._pieces(question))
        settings = question.settings
        tokens = [token for piece in pieces for token in piece]
        if len(tokens) + settings.max_tokens > self._model.context:
            raise ModelError(
                f"the prompt has {len(tokens)} tokens, which with max_tokens="
                f"{settings.max_tokens} is more than the context of {self._model.context}"
            )
        computed = self._evaluate(pieces)
        body: dict[str, Any] = {
            "n_predict": settings.max_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "stop": list(settings.stop),
            "seed": question.seed or 0,
            "return_tokens": True,
        }
        if settings.schema is not None:
            body["json_schema"] = settings.schema.json_schema()
        found = self._complete(tokens, body)
        self._cached = [*tokens, *found["tokens"]]
        self._cuts = _ends(pieces)
        made = int(found["tokens_predicted"])
        finish = "length" if found.get("stop_type") == "limit" else "stop"
        return Answer(found["content"], finish, len(tokens), made, computed + len(pieces[-1]))

    def _evaluate(self, pieces: list[list[int]]) -> int:
        """Evaluates all pieces but the last, each by itself; returns the tokens that this took.

        The server continues wherever the cache and the prompt part, which may lie within a piece.
        A token that does not follow there makes them part at the cut."""
        ends, computed = _ends(pieces), 0
        tokens = [token for piece in pieces for token in piece]
        shared = _common(tokens, self._cached)
        known = [end for end in ends[:-1] if end <= shared and end in self._cuts]
        start = max(known, default=0)
        if shared > start:
            other = 1 if tokens[start] != 1 else 2
            self._complete([*tokens[:start], other], {"n_predict": 0})
            computed += 1
        for end in ends[:-1]:
            if end > start:
                self._complete(tokens[:end], {"n_predict": 0})
                computed += end - start
                start = end
        return computed

    def _complete(self, tokens: list[int], body: dict[str, Any]) -> dict[str, Any]:
        fixed = {"prompt": tokens, "cache_prompt": True, "id_slot": 0}
        return self._post("/completion", {**body, **fixed})

    def _pieces(self, question: Question) -> Iterator[list[int]]:
        """The tokens of the prompt, cut where its fields begin and end. Only the model's own chat
        template may hold special tokens: in what a row inserts, they are text."""
        plain = len(question.messages) == 1 and not question.messages[0].role
        texts = [(part, False) for part in question.messages[0].parts] if plain else None
        found = False
        for text, special in texts or self._chat(question.messages):
            begins = plain and not found
            body = {"content": text, "add_special": begins, "parse_special": special}
            tokens = self._post("/tokenize", body)["tokens"] if text else []
            for start in range(0, len(tokens), _BATCH):
                found = True
                yield tokens[start : start + _BATCH]
        if not found:
            raise ModelError("the prompt is empty")

    def _chat(self, messages: tuple[Message, ...]) -> Iterator[tuple[str, bool]]:
        """The texts of a chat by the model's own template, and whether each is of the template."""
        parts = [part for message in messages for part in message.parts]
        marks = [secrets.token_hex(8) for _ in parts]
        at = iter(marks)
        said = [{"role": m.role, "content": "".join(next(at) for _ in m.parts)} for m in messages]
        rest: str = self._post("/apply-template", {"messages": said})["prompt"]
        for mark, part in zip(marks, parts, strict=True):
            before, _, rest = rest.partition(mark)
            yield before, True
            yield part, False
        yield rest, True

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._key}"}
        self._http.request("POST", path, json.dumps(body), headers)
        reply = self._http.getresponse()
        data = reply.read()
        if reply.status != 200:
            text = data[:300].decode("utf-8", "replace")
            raise ModelError(f"{self._model!r} refused the question: {text}")
        found: dict[str, Any] = json.loads(data)
        return found


def _ends(pieces: list[list[int]]) -> list[int]:
    return list(itertools.accumulate(map(len, pieces)))


def _common(one: list[int], other: list[int]) -> int:
    """How many leading tokens two lists share."""
    count = min(len(one), len(other))
    return next((i for i in range(count) if one[i] != other[i]), count)
