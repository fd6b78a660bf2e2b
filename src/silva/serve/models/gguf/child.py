"""One child process of a GGUF model: questions as tokens, and what its cache holds."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import math
import os
import secrets
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from silva.serve.models.errors import ModelError, QuestionError
from silva.serve.models.model import Answer, Question
from silva.serve.models.prompt import Message
from silva.serve.models.usage import Meter
from silva.serve.tenant import current

if TYPE_CHECKING:
    from silva.serve.models.gguf.gguf import Gguf

_BATCH = 512
"""Tokens of one evaluation; longer pieces are cut at multiples of it."""
_DEADLINE = 600.0
"""Seconds for one evaluation, or for loading the model."""
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT")
"""The variables that the process gets: those of the parent may hold API keys."""
_FORCED = 1e4
"""What is added to the logit of a token that is to be generated; others differ by some tens."""
_SHOWN = 300
"""Characters that an error shows of what the process wrote."""


class ChildEnded(ModelError):
    """The process has ended, or does not answer."""

    has_begun = False
    """Whether some of the answer was handed over before."""


class Child:
    """A running child process, and what its cache holds."""

    def __init__(self, model: Gguf, meter: Meter) -> None:
        self._model = model
        self._meter = meter
        self._key = secrets.token_hex(16)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "silva.serve.models.gguf.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={
                **{name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
        )
        self._cached: list[int] = []
        """The tokens in the cache; empty if that is not known."""
        self._cuts: list[int] = []
        """Where the pieces of the latest prompt ended."""
        self._tenant = ""
        """For whom that was asked: another one would learn from the time what it was."""
        try:
            self._port = self._loaded()
        except BaseException:
            self.close()
            raise

    def _loaded(self) -> int:
        """Sends the settings; returns the port once the model is loaded."""
        slots = 1 if self._model.exact else self._model.slots
        settings = {
            "path": os.path.abspath(self._model.path),
            "context": self._model.context * slots,
            "slots": slots,
            "threads": self._model.threads,
            "batch": _BATCH,
            "key": self._key,
        }
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: there is no address then
            stdin.write(json.dumps(settings).encode() + b"\n")
            stdin.flush()
        found = urlsplit(_line(stdout.fileno(), _DEADLINE).strip()).port
        if found is None:
            self._process.kill()
            code = self._process.wait()
            raise ModelError(
                f"{self._model!r} cannot be loaded: its process ended with {code}{self._said()}"
            )
        return found

    def _said(self) -> str:
        """The end of what the process wrote to its standard error."""
        self._log.seek(0)
        text = self._log.read().decode("utf-8", "replace").strip()
        return f": …{text[-_SHOWN:]}" if len(text) > _SHOWN else f": {text}" if text else ""

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process.kill()
        self._process.wait()
        self._log.close()

    # Questions.

    def answer(self, question: Question, on_text: Callable[[str], None] | None = None) -> Answer:
        settings = question.settings
        pieces = list(self._pieces(question))
        count = sum(map(len, pieces))
        self._check_context(count, settings.max_tokens)
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
        found, computed = self._evaluate(pieces, body, on_text)
        made = int(found["tokens_predicted"])
        finish = "length" if found.get("stop_type") == "limit" else "stop"
        self._count(count, computed, made)
        return Answer(found["content"], finish, count, made, computed)

    def score(self, prompt: str, answer: str) -> float:
        """The log-likelihood of an answer after a prompt, per token. Each token is forced, and the
        model says how likely it was; so it is evaluated as it would be if it had been generated."""
        pieces = list(_cut(self._tokens(prompt, is_first=True)))
        forced = self._tokens(answer, is_first=not pieces)
        if not pieces or not forced:
            raise QuestionError("a score is about a prompt and an answer that are not empty")
        self._check_context(sum(map(len, pieces)), len(forced))
        total, computed = 0.0, 0
        for token in forced:
            body = {
                "n_predict": 1,
                "n_probs": 1,
                "temperature": 0.0,
                "logit_bias": [[token, _FORCED]],
                "return_tokens": True,
            }
            found, count = self._evaluate(pieces, body)
            said = found["completion_probabilities"][0]
            if said["id"] != token:
                raise ModelError(f"{self._model!r} cannot score: it says {said['token']!r}")
            total, computed = total + float(said["logprob"]), computed + count
            self._cached = self._cached[:-1]  # what was forced has not been evaluated
            pieces = [*pieces, [token]]
        self._count(sum(map(len, pieces)), computed, 0)
        return total / len(forced)

    def _check_context(self, prompt: int, answer: int) -> None:
        if prompt + answer > self._model.context:
            raise QuestionError(
                f"the prompt has {prompt} tokens, which with max_tokens={answer} is more than the "
                f"context of {self._model.context}"
            )

    def _count(self, prompt: int, computed: int, made: int) -> None:
        self._meter.add(calls=1, prompt_tokens=prompt, answer_tokens=made, computed_tokens=computed)

    # Evaluation.

    def _evaluate(
        self,
        pieces: list[list[int]],
        body: dict[str, Any],
        on_text: Callable[[str], None] | None = None,
    ) -> tuple[dict[str, Any], int]:
        """Evaluates each piece by itself, the last one with this request; returns its reply, and
        the tokens that were computed.

        The server continues wherever the cache and the prompt part, which may lie within a piece.
        A token that does not follow there makes them part at the cut."""
        tokens = [token for piece in pieces for token in piece]
        tenant = current().name
        if not self._model.exact:
            found = self._complete(tokens, body, from_cache=not tenant, on_text=on_text)
            return found, int(found.get("timings", {}).get("prompt_n", len(tokens)))
        ends = list(itertools.accumulate(map(len, pieces)))
        start, shared = self._shared(tokens, ends) if tenant == self._tenant else (0, 0)
        self._tenant = tenant
        self._cached, self._cuts = [], []  # until all of this has gone well
        computed = len(tokens) - start
        if 0 < start < shared:
            other = 1 if tokens[start] != 1 else 2
            self._complete([*tokens[:start], other], {"n_predict": 0})
            computed += 1
        for end in (end for end in ends[:-1] if end > start):
            self._complete(tokens[:end], {"n_predict": 0}, from_cache=start > 0)
            start = end
        found = self._complete(tokens, body, from_cache=start > 0, on_text=on_text)
        self._cached, self._cuts = [*tokens, *found["tokens"]], ends
        return found, computed

    def _shared(self, tokens: list[int], ends: list[int]) -> tuple[int, int]:
        """The last cut up to which the cache was evaluated in the same pieces, and the number of
        leading tokens that the cache and a prompt share."""
        shared = _common(tokens, self._cached)
        same = itertools.takewhile(
            lambda pair: pair[0] == pair[1] <= shared, zip(ends[:-1], self._cuts, strict=False)
        )
        return max((end for end, _ in same), default=0), shared

    def _complete(
        self,
        tokens: list[int],
        body: dict[str, Any],
        *,
        from_cache: bool = True,
        on_text: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        fixed: dict[str, Any] = {"prompt": tokens, "cache_prompt": from_cache}
        if self._model.exact:
            fixed["id_slot"] = 0
        if on_text is None:
            return self._post("/completion", {**body, **fixed})
        return self._streamed({**body, **fixed, "stream": True}, on_text)

    # Prompts as tokens.

    def _pieces(self, question: Question) -> Iterator[list[int]]:
        """The tokens of the prompt, cut where its fields begin and end. Only the model's own chat
        template may hold special tokens: in what a row inserts, they are text."""
        plain = len(question.messages) == 1 and not question.messages[0].role
        texts = [(part, False) for part in question.messages[0].parts] if plain else None
        found = False
        for text, special in texts or self._chat(question.messages):
            for piece in _cut(self._tokens(text, is_first=plain and not found, special=special)):
                found = True
                yield piece
        if not found:
            raise QuestionError("the prompt is empty")

    def _tokens(self, text: str, *, is_first: bool, special: bool = False) -> list[int]:
        if not text:
            return []
        body = {"content": text, "add_special": is_first, "parse_special": special}
        tokens: list[int] = self._post("/tokenize", body)["tokens"]
        return tokens

    def _chat(self, messages: tuple[Message, ...]) -> Iterator[tuple[str, bool]]:
        """The texts of a chat by the model's own template, and whether each is of the template."""
        parts = [part for message in messages for part in message.parts]
        marks = [secrets.token_hex(8) for _ in parts]
        at = iter(marks)
        said = [{"role": m.role, "content": "".join(next(at) for _ in m.parts)} for m in messages]
        rest: str = self._post("/apply-template", {"messages": said})["prompt"]
        places = [rest.find(mark) for mark in marks]
        whole = all(rest.count(mark) == 1 for mark in marks) and places == sorted(places)
        if not whole:
            roles = ", ".join(message.role for message in messages)
            raise QuestionError(
                f"the chat template of {self._model!r} leaves out, repeats or moves a message; the "
                f"prompt has {roles}. Say all of it as the user"
            )
        for mark, part in zip(marks, parts, strict=True):
            before, _, rest = rest.partition(mark)
            yield before, True
            yield part, False
        yield rest, True

    # Requests. Each has a connection of its own: the server closes those that are idle.

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        with self._replying(path, body) as reply:
            return self._decoded(reply.read())

    def _streamed(self, body: dict[str, Any], on_text: Callable[[str], None]) -> dict[str, Any]:
        """The reply to a request whose text is handed over as it comes."""
        tokens: list[int] = []
        text, found, has_begun = "", {}, False
        try:
            with self._replying("/completion", body) as reply:
                for line in reply:
                    if not line.startswith(b"data: "):
                        continue
                    found = self._decoded(line.removeprefix(b"data: "))
                    tokens += found.get("tokens") or []
                    if piece := found.get("content", ""):
                        text, has_begun = text + piece, True
                        on_text(piece)
        except ChildEnded as error:
            error.has_begun = has_begun
            raise
        return {**found, "content": text, "tokens": tokens}

    @contextlib.contextmanager
    def _replying(self, path: str, body: dict[str, Any]) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_DEADLINE)
        headers = {
            "content-type": "application/json",
            "authorization": f"Bearer {self._key}",
            "connection": "close",
        }
        try:
            connection.request("POST", path, json.dumps(body), headers)
            reply = connection.getresponse()
            if reply.status != 200:
                said = reply.read(_SHOWN).decode("utf-8", "replace")
                kind = QuestionError if reply.status < 500 else ModelError
                raise kind(f"{self._model!r} refused the question ({reply.status}): {said}")
            yield reply
        except (OSError, http.client.HTTPException) as error:
            ended = self._process.poll()
            why = f"has ended with {ended}" if ended is not None else f"does not answer: {error!r}"
            raise ChildEnded(f"{self._model!r} {why}{self._said()}") from error
        finally:
            connection.close()

    def _decoded(self, data: bytes) -> dict[str, Any]:
        try:
            found = json.loads(data)
        except ValueError as error:
            raise ModelError(f"{self._model!r} sent a reply that cannot be read") from error
        if not isinstance(found, dict) or "error" in found:
            raise ModelError(f"{self._model!r} failed: {data[:_SHOWN]!r}")
        return found


def _line(file: int, seconds: float) -> str:
    """The first line that comes from a pipe; what there is of it after so many seconds."""
    until, data = time.monotonic() + seconds, b""
    poll = select.poll()  # select() knows no descriptors above 1,023
    poll.register(file, select.POLLIN)
    while not data.endswith(b"\n") and (left := until - time.monotonic()) > 0:
        if not poll.poll(math.ceil(1000 * left)):
            break
        byte = os.read(file, 1)
        if not byte:
            break
        data += byte
    return data.decode("utf-8", "replace")


def _cut(tokens: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(tokens), _BATCH):
        yield tokens[start : start + _BATCH]


def _common(one: list[int], other: list[int]) -> int:
    """How many leading tokens two lists share."""
    count = min(len(one), len(other))
    return next((i for i in range(count) if one[i] != other[i]), count)
