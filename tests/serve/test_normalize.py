"""`model.cache(normalize=…)`: equal after the user's function is equal, in every order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import silva as sv
from silva.serve.models.model import Answer, Model, Question


@dataclass(frozen=True)
class Echo(Model):
    """Answers with the question, and notes what it was asked."""

    asked: ClassVar[list[str]] = []

    @property
    def identity(self) -> str:
        return "echo"

    def open(self) -> Any:
        return _Echo()


class _Echo:
    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        texts = [question.messages[-1].text for question in questions]
        Echo.asked += texts
        return [Answer(text) for text in texts]

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        Echo.asked += texts
        return [np.full(2, len(text), np.float32) for text in texts]

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        Echo.asked += [f"{prompt}|{answer}" for prompt, answer in pairs]
        return [float(len(answer)) for _, answer in pairs]

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    Echo.asked.clear()


def short(text: str) -> str:
    return " ".join(text.casefold().split())


def model() -> Model:
    return Echo().cache(normalize=short)


SPELLINGS = ["Where  is Rome?", "where is ROME?", "where is rome?"]


@pytest.mark.parametrize("order", [SPELLINGS, SPELLINGS[::-1]])
def test_spellings_that_become_equal_are_asked_once_in_every_order(order: list[str]) -> None:
    pipeline = sv.requests("q").derive(a=model().generate("Answer BRIEFLY: {q}"))
    answers = {row["a"] for row in pipeline.run([{"q": q} for q in order])}
    assert answers == {"Answer BRIEFLY: where is rome?"}
    assert [pipeline.ask(q=q)["a"] for q in order] == [*answers] * 3
    assert Echo.asked == ["Answer BRIEFLY: where is rome?"]


def test_the_model_without_it_shares_its_answers() -> None:
    row = {"q": "where is rome?"}
    first = sv.requests("q").derive(a=model().generate("{q}")).ask(q=SPELLINGS[0])
    assert sv.requests("q").derive(a=Echo().generate("{q}")).ask(**row)["a"] == first["a"]
    assert len(Echo.asked) == 1


def test_embeddings_and_scores_are_normalised_too() -> None:
    both = sv.requests("q").derive(v=model().embed("q"), s=model().score("{q}", "{q}"))
    made = both.run([{"q": q} for q in SPELLINGS])
    assert len({row["s"] for row in made}) == 1
    assert len({row["v"].tobytes() for row in made}) == 1
    assert sorted(Echo.asked) == ["where is rome?", "where is rome?|where is rome?"]


def test_another_function_is_another_plan() -> None:
    def pipeline(model: Model) -> sv.Pipeline:
        return sv.requests("q").derive(a=model.generate("{q}"))

    found = {pipeline(Echo().cache(normalize=one)).fingerprint for one in (short, str.strip)}
    assert len({*found, pipeline(Echo()).fingerprint}) == 3
    assert pipeline(Echo().cache(normalize=short)).fingerprint in found
    assert "cache(normalize=short" in repr(pipeline(model()))


def test_a_function_that_fails_fails_its_row_alone() -> None:
    def odd(text: str) -> Any:
        return None if "Rome" in text else text

    pipeline = sv.requests("q").derive(a=Echo().cache(normalize=odd).generate("{q}"))
    with pytest.raises(sv.RowError, match="returned NoneType, not text"):
        pipeline.ask(q=SPELLINGS[0])
    assert pipeline.ask(q="Paris")["a"] == "Paris"
    with pytest.raises(sv.PlanError, match="normalize"):
        Echo().cache(normalize="lower")  # type: ignore[arg-type]
