"""`python -m benchmarks.ceilings`: what-if on requests, against pipelines that were really changed.

First the quality: a generated set of questions that need two passages each, of which a search by
words finds the first; what-if must name the retrieval as the limit. Then the speed: ten pipelines,
each with a step that is really made twice as fast. The saved share of the latency is compared with
the predicted one, in points, and the step that saves most with the predicted bottleneck. For a
quiet machine.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

import silva as sv
from silva.serve.engine.engine import Engine
from silva.serve.models.model import Answer, Model, Question
from silva.serve.search.attribution.gains import QualityWhatIf

_RIGHT = 10
"""Points of the latency by which a prediction may be wrong."""
_WANTED = 9
"""Cases that should be right."""
_REQUESTS = 60
_DEADLINE = 600.0

# Quality.

_FIRST = ("An", "Bel", "Cor", "Dan", "El", "Fin", "Gor", "Hel", "Is", "Jon", "Kar", "Lin")
_LAST = (
    "ader",
    "bury",
    "cote",
    "dale",
    "enna",
    "fort",
    "gard",
    "holm",
    "inge",
    "kirk",
    "low",
    "mar",
)


def two_hops(seed: int = 0) -> tuple[list[str], list[dict[str, Any]]]:
    """Passages, and questions that need two of them: where somebody was born, and which river flows
    there. The second passage shares no word with the question that tells it from the others."""
    rng = np.random.default_rng(seed)
    names = [first + last for first in _FIRST for last in _LAST]
    towns = rng.permutation([f"{name}ton" for name in names]).tolist()
    rivers = rng.permutation([f"{name}a" for name in names]).tolist()
    passages, rows = [], []
    for number, name in enumerate(names):
        born = f"{name} was born in {towns[number]}, a quiet place."
        flows = f"{towns[number]} lies on the river {rivers[number]}, which flows to the sea."
        passages += [born, flows]
        question = f"Which river flows through the place where {name} was born?"
        gold = [2 * number, 2 * number + 1]
        rows.append({"question": question, "passages": gold, "gold": rivers[number]})
    return passages, rows


def read(hits: list[dict[str, Any]], question: str) -> str:
    """A reader that follows both hops if it is shown both, and stumbles over one name in six."""
    name = question.split("where ")[1].split(" was")[0]
    about = {hit["text"].split()[0]: hit["text"] for hit in hits}
    town = about.get(name, "in ,").split("in ")[-1].split(",")[0]
    river = about.get(town, "river ,").split("river ")[1].split(",")[0]
    return "" if name.startswith(_FIRST[:2]) else river


def ceilings() -> QualityWhatIf:
    """What-if on a search by words and a reader, on questions that need two passages."""
    passages, rows = two_hops()
    with tempfile.TemporaryDirectory() as folder:
        index = sv.from_columns({"text": passages}).to_index(f"{folder}/index", keyword="text")
        hits = sv.requests("question").derive(hits=index.search("question", k=3))
        gold = {"hits": "passages", "answer": "gold"}
        metric = sv.exact_match("answer", "gold")
        found: QualityWhatIf = hits.derive(answer=read).what_if(on=rows, metric=metric, gold=gold)
        return found


# Speed.


@dataclass(frozen=True)
class Waiting(Model):
    """A model that takes so many milliseconds for a question, on a server of its own."""

    milliseconds: float
    concurrency: int = 1
    lifetime: ClassVar[float | None] = 1e-9  # so that every question is asked

    @property
    def identity(self) -> str:
        return f"waiting {self.milliseconds} {self.concurrency}"

    def open(self) -> Any:
        return _Waiting(self.milliseconds)


class _Waiting:
    def __init__(self, milliseconds: float) -> None:
        self._seconds = milliseconds / 1e3

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        time.sleep(self._seconds * len(questions))
        return [Answer("done") for _ in questions]

    def close(self) -> None: ...


class Step(NamedTuple):
    """A step that reads one column."""

    reads: str
    kind: str
    """`waits`, `computes` (in Python), or `asks` a model."""
    milliseconds: float

    def made(self) -> Any:
        if self.kind == "asks":
            return Waiting(self.milliseconds).generate(f"{{{self.reads}}}")
        run = _waits if self.kind == "waits" else _computes
        return _READS[self.reads](run(self.milliseconds / 1e3))


def _waits(seconds: float) -> Callable[[Any], Any]:
    def wait(value: Any) -> Any:
        time.sleep(seconds)
        return value

    return wait


def _computes(seconds: float) -> Callable[[Any], Any]:
    def compute(value: Any) -> Any:
        began = time.thread_time()
        while time.thread_time() - began < seconds:
            pass
        return value

    return compute


_READS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "x": lambda run: lambda x: run(x),
    "a": lambda run: lambda a: run(a),
    "b": lambda run: lambda b: run(b),
}


class Case(NamedTuple):
    """A pipeline, and the load under which it answers."""

    steps: dict[str, Step]
    load: float | None = None
    """Requests per second; None for one at a time."""

    def pipeline(self, faster: str | None = None) -> sv.Pipeline:
        made = sv.requests("x")
        for name, step in self.steps.items():
            half = step._replace(milliseconds=step.milliseconds / 2)
            made = made.derive(**{name: (half if name == faster else step).made()})
        return made

    def latency(self, faster: str | None = None) -> float:
        """The mean seconds of the requests, by the clock."""
        return asyncio.run(self._latency(faster))

    async def _latency(self, faster: str | None) -> float:
        engine = Engine(self.pipeline(faster).plan)
        gaps = np.random.default_rng(0).exponential(1 / (self.load or 1.0), _REQUESTS)
        took: list[float] = []

        async def ask(x: int, arrives: float) -> None:
            await asyncio.sleep(arrives - time.perf_counter())
            await engine.answer({"x": x}, deadline=_DEADLINE)
            took.append(time.perf_counter() - arrives)

        try:
            for x in range(3):  # warms up
                await engine.answer({"x": -1 - x}, deadline=_DEADLINE)
            if self.load is None:
                for x in range(_REQUESTS):
                    await ask(x, time.perf_counter())
            else:
                arrivals = time.perf_counter() + np.cumsum(gaps)
                await asyncio.gather(*(ask(x, at) for x, at in enumerate(arrivals.tolist())))
        finally:
            engine.close()
        return float(np.mean(took))


CASES = {
    "a chain": Case({
        "a": Step("x", "waits", 4), "b": Step("a", "waits", 16), "c": Step("b", "waits", 8),
    }),
    "a chain that computes": Case({
        "a": Step("x", "computes", 3), "b": Step("a", "computes", 12), "c": Step("b", "waits", 4),
    }),
    "a retriever and a reader": Case({"a": Step("x", "computes", 5), "b": Step("a", "asks", 30)}),
    "branches": Case({
        "a": Step("x", "waits", 20), "b": Step("x", "waits", 8), "c": Step("a", "waits", 4),
    }),
    "branches of one length": Case({
        "a": Step("x", "waits", 12), "b": Step("x", "asks", 12), "c": Step("a", "waits", 20),
    }),
    "quick steps beside a slow one": Case({
        "a": Step("x", "waits", 0.0), "b": Step("a", "asks", 20), "c": Step("b", "waits", 1),
    }),
    "a busy model": Case({"a": Step("x", "waits", 5), "b": Step("a", "asks", 20)}, 30.0),
    "a model at its limit": Case({"a": Step("x", "waits", 10), "b": Step("a", "asks", 20)}, 42.0),
    "two models, one busy": Case({"a": Step("x", "asks", 20), "b": Step("a", "asks", 6)}, 35.0),
    "a busy GIL": Case({"a": Step("x", "computes", 12), "b": Step("a", "waits", 10)}, 45.0),
}  # fmt: skip


class Outcome(NamedTuple):
    """A step that was made twice as fast."""

    step: str
    predicted: float
    """The saved share of the latency, in points."""
    real: float
    bottleneck: str | None
    fastest: str
    """The step whose half saves most by the clock."""


def compare(case: Case) -> Outcome:
    """The prediction for the bottleneck beside the pipeline that was really changed."""
    rows = [{"x": x} for x in range(_REQUESTS)]
    found = case.pipeline().what_if(on=rows, load=case.load, seconds=_DEADLINE)
    base = case.latency()
    real = {name: 100 * (1 - case.latency(name) / base) for name in case.steps}
    saved = {one.step: one.faster for one in found.steps}
    step = found.bottleneck or next(iter(case.steps))
    predicted = saved[step]
    assert predicted is not None
    return Outcome(
        step, 100 * predicted.value, real[step], found.bottleneck, max(real, key=real.__getitem__)
    )


def main() -> None:
    found = ceilings()
    print(found, end="\n\n")
    right = 0
    named = found.limit == "hits"
    for name, case in CASES.items():
        made = compare(case)
        error = made.predicted - made.real
        right += abs(error) <= _RIGHT
        named &= made.bottleneck == made.fastest
        print(
            f"{name:30} {made.step} twice as fast: saves {made.predicted:5.1f} points predicted, "
            f"{made.real:5.1f} by the clock ({error:+.1f}); bottleneck {made.bottleneck}"
            f"{'' if made.bottleneck == made.fastest else f', really {made.fastest}'}",
            flush=True,
        )
    told = "rightly" if named else "wrongly"
    print(f"{right} of {len(CASES)} within {_RIGHT} points; limits are named {told}")
    sys.exit(0 if right >= _WANTED and named else 1)


if __name__ == "__main__":
    main()
