"""`Model`: which model it is, how it is opened, and the expressions that are written with it."""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol, Self

import msgspec
import numpy as np

from silva.errors import ColumnError, PlanError
from silva.operators.arguments import column_name
from silva.plan.arguments import amount, duration, natural, number, several, shown, text
from silva.plan.class_tags import tagged
from silva.plan.expr import Call, Col, Expr
from silva.plan.fingerprint import digest
from silva.plan.function import describe
from silva.plan.open import chooses
from silva.serve.models.ledger import RowKey
from silva.serve.models.prompt import Prompt, Rendered
from silva.serve.models.schema import Schema
from silva.serve.models.usage import Usage
from silva.serve.tenant import current

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
"""A number of tokens. A negative one would pay back what others have cost."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model generated."""

    text: str
    finish: str = "stop"
    """`stop`, or `length` if it reached `max_tokens`."""
    prompt_tokens: Count = 0
    answer_tokens: Count = 0
    computed_tokens: Count | None = None
    """The tokens of the prompt that were computed for it, where others were shared; None where that
    is not known."""


@tagged("Settings", "max_tokens temperature top_p stop schema? repairs")
@dataclass(frozen=True)
class Settings:
    """How an answer is generated."""

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    schema: Schema | None = None
    repairs: int = 1
    """How often a model is asked again, with the error, for an answer that fits the schema."""


@dataclass(frozen=True)
class Question:
    """One thing to generate."""

    messages: Rendered
    settings: Settings
    seed: int | None = None
    """The seed of a sampled answer."""
    row: RowKey = field(default=(0, 0), compare=False)
    """Whose question it is, for the costs of rows in a loop."""

    def key(self, *, by_parts: bool) -> bytes:
        """What the answer depends on, beside the model; `by_parts`: also on where fields begin and
        end."""
        return msgspec.msgpack.encode(
            [
                [
                    [one.role, [part for part in one.parts if part] if by_parts else one.text]
                    for one in self.messages
                ],
                [self.settings.max_tokens, self.settings.temperature, self.settings.top_p],
                self.settings.stop,
                None if self.settings.schema is None else self.settings.schema.fields,
                self.settings.repairs,
                self.seed,
            ]
        )


class OpenModel(Protocol):
    """A model that is ready to answer. Methods take a batch and return a value or an error for each
    item, in order. As many threads may call them at once as the model's `concurrency` says.

    A model may also have `arriving(kind, items)`, a generator that yields answers as they arrive,
    as dicts from the place of an item to its answer or error: an answer is then kept at once, and
    not when all of them are there. `kind` is `"embed"`, `"generate"` or `"score"`.

    A model may have `stream(question, on_text)`, which calls `on_text` with each piece of text as
    it is generated, and returns the whole answer or an error.
    """

    def embed(self, texts: list[str], /) -> Sequence[np.ndarray | Exception]: ...
    def generate(self, questions: list[Question], /) -> Sequence[Answer | Exception]: ...
    def score(self, pairs: list[tuple[str, str]], /) -> Sequence[float | Exception]: ...
    def close(self) -> None: ...


class Model(ABC):
    """A model as a value. Subclasses are frozen dataclasses: they say what the model is and how it
    is opened, once in each process."""

    lifetime: ClassVar[float | None] = None
    """Seconds for which an answer is kept; None for good, 0 not at all."""
    patience: ClassVar[float] = 600.0
    """Seconds without any answer after which those that another thread has asked for are no longer
    waited for."""
    cuts_matter: ClassVar[bool] = False
    """Whether an answer depends on where in a prompt the fields begin and end."""
    reads_pairs: ClassVar[bool] = False
    """Whether `rerank` shows it a question and a passage as they are, and not a passage with the
    likelihood of the question after it."""
    concurrency: int = 1
    """Threads that may call the open model at once."""
    fallback: Model | None = None
    """The model that is asked where this one fails."""
    normalize: Callable[[str], str] | None = None
    """What is made of each text before the model is asked: see `cache`."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """All that its answers depend on, beside the question; never a secret."""

    @property
    def connection(self) -> Hashable:
        """What two models have in common that can share one open model: by default, their
        identity."""
        return self.identity

    @property
    def promise(self) -> str | None:
        """What `explain()` says of answers that are no function of their question alone; None if
        they are."""
        return None

    def rows_at_once(self, kind: str) -> int:
        """Rows that it should get at once where many wait: enough to fill its batches, and those
        that share the beginning of a prompt. `kind` is `"embed"`, `"generate"` or `"score"`."""
        return 64

    def cheap_rows(self, kind: str) -> int:
        """Rows that take it little longer together than one alone, by how it works: the first batch
        of a served step may have as many, before anything was measured."""
        return 1

    @property
    def prompts_at_once(self) -> int | None:
        """Prompts that it answers at the same time, if each may begin with what it still holds of
        one before: served requests then come that many at once, those that begin alike one after
        another. None for a model that holds nothing, or gains from large batches."""
        return None

    @abstractmethod
    def open(self) -> OpenModel:
        """Loads it, or connects to it."""

    @property
    def usage(self) -> Usage | None:
        """What it was asked in this process so far; None if it is not open, or does not count."""
        running = self.__dict__.get("_running")
        return None if running is None else running.usage

    def keep(self, running: object) -> None:
        """Keeps what runs this model alive as long as the model is."""
        self.__dict__["_running"] = running

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_running"}

    def cache(self, *, normalize: Callable[[str], str]) -> Self:
        """The same model, which is asked for what `normalize` makes of each text that a row brings:
        `model.cache(normalize=str.casefold)`.

        Texts that become equal are one question with one answer. The model itself gets the
        normalised text, so an answer depends on that alone, and not on who asked first. What a
        template says around its fields stays as it is.
        """
        if not callable(normalize):
            raise PlanError(f"cache(normalize=…) takes a function of a text, not {normalize!r}")
        made = copy.copy(self)
        made.__dict__["normalize"] = normalize
        return made

    def normal(self, text: str) -> str:
        """A text as the model is asked for it."""
        if self.normalize is None:
            return text
        found = self.normalize(text)
        if not isinstance(found, str):
            raise ColumnError(f"cache(normalize=…) returned {type(found).__name__}, not text")
        return found

    @chooses
    def embed(self, column: str) -> Expr:
        """The vector of a text: `derive(vector=model.embed("text"))`."""
        return Expr(
            Call("model.embed", (Col(column_name(column)),), (("model", ModelRef.of(self)),))
        )

    @chooses
    def generate(
        self,
        prompt: str | None = None,
        *,
        messages: Any = None,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        stop: str | Sequence[str] = (),
        schema: Any = None,
        repairs: int = 1,
        show: Any = None,
    ) -> Expr:
        """What the model answers to a prompt, as text.

        The template reads the columns that it names in braces: `"Answer from {hits}: {question}"`.
        A list of hits, or of texts, is numbered in its order; `show=` renders other values.
        `messages=[("system", "…"), ("user", "{question}")]` is a prompt with roles.

        `schema={"name": str, "age": int}` asks for JSON with these keys, each a column:
        `derive(model.generate(…, schema=…), into=("name", "age"))`. An answer that does not fit is
        asked for again, `repairs` times, with the error; then the row fails.

        With a `temperature` above 0 the answer is sampled, by a seed of the row.
        """
        made = Prompt.of(prompt, messages, show)
        settings = Settings(
            natural("generate(max_tokens=…)", max_tokens, least=1),
            _share("temperature", temperature, 2.0),
            _share("top_p", top_p, 1.0),
            _texts(stop),
            Schema.of(schema),
            natural("generate(repairs=…)", repairs),
        )
        fields = made.fields()
        params: tuple[tuple[str, Any], ...] = (
            ("model", ModelRef.of(self)),
            ("prompt", made),
            ("settings", settings),
        )
        if settings.schema is not None and len(settings.schema.names) > 1:
            params = (*params, ("carries", settings.schema.names[1:]))
        op = "model.sample" if settings.temperature else "model.generate"
        return Expr(Call(op, tuple(map(Col, fields)), params))

    @chooses
    def score(self, prompt: str, answer: str, *, show: Any = None) -> Expr:
        """The log-likelihood of an answer after a prompt, per token; both are templates."""
        made = Prompt.of(None, [("user", prompt), ("assistant", answer)], show)
        params = (("model", ModelRef.of(self)), ("prompt", made))
        return Expr(Call("model.score", tuple(map(Col, made.fields())), params))


@tagged("Model", "identity -")
@dataclass(frozen=True)
class ModelRef:
    """A model as a parameter of an operator: compared and fingerprinted by its identity, and by
    those of its fallbacks."""

    identity: str
    model: Model

    @staticmethod
    def of(model: Model) -> ModelRef:
        names: list[str] = []
        one: Model | None = model
        chain: list[Model] = []
        while one is not None:
            _check(one)
            if any(one is before for before in chain):
                raise PlanError(f"{one!r} is its own fallback: name another model, or none")
            chain.append(one)
            names.append(one.identity)
            if one.normalize is not None:
                names[-1] += f"\0{digest(one.normalize)}"
            one = one.fallback
        return ModelRef("\0fallback\0".join(names), model)

    @property
    def promise(self) -> str | None:
        """What `explain()` says of the model, and of each fallback."""
        told, one = list[str](), self.model
        while True:
            told += [one.promise] if one.promise else []
            if one.fallback is None:
                return ". ".join(told) or None
            one = one.fallback

    @property
    def grouping(self) -> str | None:
        """What `explain()` says of the order in which the model is asked."""
        if self.model.prompts_at_once is None:
            return None
        told = (
            f"{self.model!r}: prompts that begin alike are asked one after another, so that it "
            "reads what they share once; offline in the order of their texts, served as long as "
            "those that are overtaken stay in time"
        )
        used = self.model.usage
        if used is None or not used.prompt_tokens:
            return told
        return (
            f"{told}. So far it has read {used.computed_tokens:,} of {used.prompt_tokens:,} tokens"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelRef) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        normalize = self.model.normalize
        cached = "" if normalize is None else f".cache(normalize={describe(normalize)})"
        return f"{self.model!r}{cached}"


def model_or_none(what: str, value: Any) -> Model | None:
    """An argument that is a model, or left out."""
    if value is not None and not isinstance(value, Model):
        raise PlanError(f"{what} takes a model such as sv.models.Endpoint(…), not {shown(value)}")
    return value


def price_of(what: str, value: Any) -> tuple[float, float]:
    """Money per million tokens of prompts and of answers. With anything else, no budget and no
    bound of a loop would ever be reached."""
    found = several(what, value)
    if len(found) != 2:
        raise PlanError(
            f"{what} takes two numbers, for prompts and for answers, not {shown(value)}"
        )
    return amount(what, found[0]), amount(what, found[1])


def _check(model: Model) -> None:
    """Refuses a model that says of itself what cannot be: its class may be the user's own."""
    name = type(model).__name__
    text(f"{name}.identity: an own model", model.identity)
    natural(f"{name}.concurrency", model.concurrency, least=1)
    duration(f"{name}.patience", model.patience, finite=True)
    if model.lifetime is not None:
        amount(f"{name}.lifetime", model.lifetime, finite=False)
    if hasattr(model, "price"):
        price_of(f"{name}.price", model.price)
    model_or_none(f"{name}.fallback", model.fallback)


def keys_of(model: Model, op: str, questions: Sequence[bytes]) -> list[bytes]:
    """The digests under which answers are kept for the tenant in whose name this runs."""
    shared = hashlib.blake2b(digest_size=32)
    for part in (model.identity.encode(), op.encode(), current().name.encode()):
        shared.update(len(part).to_bytes(8, "little"))
        shared.update(part)
    made = []
    for question in questions:
        one = shared.copy()
        one.update(len(question).to_bytes(8, "little"))
        one.update(question)
        made.append(one.digest())
    return made


def _share(name: str, value: Any, most: float) -> float:
    found = number(f"generate({name}=…)", value)
    if not 0 <= found <= most:
        raise PlanError(f"generate({name}=…) is between 0 and {most:g}, not {value!r}")
    return found


def _texts(stop: Any) -> tuple[str, ...]:
    found = (stop,) if isinstance(stop, str) else several("generate(stop=…)", stop)
    if not all(isinstance(one, str) and one for one in found):
        raise PlanError(f"generate(stop=…) takes texts that are not empty, not {stop!r}")
    return found
