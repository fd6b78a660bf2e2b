"""Any endpoint that speaks OpenAI's protocol: chat completions and embeddings."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from silva.errors import PlanError
from silva.plan.arguments import amount, duration, explains_verbs, natural, positive, text
from silva.serve.models.errors import ModelError
from silva.serve.models.model import Model, model_or_none, price_of

if TYPE_CHECKING:
    from silva.serve.models.endpoint.calls import OpenEndpoint

TEXTS_AT_ONCE = 64
"""Texts in one request for embeddings; endpoints take at least a hundred."""
_DAY = 86_400.0
"""Seconds for which answers are kept of a model whose revision nobody has named."""
_ROUNDS = 4
"""Rounds of calls in a block of rows: the slowest call of a round then holds up few others."""


class EndpointError(ModelError):
    """An endpoint did not answer, or answered what cannot be used. What it said stands in the
    notes of the error, without secrets."""

    def __init__(self, message: str, *, status: int | None = None, was_sent: bool = True) -> None:
        super().__init__(message)
        self.status = status
        self.may_have_cost = was_sent and status is None
        """Whether the call was sent and not answered, so that it may have to be paid."""


@explains_verbs
@dataclass(frozen=True)
class Endpoint(Model):
    """A model behind an endpoint: `Endpoint("http://localhost:8080/v1", "llama-3")`.

    Answers are kept under the endpoint, the model and `revision`. The same name may be another
    model tomorrow: without a revision, answers are kept for a day. A remote answer is recorded, not
    recomputable: another call may give another text.

    `key` is the name of the environment variable that holds the API key, never the key itself.
    `timeout` is the seconds of one attempt, `deadline` those of a call with its retries, and
    `keep_for` those for which answers are kept. `price=(0.15, 0.6)` is the money per million tokens
    of prompts and of answers, and `budget` what all calls of a process may cost. `fallback` is the
    model that is asked where this one fails, and `concurrency` is the number of calls at once.
    """

    url: str
    """The base address, up to and with `/v1`."""
    name: str
    """The model, as the endpoint calls it."""
    key: str | None = None
    """The name of the environment variable that holds the API key; the key itself is never part of
    a plan."""
    revision: str | None = None
    timeout: float = 60.0
    """Seconds that one attempt may take."""
    deadline: float = 300.0
    """Seconds that a call may take from when it is its turn, retries and pauses included. An
    endpoint that has failed for so long is no longer waited for."""
    concurrency: int = 16
    """Calls at once."""
    keep_for: float | None = None
    """Seconds for which answers are kept; None for good with a revision, and for a day without."""
    price: tuple[float, float] = (0.0, 0.0)
    """Money per million tokens of prompts and of answers."""
    budget: float | None = None
    """What its calls may cost in all, as long as it is open in a process. A call that might cost
    more than is left is not made: a prompt counts with its bytes until its tokens are known."""
    fallback: Model | None = None
    """The model that is asked where this one fails. Its answers are kept as its own."""

    def __post_init__(self) -> None:
        parts = _address(text("Endpoint(url=…)", self.url))
        text("Endpoint(name=…)", self.name)
        if parts.username or parts.password or parts.query:
            raise PlanError(
                "the address of an endpoint must hold no secrets: set key= to the name of the "
                "environment variable that holds the API key"
            )
        if self.key is not None and not (isinstance(self.key, str) and self.key.isidentifier()):
            raise PlanError("key= is the name of an environment variable, never the key itself")
        if self.revision is not None:
            text("Endpoint(revision=…)", self.revision)
        for name in ("timeout", "deadline"):
            duration(f"Endpoint({name}=…)", getattr(self, name), finite=True)
        natural("Endpoint(concurrency=…)", self.concurrency, least=1)
        if self.keep_for is not None:
            amount("Endpoint(keep_for=…)", self.keep_for, finite=False)
        self.__dict__["price"] = price_of("Endpoint(price=…)", self.price)
        if self.budget is not None:
            positive("Endpoint(budget=…)", self.budget)
            if not any(self.price):
                raise PlanError("Endpoint(budget=…) needs price=(…, …): what a call costs")
        model_or_none("Endpoint(fallback=…)", self.fallback)

    def __repr__(self) -> str:
        return f"{self.name} at {self.url}"

    @property
    def identity(self) -> str:
        return "\0".join(("endpoint", self.url.rstrip("/"), self.name, self.revision or ""))

    @property
    def connection(self) -> Hashable:
        limits = (self.timeout, self.deadline, self.concurrency, self.price, self.budget)
        return (self.identity, self.key, *limits, self.fallback is None)

    @property
    def lifetime(self) -> float | None:  # type: ignore[override]
        return self.keep_for if self.keep_for is not None or self.revision is not None else _DAY

    @property
    def promise(self) -> str:
        return f"answers of {self!r} are recorded, not recomputable: another call may differ"

    def rows_at_once(self, kind: str) -> int:
        return self.concurrency * (TEXTS_AT_ONCE if kind == "embed" else _ROUNDS)

    def cheap_rows(self, kind: str) -> int:
        return TEXTS_AT_ONCE if kind == "embed" else self.concurrency

    def open(self) -> OpenEndpoint:
        from silva.serve.models.endpoint.calls import OpenEndpoint

        return OpenEndpoint(self)


def _address(url: str) -> SplitResult:
    """The parts of an address that can be asked."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    except ValueError:  # a port or a host that is none
        pass
    raise PlanError(f"an endpoint has an address such as http://host:8080/v1, not {url!r}")
