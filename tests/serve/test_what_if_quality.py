"""What-if on quality and speed: known ceilings come out, for every kind of gold value."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import silva as sv

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.ceilings import ceilings

from silva.serve.models.model import Answer, Model, Question
from silva.serve.search.attribution.gains import QualityWhatIf, StepGain
from silva.serve.search.attribution.recording import Recording, Timed
from silva.serve.search.intervals import Interval

EXACT = sv.exact_match("answer", "gold")
CITIES = 12


def gains(found: QualityWhatIf) -> dict[str, StepGain]:
    return {one.step: one for one in found.steps}


def perfect(found: QualityWhatIf, step: str) -> float:
    gain = gains(found)[step].perfect
    assert gain is not None
    return gain.value


def known(recall: float, accuracy: float, rows: int, seed: int) -> QualityWhatIf:
    """What-if on a retriever that finds with probability `recall`, and a reader that is right on
    what was found with probability `accuracy`."""
    rng = np.random.default_rng(seed)
    found, reads = rng.random(rows) < recall, rng.random(rows) < accuracy

    def retrieve(i: int) -> bool:
        return bool(found[i])

    def read(hit: bool, i: int) -> str:
        return "yes" if hit and reads[i] else "no"

    pipeline = sv.requests("i").derive(hit=retrieve).derive(answer=read)
    dev = [{"i": i, "gold": "yes", "gold_hit": True} for i in range(rows)]
    gold = {"hit": "gold_hit", "answer": "gold"}
    return pipeline.what_if(on=dev, metric=EXACT, gold=gold, seconds=0)  # type: ignore[no-any-return]


def holds(interval: Interval | None, value: float) -> bool:
    assert interval is not None
    return interval.low <= value <= interval.high


def test_ceilings_of_a_known_pipeline_lie_in_their_intervals() -> None:
    inside: dict[str, list[bool]] = {"hit": [], "answer": []}
    grid = list(itertools.product((0.3, 0.6, 0.9), (0.4, 0.75), range(8)))
    for seed, (recall, accuracy, _) in enumerate(grid):
        found = known(recall, accuracy, 300, seed)
        both = recall * accuracy
        inside["hit"].append(holds(gains(found)["hit"].perfect, accuracy - both))
        inside["answer"].append(holds(gains(found)["answer"].perfect, recall - both))
        assert found.limit == ("hit" if accuracy > recall else "answer")
    for held in inside.values():
        assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / len(held))


def cities(tmp_path: Path) -> sv.Index:
    texts = [f"city{i} lies on river{i} and word" for i in range(CITIES)]
    passages = sv.from_columns({"id": list(range(CITIES)), "text": texts})
    return passages.to_index(tmp_path / "idx", keyword="text")


DEV = [
    {"question": f"which word is city{i}", "passage": i, "gold": f"river{i}"} for i in range(CITIES)
]


def misspell(question: str) -> str:
    """Half of the questions name another city."""
    number = int(question.rpartition("city")[2])
    return question if number % 2 else f"which word is city{(number + 1) % CITIES}"


def read(hits: list[dict[str, Any]], question: str) -> str:
    city = question.rpartition(" ")[2]
    return next((f"river{city[4:]}" for hit in hits if f"{city} " in hit["text"]), "none")


@pytest.mark.parametrize(
    "passage", [lambda n: n, lambda n: [n], lambda n: [n, n]], ids=["id", "list", "ids"]
)
@pytest.mark.parametrize("selects", [False, True])
def test_gold_hits_are_looked_up_in_the_index(
    tmp_path: Path, passage: Callable[[int], Any], selects: bool
) -> None:
    pipeline = (
        sv.requests("question")
        .derive(q=misspell)
        .derive(hits=cities(tmp_path).search("q", k=1))
        .derive(answer=read)
    )
    if selects:
        pipeline = pipeline.select("answer")
    dev = [{**row, "passage": passage(row["passage"])} for row in DEV]  # type: ignore[arg-type]
    gold = {"hits": "passage", "answer": "gold"}
    found = pipeline.what_if(on=dev, metric=EXACT, gold=gold, seconds=0)
    assert perfect(found, "hits") == 0.5
    assert perfect(found, "answer") == 0.0
    assert found.limit == "hits"
    better = gains(found)["hits"].better
    assert better is not None
    assert better.value == pytest.approx(0.05)


def test_an_id_that_no_passage_has_is_an_error(tmp_path: Path) -> None:
    pipeline = sv.requests("question").derive(hits=cities(tmp_path).search("question"))
    metric = sv.recall_at(1, "hits", "passage")
    dev = [{"question": "city1", "passage": 99}]
    with pytest.raises(sv.SilvaError, match="no passage 99"):
        pipeline.what_if(on=dev, metric=metric, gold={"hits": "passage"}, seconds=0)


def test_search_and_rerank_into_one_column_are_told_apart(tmp_path: Path) -> None:
    def first_city(question: str, text: str) -> float:
        return float(text.startswith("city0 "))

    pipeline = (
        sv.requests("question")
        .derive(hits=cities(tmp_path).search("question", k=CITIES))
        .derive(hits=sv.rerank("question", "hits", by=first_city, keep=1))
        .derive(answer=read)
    )
    gold = {"hits": "passage", "answer": "gold"}
    found = pipeline.what_if(on=DEV, metric=EXACT, gold=gold)
    assert {"hits", "hits#1", "answer"} == set(gains(found))
    assert perfect(found, "hits#1") == pytest.approx(1 - 1 / CITIES)
    assert all(one.faster is not None for one in found.steps)  # also where they run as one
    one = pipeline.what_if(on=DEV, metric=EXACT, gold={"hits#1": "passage"}, seconds=0)
    assert gains(one)["hits"].perfect is None
    removed = gains(one)["hits#1"].removed  # the hits of the search stay
    assert removed is not None
    assert removed.value == pytest.approx(1 - 1 / CITIES)


def test_of_several_gold_answers_one_is_put_in() -> None:
    pipeline = sv.requests("x").derive(answer=lambda x: "the Rhine" if x % 2 else "?")
    dev = [{"x": x, "gold": ["rhine", "Rhein"]} for x in range(20)]
    found = pipeline.what_if(on=dev, metric=EXACT, gold={"answer": "gold"}, seconds=0)
    assert perfect(found, "answer") == 0.5


def test_a_step_is_right_where_the_metric_says_so() -> None:
    pipeline = (
        sv.requests("x")
        .derive(answer=lambda x: "The Rhine." if x % 2 else "?")
        .derive(kept=lambda answer: False)
    )
    dev = [{"x": x, "gold": "rhine", "yes": True} for x in range(20)]

    def judge(answer: str, kept: bool, gold: str) -> float:
        return EXACT({"answer": answer, "gold": gold}) * kept

    def spelled(answer: str, gold: str) -> float:
        return EXACT({"answer": answer, "gold": gold})

    found = pipeline.what_if(
        on=dev, metric=judge, gold={"answer": "gold", "kept": "yes"}, seconds=0
    )
    assert perfect(found, "kept") == 0.5  # where the answer is right but for its spelling
    assert pipeline.what_if(on=dev, metric=spelled, seconds=0).limit is None


def test_only_steps_that_a_step_depends_on_must_be_right() -> None:
    pipeline = sv.requests("x").derive(a=lambda x: -1).derive(b=lambda x: -1)
    dev = [{"x": x, "gold": x} for x in range(20)]

    def right(b: int, gold: int) -> bool:
        return b == gold

    found = pipeline.what_if(on=dev, metric=right, gold={"a": "gold", "b": "gold"}, seconds=0)
    assert (perfect(found, "a"), perfect(found, "b")) == (0.0, 1.0)


def test_a_perfect_step_does_not_fail() -> None:
    def half(x: int) -> int:
        if x % 2:
            raise ValueError(x)
        return x

    pipeline = sv.requests("x").derive(a=half).derive(b=lambda a: a)
    dev = [{"x": x, "gold": x} for x in range(20)]
    found = pipeline.what_if(
        on=dev, metric=lambda b, gold: b == gold, gold={"a": "gold"}, seconds=0
    )
    assert perfect(found, "a") == 0.5


def test_a_step_of_several_columns_is_one_step() -> None:
    pipeline = sv.requests("x").derive(lambda x: (x, x + 1), into=("a", "b"))
    dev = [{"x": x, "gold": x + 2} for x in range(20)]
    found = pipeline.what_if(
        on=dev, metric=lambda b, gold: b == gold, gold={"b": "gold"}, seconds=0
    )
    assert perfect(found, "a, b") == 1.0


def test_a_filter_that_is_left_out_drops_nothing() -> None:
    pipeline = sv.requests("x").filter(lambda x: x % 2 == 0).derive(y=lambda x: x)
    dev = [{"x": x, "gold": x} for x in range(20)]
    found = pipeline.what_if(on=dev, metric=lambda y, gold: y == gold, seconds=0)
    (dropped,) = (one for one in found.steps if one.step != "y")
    assert dropped.removed is not None
    assert dropped.removed.value == 0.5


def test_retrieval_limits_questions_that_need_two_passages() -> None:
    found = ceilings()
    assert found.limit == "hits"
    assert perfect(found, "hits") == pytest.approx(5 / 6)  # the reader stumbles over one in six
    assert perfect(found, "answer") < 0.1


def test_questions_of_ones_own_change_several_steps_at_once() -> None:
    pipeline = sv.requests("x").derive(a=lambda x: -1).derive(b=lambda a: -1)
    dev = [{"x": x, "gold": x} for x in range(20)]

    def ask(**changes: Any) -> Any:
        found = pipeline.what_if(
            on=dev,
            metric=lambda b, gold: b == gold,
            gold={"a": "gold", "b": "gold"},
            **changes,
        )
        return found.asked

    assert ask(b="perfect").gain.value == 0.0
    assert ask(a="perfect", b="perfect").gain.value == 1.0
    faster = ask(a=0.0, b=0.0)
    assert faster.gain is None
    assert 0 < faster.faster.value <= 1
    with pytest.raises(sv.PlanError, match="no step 'c'"):
        ask(c=0.5)
    with pytest.raises(sv.PlanError, match="factor"):
        ask(a="quick")


def test_what_makes_no_sense_together_is_refused() -> None:
    pipeline = sv.requests("x").derive(y=lambda x: x)
    dev = [{"x": 1, "gold": 1}]
    with pytest.raises(sv.PlanError, match="on=rows"):
        pipeline.what_if(y=0.5)
    with pytest.raises(sv.PlanError, match="on=rows"):
        sv.from_columns({"x": [1]}).derive(y=lambda x: x).what_if(metric=EXACT)
    with pytest.raises(sv.PlanError, match="metric"):
        pipeline.what_if(on=dev, gold={"y": "gold"})
    with pytest.raises(sv.PlanError, match="which no step writes"):
        pipeline.what_if(on=dev, metric=lambda y: y, gold={"z": "gold"})
    with pytest.raises(sv.PlanError, match="requests per second"):
        pipeline.what_if(on=dev, load=0)
    with pytest.raises(sv.PlanError, match="at least one row"):
        pipeline.what_if(on=[], metric=lambda y: y)


# Speed.


def recorded(seconds: dict[str, float], *, slots: int = 1, rows: int = 200) -> Recording:
    """Steps in a row that wait for so long."""
    steps = [
        Timed(
            name, name, i, frozenset({i - 1} if i else ()), np.full(rows, one), np.zeros(rows),
            np.zeros(rows), slots, False, False,
        )
        for i, (name, one) in enumerate(seconds.items())
    ]  # fmt: skip
    return Recording(tuple(steps), 0.001, 2, rows)


def test_one_request_at_a_time_takes_the_sum_of_its_steps() -> None:
    found = recorded({"a": 0.02, "b": 0.01})
    assert found.latencies(None) == pytest.approx(np.full(200, 0.031))
    assert found.changed("a", factor=0.5).latencies(None) == pytest.approx(np.full(200, 0.021))
    assert found.changed("a", wider=2).latencies(None) == pytest.approx(np.full(200, 0.031))


def test_steps_that_do_not_wait_for_each_other_run_at_once() -> None:
    found = recorded({"a": 0.02, "b": 0.01})
    apart = Recording(
        tuple(Timed(**{**vars(one), "after": frozenset()}) for one in found.steps), 0.0, 2, 200
    )
    assert apart.latencies(None) == pytest.approx(np.full(200, 0.02))
    assert apart.changed("b", factor=0.0).latencies(None) == pytest.approx(np.full(200, 0.02))


def test_requests_queue_under_a_load_as_theory_says() -> None:
    rows, service = 8_000, 0.01
    found = recorded({"a": service}, rows=rows)
    found = Recording(found.steps, 0.0, 2, rows)
    for busy in (0.3, 0.6):  # the mean time in an M/D/1 queue
        expected = service + busy * service / (2 * (1 - busy))
        assert found.latencies(busy / service).mean() == pytest.approx(expected, rel=0.1)
    wide = found.changed("a", wider=2)
    assert wide.latencies(0.6 / service).mean() < found.latencies(0.6 / service).mean()


def test_the_slowest_step_is_the_bottleneck() -> None:
    def slow(x: int) -> int:
        time.sleep(0.004)
        return x

    def slower(a: int) -> int:
        time.sleep(0.012)
        return a

    pipeline = sv.requests("x").derive(a=slow).derive(b=slower).derive(c=lambda b: b)
    found = pipeline.what_if(on=[{"x": x} for x in range(10)], load=20.0)
    assert (found.bottleneck, found.next, found.base) == ("b", "b", None)
    assert "work on b next: it limits the latency" in str(found)


@dataclass(frozen=True)
class Slow(Model):
    """A model that takes 20 ms for a question, and has a price."""

    price: tuple[float, float] = (1e6, 2e6)
    asked: ClassVar[list[str]] = []

    @property
    def identity(self) -> str:
        return "slow"

    def open(self) -> Any:
        return _Slow()


class _Slow:
    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        Slow.asked.extend(question.messages[-1].text for question in questions)
        time.sleep(0.02 * len(questions))
        return [Answer(one.messages[-1].text, "stop", 3, 1) for one in questions]

    def close(self) -> None: ...


@pytest.mark.parametrize("asks_before", [False, True])
def test_answers_that_are_kept_count_with_their_time(asks_before: bool) -> None:
    pipeline = sv.requests("x").derive(y=Slow().generate("{x}")).derive(z=lambda y: y)
    rows = [{"x": str(x)} for x in range(6)]
    if asks_before:
        pipeline.run(rows)
    for _ in range(2):
        Slow.asked.clear()
        found = pipeline.what_if(on=rows)
        assert found.bottleneck == "y"
        seconds, cheaper = gains(found)["y"].seconds, gains(found)["y"].cheaper
        assert seconds is not None
        assert seconds.value >= 0.02
        assert cheaper is not None
        assert cheaper.value == pytest.approx((3 * 1 + 1 * 2) / 2)
        assert "half the price" in str(found)
    assert Slow.asked in ([], ["0"])  # the second time, all times are known but that of the first
