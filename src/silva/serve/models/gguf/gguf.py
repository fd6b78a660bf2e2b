"""Local GGUF models: llama.cpp in a child process, with prompts that share their prefixes exactly.

Matrix products change in the last bits with the shape of a batch, so a prompt that is evaluated in
other pieces may get another text. Here the pieces depend on the request alone: a prompt is cut
where its fields begin and end, and each piece is one evaluation. What an earlier prompt has left in
the cache is used up to a cut that both have, if all cuts before it are the same, and no further. So
answers do not depend on what was asked before.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar, TypeVar

import numpy as np

from silva.errors import PlanError, SilvaError
from silva.lifetime import close_at_exit
from silva.plan.arguments import explains_verbs, flag, natural, path_of
from silva.serve.deadline import limit
from silva.serve.models.errors import Abandoned, QuestionError
from silva.serve.models.gguf.child import Child, ChildEnded
from silva.serve.models.model import Answer, Model, Question, model_or_none
from silva.serve.models.usage import Meter, Usage

T = TypeVar("T")

_MAGIC = b"GGUF"
_ROWS = 256
"""Rows in a block: they share prefixes, and each takes a second or so."""


@explains_verbs
@dataclass(frozen=True)
class Gguf(Model):
    """A model in a GGUF file: `Gguf("model.gguf")`.

    Answers are bit for bit the same whatever was asked before, for a file, a number of threads, a
    version of llama.cpp and a type of machine. Needs the library xllamacpp (extra `models`).
    """

    cuts_matter: ClassVar[bool] = True
    path: str
    context: int = 4096
    """Tokens of a prompt and its answer together."""
    threads: int = 1
    exact: bool = True
    """Whether an answer depends on its question alone. Otherwise, prompts share every prefix, and
    `slots` of them are answered at once, which is faster, and changes texts now and then."""
    slots: int = 4
    """Prompts that are answered at once where `exact=False`."""
    fallback: Model | None = None

    def __post_init__(self) -> None:
        path_of("Gguf(path)", self.path)
        for name in ("context", "threads", "slots"):
            natural(f"Gguf({name}=…)", getattr(self, name), least=1)
        flag("Gguf(exact=…)", self.exact)
        model_or_none("Gguf(fallback=…)", self.fallback)
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
        made = ("gguf", digest, _library(), str(self.threads), str(self.context))
        return "\0".join(made if self.exact else (*made, "inexact"))

    @property
    def connection(self) -> Any:
        return (self.identity, self.exact or self.slots)

    @property
    def promise(self) -> str | None:
        if self.exact:
            return None
        return f"answers of {self!r} depend on what it is asked beside them: exact=False"

    def rows_at_once(self, kind: str) -> int:
        return _ROWS

    @property
    def prompts_at_once(self) -> int | None:
        return 1 if self.exact else self.slots

    def open(self) -> OpenGguf:
        return OpenGguf(self)


@functools.cache
def _library() -> str:
    return version("xllamacpp")


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
        self._lock = threading.Lock()
        self._child: Child | None = None
        close_at_exit(self)

    @property
    def usage(self) -> Usage:
        return self._meter.read()

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        return self._all("generate", questions)

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        return [QuestionError(f"{self._model!r} generates, and does not embed") for _ in texts]

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        return self._all("score", pairs)

    def stream(self, question: Question, on_text: Callable[[str], None]) -> Answer | Exception:
        """The answer, handed over text by text as it is generated."""
        return self._try(lambda child: child.answer(question, on_text))

    def arriving(self, kind: str, items: list[Any]) -> Generator[Mapping[int, Any], None, None]:
        """Answers as they arrive."""
        ask: Any = {"generate": self._generate, "score": self._score}.get(kind)
        if ask is None:
            yield dict(enumerate(self.embed(items)))
        elif self._model.exact:
            awaited = limit()
            for place, item in enumerate(items):
                if awaited is not None and awaited.is_given_up:
                    raise Abandoned(f"nobody awaits what {self._model!r} is asked")
                yield {place: ask(item)}
        else:
            with ThreadPoolExecutor(self._model.slots) as pool:
                asked = {
                    pool.submit(copy_context().run, ask, item): place
                    for place, item in enumerate(items)
                }
                for future in as_completed(asked):
                    yield {asked[future]: future.result()}

    def close(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.close()

    def _all(self, kind: str, items: list[Any]) -> list[Any]:
        found: dict[int, Any] = {}
        for some in self.arriving(kind, items):
            found.update(some)
        return [found[i] for i in range(len(items))]

    def _generate(self, question: Question) -> Answer | Exception:
        return self._try(lambda child: child.answer(question))

    def _score(self, pair: tuple[str, str]) -> float | Exception:
        return self._try(lambda child: child.score(*pair))

    def _try(self, ask: Callable[[Child], T]) -> T | Exception:
        """What a running child says. One that ends meanwhile is replaced, and asked once more."""
        for is_last in (False, True):
            child: Child | None = None
            try:
                child = self._running()
                return ask(child)
            except ChildEnded as error:
                self._drop(child)
                if is_last or error.has_begun:
                    return error
            except SilvaError as error:
                return error
        raise AssertionError

    def _running(self) -> Child:
        with self._lock:
            if self._child is None:
                self._child = Child(self._model, self._meter)
            return self._child

    def _drop(self, child: Child | None) -> None:
        """Closes a child that has ended, unless another thread has replaced it."""
        with self._lock:
            if child is None or self._child is not child:
                return
            self._child = None
        child.close()
