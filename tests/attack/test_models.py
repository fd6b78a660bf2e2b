"""Models of the user's own that return what is no answer, raise, or change what they returned."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.serve.models.model import Answer, Model

SILENT = "Never hangs, never shortens an epoch, never drops a row silently"
_COUNT = 4
_ROWS = sv.from_columns({"q": [str(n) for n in range(_COUNT)]})


@pytest.fixture(autouse=True)
def own_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILVA_ANSWERS", str(tmp_path / "answers"))


@dataclass(frozen=True, eq=False)
class Own(Model):
    """A model whose answers are those of a function. Two of one name share what is kept, and no
    open model."""

    name: str
    methods: Mapping[str, Callable[..., Any]]

    @property
    def identity(self) -> str:
        return self.name

    @property
    def connection(self) -> Hashable:
        return id(self.methods)

    def __repr__(self) -> str:
        return f"own {self.name}"

    def open(self) -> Any:
        return type("Opened", (), {"close": lambda _: None, **_static(self.methods)})()


def _static(methods: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    return {name: staticmethod(method) for name, method in methods.items()}


def step(model: Model, kind: str) -> sv.Expr:
    if kind == "embed":
        return model.embed("q")
    return model.generate("{q}") if kind == "generate" else model.score("{q}", "yes")


def under_skip(model: Model, kind: str) -> tuple[list[Any], int, list[BaseException | None]]:
    """The answers, how many rows failed, and why."""
    with _ROWS.derive(x=step(model, kind)).loader(workers=0, on_error=sv.Skip()) as loader:
        rows = [row["x"] for row in loader]
        return rows, len(loader.failures), [one.cause for one in loader.failures]


def _raises(error: BaseException) -> Callable[[Any], Any]:
    def ask(items: Any) -> Any:
        raise error

    return ask


GOOD: dict[str, Callable[[Any], Any]] = {
    "generate": lambda items: [Answer("fine")] * len(items),
    "embed": lambda items: [np.ones(3, np.float32)] * len(items),
    "score": lambda items: [0.5] * len(items),
}
ANSWERS: dict[str, list[Any]] = {
    "generate": [
        "text", 5, None, {"text": "a"}, Answer(5), Answer("\ud800"), Answer("a", finish=None),  # type: ignore[arg-type]
        Answer("a", prompt_tokens=-1), Answer("a", answer_tokens=-(1 << 40)),
        Answer("a", prompt_tokens=math.nan), Answer("a", answer_tokens=1 << 80),  # type: ignore[arg-type]
        ValueError("no"), SystemExit("no"), KeyboardInterrupt("no"),
    ],
    "embed": [
        None, 1.0, "text", [], np.empty(0), np.ones((2, 2)), np.float32(1), [1.0, [2.0]],
        ["1", "2"],
        np.array([1, 2], object), np.array([1, None], object), np.ones(2) * 1j, [True, False],
        np.array(["2020-01-01"], "datetime64[D]"), np.full(2, np.nan), [1.0, math.inf],
        np.full(2, 1e200), np.full(2, 1e-200), [10**400, 1], ValueError("no"), b"abcd",
    ],
    "score": [
        None, "0.5", [0.5], np.ones(2), math.nan, np.float64("nan"), True, 1j, 10**400,
        np.complex64(1), np.datetime64("2020-01-01"), ValueError("no"),
    ],
}  # fmt: skip
"""What is no answer to one question."""
RETURNED: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda items: None,
    "no list": lambda items: 5,
    "text": lambda items: "x" * len(items),
    "bytes": lambda items: b"x" * len(items),
    "a dict": lambda items: dict(enumerate(items)),
    "a generator": lambda items: (Answer("a") for _ in items),
    "an array of no dimension": lambda items: np.array(1.0),
    "too few": lambda items: [Answer("a")] * (len(items) - 1),
    "too many": lambda items: [Answer("a")] * (len(items) + 1),
    "an error": _raises(ValueError("no")),
    "an end of the program": _raises(SystemExit(3)),
    "an end of a generator": _raises(StopIteration()),
}
"""What is no list of answers."""
ARRIVING: dict[str, Callable[[str, Any], Any]] = {
    "nothing": lambda kind, items: None,
    "lists": lambda kind, items: iter([[Answer("a")] * len(items)]),
    "no answer": lambda kind, items: iter([{}]),
    "places that were not asked": lambda kind, items: iter([{len(items): Answer("a")}]),
    "negative places": lambda kind, items: iter([{-1: Answer("a")}]),
    "places that are text": lambda kind, items: iter([{"0": Answer("a")}]),
    "places that cannot be hashed": lambda kind, items: iter([[[0]]]),
    "an error": lambda kind, items: _raises(ValueError("no"))(items),
}


def _is_named(causes: list[BaseException | None], model: Model) -> bool:
    """Whether all errors are the model's, and say which model it is."""
    return bool(causes) and all(
        isinstance(one, sv.models.ModelError) and repr(model) in str(one) for one in causes
    )


@pytest.mark.attacks(SILENT)
@pytest.mark.parametrize(
    ("kind", "number"), [(kind, n) for kind, all_ in ANSWERS.items() for n in range(len(all_))]
)
def test_what_is_no_answer_is_the_model_s_error_and_is_not_kept(kind: str, number: int) -> None:
    wrong = ANSWERS[kind][number]
    bad = Own("m", {kind: lambda items: [wrong for _ in items]})
    rows, failed, causes = under_skip(bad, kind)
    assert (rows, failed) == ([], _COUNT)
    assert _is_named(causes, bad)
    rows, failed, _ = under_skip(Own("m", {kind: GOOD[kind]}), kind)
    assert (len(rows), failed) == (_COUNT, 0)


@pytest.mark.attacks(SILENT)
@pytest.mark.parametrize("name", RETURNED)
def test_what_is_no_list_of_answers_is_the_model_s_error(name: str) -> None:
    bad = Own("m", {"generate": RETURNED[name]})
    rows, failed, causes = under_skip(bad, "generate")
    assert (rows, failed) == ([], _COUNT)
    assert _is_named(causes, bad)
    assert under_skip(Own("m", GOOD), "generate")[1] == 0


@pytest.mark.attacks(SILENT)
@pytest.mark.parametrize("name", ARRIVING)
def test_answers_that_arrive_at_other_places_are_the_model_s_error(name: str) -> None:
    bad = Own("m", {"arriving": ARRIVING[name]})
    rows, failed, causes = under_skip(bad, "generate")
    assert (rows, failed) == ([], _COUNT)
    assert _is_named(causes, bad)
    assert under_skip(Own("m", GOOD), "generate")[1] == 0


@pytest.mark.attacks(SILENT)
def test_answers_that_do_not_arrive_cost_the_others_nothing() -> None:
    def arriving(kind: str, items: Any) -> Iterator[Any]:
        yield {0: Answer("first")}
        yield {0: Answer("again")}

    rows, failed, causes = under_skip(model := Own("m", {"arriving": arriving}), "generate")
    assert (rows, failed) == (["first"], _COUNT - 1)
    assert _is_named(causes, model)


@pytest.mark.attacks(SILENT)
def test_a_model_without_the_method_that_it_is_asked_by_is_named() -> None:
    assert _is_named(under_skip(model := Own("m", {}), "score")[2], model)


@pytest.mark.attacks(SILENT)
def test_a_vector_of_another_width_is_not_kept() -> None:
    ragged = Own("m", {"embed": lambda items: [np.ones(2 if t == "1" else 3) for t in items]})
    assert [len(one) for one in under_skip(ragged, "embed")[0]] == [3, 3, 3]
    assert [len(one) for one in under_skip(Own("m", GOOD), "embed")[0]] == [3] * _COUNT


@pytest.mark.attacks(SILENT)
def test_a_model_may_use_its_buffer_again() -> None:
    buffer = np.zeros(1, np.float32)

    def arriving(kind: str, items: Any) -> Iterator[Any]:
        for place, text in enumerate(items):
            buffer[:] = float(text)
            yield {place: buffer}

    rows, _, _ = under_skip(Own("m", {"arriving": arriving}), "embed")
    assert [row.tolist() for row in rows] == [[n] for n in range(_COUNT)]


@pytest.mark.attacks(SILENT)
def test_an_answer_is_the_same_when_it_is_new_and_when_it_was_kept() -> None:
    made = Own("m", {"embed": lambda items: [[0.1, 1 / 3]] * len(items)})
    new, kept = (under_skip(made, "embed")[0] for _ in range(2))
    assert [(row.dtype, row.tobytes()) for row in new] == [
        (row.dtype, row.tobytes()) for row in kept
    ]


@pytest.mark.attacks(SILENT)
def test_a_model_may_change_the_list_that_it_is_given() -> None:
    def score(pairs: list[Any]) -> list[float]:
        return [float(pairs.pop(0)[0]) for _ in range(len(pairs))]

    assert under_skip(Own("m", {"score": score}), "score")[0] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.attacks(SILENT)
def test_a_fault_that_has_passed_costs_no_row_its_answer() -> None:
    calls: list[int] = []

    def generate(questions: Any) -> Any:
        calls.append(len(questions))
        if len(calls) == 1:
            raise ConnectionError("for a moment")
        return [Answer("fine")] * len(questions)

    made = _ROWS.derive(x=Own("m", {"generate": generate}).generate("{q}"))
    assert [row["x"] for row in made.loader(workers=0)] == ["fine"] * _COUNT
    assert calls == [_COUNT, 1, 1, 1, 1]


@pytest.mark.attacks(SILENT)
def test_a_row_that_was_skipped_is_counted_and_asked_again() -> None:
    def fails_on_one(questions: Any) -> Any:
        texts = [one.messages[0].text for one in questions]
        if "1" in texts:
            raise ConnectionError("for now")
        return [Answer(text) for text in texts]

    rows, failed, causes = under_skip(bad := Own("m", {"generate": fails_on_one}), "generate")
    assert (rows, failed) == (["0", "2", "3"], 1)
    assert _is_named(causes, bad)
    rows, failed, _ = under_skip(Own("m", GOOD), "generate")
    assert (rows, failed) == (["0", "fine", "2", "3"], 0)


@pytest.mark.attacks(SILENT)
@pytest.mark.parametrize("error", [SystemExit(3), ValueError("no"), None])
def test_a_model_that_cannot_be_opened_is_named(error: BaseException | None) -> None:
    class Closed(Own):
        def open(self) -> Any:
            if error is not None:
                raise error
            return object()

    with pytest.raises(sv.RowError, match="own m cannot be opened"):
        list(_ROWS.derive(x=Closed("m", {}).generate("{q}")).loader(workers=0))
