"""Loops: turns are repeated on a row until a condition holds, the same offline and online."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.serve.engine_tools import answers, opened, turns
from tests.serve.http_tools import client

import silva as sv
from silva.plan.choice import configurations
from silva.plan.fingerprint import fingerprint
from silva.serve.loop.turns import LoopBoundError, TurnError
from silva.serve.models.model import Answer, Model, Question

ROWS = [{"x": n} for n in (40, 3, 1, 17, 3, 1000, 6, 9)]


def halves(**arguments: Any) -> sv.Expr:
    """Halves x until it is 1."""
    step = sv.requests("x").derive(x=lambda x: x // 2)
    return sv.loop(step, **{"until": sv.col("x") <= 1, "at_most": 20, **arguments})


@dataclass(frozen=True)
class Talker(Model):
    """Says one word more than it was told, and charges for all of them."""

    name: str
    price: tuple[float, float] = (1e6, 1e6)
    concurrency: int = 1
    batches: list[int] = field(default_factory=list, compare=False)
    gate: threading.Event | None = field(default=None, compare=False)

    @property
    def identity(self) -> str:
        return f"talker {self.name}"

    def open(self) -> Any:
        return OpenTalker(self)


class OpenTalker:
    def __init__(self, model: Talker) -> None:
        self._model = model

    def close(self) -> None: ...

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        self._model.batches.append(len(questions))
        if self._model.gate is not None:
            self._model.gate.wait(30)
        said = [question.messages[-1].text for question in questions]
        return [
            ValueError("mute") if "mute" in text.split() else Answer(f"{text} word", "stop", 2, 1)
            for text in said
        ]


def talks(model: Model, **arguments: Any) -> sv.Pipeline:
    """Lets a model go on until it has said so many words."""
    step = sv.requests("said", "words").derive(said=model.generate("{said}"))
    enough = {"until": lambda said, words: len(said.split()) > words, "at_most": 9, **arguments}
    return sv.requests("said", "words").derive(turns=sv.loop(step, **enough))


def lengths(rows: list[dict[str, Any]]) -> list[int]:
    return [len(row["turns"]) for row in rows]


def test_a_loop_ends_when_its_condition_holds_and_records_every_turn() -> None:
    made = sv.requests("x").derive(turns=halves())
    assert made.ask(x=5) == {"x": 5, "turns": [{"x": 2}, {"x": 1}]}
    assert made.ask(x=1)["turns"] == [{"x": 0}]  # one turn at least


def test_a_loop_ends_after_at_most_so_many_turns() -> None:
    made = sv.requests("x").derive(turns=halves(at_most=3))
    assert lengths(made.run(ROWS)) == [3, 1, 1, 3, 1, 3, 2, 3]


def test_turns_hold_what_a_step_wrote_and_kept() -> None:
    step = (
        sv.requests("x", "y")
        .derive(z=lambda x: x + 1)
        .derive(x=sv.col("z") * 2, w=lambda z: z)
        .rename(w="v")
        .drop("z")
    )
    made = sv.requests("x", "y").derive(turns=sv.loop(step, until=lambda x: x > 9, at_most=5))
    assert made.ask(x=1, y="a")["turns"] == [{"x": 4, "v": 2}, {"x": 10, "v": 5}]


def random_walk() -> sv.Pipeline:
    step = (
        sv.requests("x", "log")
        .derive(step=lambda x, rng: float(rng.random()))
        .derive(x=sv.col("x") + sv.col("step"), log=lambda log, step: [*log, round(step, 3)])
    )
    walk = sv.loop(step, until=lambda x: x > 20, at_most=30)
    return (
        sv.requests("x")
        .derive(log=lambda x: [])
        .derive(turns=walk)
        .derive(n=lambda turns: len(turns))
    )


@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_offline_gives_the_same_rows_on_every_backend(backend: str) -> None:
    rows = [{"x": float(n)} for n in range(25)]
    expected = [random_walk().ask(**row) for row in rows]
    assert random_walk().run(rows, backend=backend, workers=2) == expected


def test_online_gives_the_same_rows_as_offline_in_any_company() -> None:
    rows = [{"x": float(n % 9)} for n in range(40)]
    offline = random_walk().run(rows)

    async def ask() -> list[Any]:
        with opened(random_walk()) as engine:
            order = np.random.default_rng(0).permutation(len(rows)).tolist()
            found = await answers(engine, [rows[i] for i in order])
            return [found[order.index(i)].rows[0] for i in range(len(rows))]

    assert asyncio.run(ask()) == offline
    with client(random_walk()) as http:
        assert [http.post("/", json=row).json() for row in rows[:9]] == offline[:9]


def test_random_steps_draw_by_row_and_turn() -> None:
    step = sv.requests("id").derive(drawn=lambda rng: float(rng.random()))
    made = sv.requests("id").derive(turns=sv.loop(step, until=lambda drawn: False, at_most=4))
    first, again, other = ([t["drawn"] for t in made.ask(id=n)["turns"]] for n in (1, 1, 2))
    assert first == again
    assert len({*first, *other}) == 8
    reseeded = made.options(seed=1).run([{"id": 1}])[0]["turns"]
    assert reseeded[0]["drawn"] not in first


def test_rows_of_an_exploded_request_loop_each_by_itself() -> None:
    made = sv.requests("x").explode("x").derive(turns=halves())
    offline = made.run([{"x": [9, 1, 40]}, {"x": [2]}])
    assert lengths(offline) == [3, 1, 5, 1]
    assert made.ask(x=[9, 1, 40]) == offline[:3]


def test_requests_at_different_turns_share_batches_and_leave_at_their_own() -> None:
    model = Talker("together", gate=threading.Event())
    made = talks(model)

    async def ask() -> list[Any]:
        with opened(made) as engine:
            await asyncio.to_thread(engine.open)
            early = asyncio.gather(*(engine.answer(row, deadline=60) for row in rows[:3]))
            while not model.batches:
                await turns()
            late = asyncio.gather(*(engine.answer(row, deadline=60) for row in rows[3:]))
            await turns()
            model.gate.set()
            return [*(await early), *(await late)]

    rows = [{"said": f"n{n}", "words": words} for n, words in enumerate((4, 4, 2, 3, 1))]
    found = asyncio.run(ask())
    assert [one.rows[0] for one in found] == made.run(rows)
    turns_taken = lengths([one.rows[0] for one in found])
    assert turns_taken == [4, 4, 2, 3, 1]
    first, *_ = model.batches
    assert first <= 3
    assert max(model.batches) > 3, "requests that came later joined those at another turn"
    assert len(model.batches) < sum(turns_taken)


def test_a_request_that_is_done_does_not_wait_for_its_batch() -> None:
    go_on = threading.Event()

    def slow(x):
        if x == 50:  # the second turn of 100
            go_on.wait(30)
        return x // 2

    step = sv.requests("x").derive(x=slow)
    made = sv.requests("x").derive(turns=sv.loop(step, until=sv.col("x") <= 5, at_most=9))

    async def ask() -> None:
        with opened(made) as engine:
            long = asyncio.ensure_future(engine.answer({"x": 100}, deadline=60))
            short = await engine.answer({"x": 10}, deadline=60)
            assert short.rows[0]["turns"] == [{"x": 5}]
            assert not long.done()
            go_on.set()
            assert len((await long).rows[0]["turns"]) == 5

    asyncio.run(ask())


def test_a_failure_names_the_step_and_the_turn() -> None:
    def picky(x):
        if x == 2:
            raise KeyError("two")
        return x - 1

    step = sv.requests("x").derive(x=picky)
    made = sv.requests("x").derive(turns=sv.loop(step, until=sv.col("x") < 0, at_most=9))
    with pytest.raises(sv.RowError, match=r"turn 3: `x = .*picky.*KeyError: 'two'") as caught:
        made.ask(x=4)
    assert isinstance(caught.value.__cause__, TurnError)
    assert 'raise KeyError("two")' in str(caught.value)
    rows = [{"x": n} for n in (-1, 4, 0)]
    assert [row["x"] for row in made.run(rows, on_error=sv.Skip())] == [-1, 0]
    assert made.run(rows, on_error=sv.Substitute([]))[1] == {"x": 4, "turns": []}


def test_a_failure_costs_no_other_row_of_its_batch_anything() -> None:
    model = Talker("failing")
    made = talks(model)
    rows = [{"said": "a", "words": 2}, {"said": "mute", "words": 2}, {"said": "b", "words": 3}]

    async def ask() -> list[Any]:
        with opened(made) as engine:
            return await answers(engine, rows)

    first, failed, last = asyncio.run(ask())
    assert lengths([first.rows[0], last.rows[0]]) == [2, 3]
    assert "turn 1: `said = " in failed.failures[0].error
    offline = made.run(rows, on_error=sv.Skip())
    assert offline == [first.rows[0], last.rows[0]]


def test_clients_see_what_is_wrong_with_their_request_in_a_turn() -> None:
    def refuse(x):
        if x == 7:
            raise sv.RequestError("no sevens")
        return x - 1

    step = sv.requests("x").derive(x=refuse)
    made = sv.requests("x").derive(turns=sv.loop(step, until=sv.col("x") < 0, at_most=20))
    with client(made) as http:
        assert http.post("/", json={"x": 2}).json()["turns"][-1] == {"x": -1}
        reply = http.post("/", json={"x": 9})
    assert reply.status_code == 422
    assert reply.json()["error"] == {"kind": "request", "message": "no sevens", "step": "turns"}


def test_a_loop_that_takes_longer_than_it_may_fails_its_row() -> None:
    made = sv.requests("x").derive(turns=halves(seconds=1e-9))
    assert made.ask(x=2)["turns"] == [{"x": 1}]  # it ended in the turn that passed the bound
    with pytest.raises(sv.RowError, match=r"in 1 turn\(s\), more than seconds=1e-09") as caught:
        made.ask(x=5)
    assert isinstance(caught.value.__cause__, LoopBoundError)


@pytest.mark.parametrize(("bound", "most"), [("tokens", 7), ("money", 7.0)])
def test_tokens_and_money_bound_a_loop_whether_answers_were_kept_or_not(bound, most) -> None:
    model = Talker(bound)
    made = talks(model, **{bound: most})
    rows = [{"said": "a", "words": 3}, {"said": "b", "words": 4}]
    for _ in range(2):  # the second time, all answers are kept
        found = made.run(rows, on_error=sv.Skip())
        assert lengths(found) == [3]  # three tokens a turn: the third turn passes the bound
        with pytest.raises(sv.RowError, match=rf"has taken 9 .*in 3 turn.*{bound}=7"):
            made.ask(**rows[1])
    asked = len(model.batches)
    assert asked <= 6


def test_the_loop_around_another_one_counts_what_that_spends() -> None:
    model = Talker("nested")
    say = sv.requests("said").derive(said=model.generate("{said}"))
    inner = (
        sv.requests("said")
        .derive(turns=sv.loop(say, until=lambda said: False, at_most=2))
        .derive(said=lambda turns: turns[-1]["said"])
    )
    loop = sv.loop(inner, until=lambda said: False, at_most=3, tokens=11)
    made = sv.requests("said").derive(turns=loop)
    with pytest.raises(sv.RowError, match="12 tokens in 2 turn"):
        made.ask(said="a")


def test_a_condition_that_has_no_truth_fails_its_row() -> None:
    step = sv.requests("x").derive(x=lambda x: np.arange(x))
    made = sv.requests("x").derive(turns=sv.loop(step, until=sv.col("x"), at_most=3))
    with pytest.raises(sv.RowError, match="truth value"):
        made.ask(x=3)
    null = sv.loop(sv.requests("x").derive(x=lambda x: None), until=sv.col("x"), at_most=2)
    assert len(sv.requests("x").derive(turns=null).ask(x=3)["turns"]) == 2


def test_stateful_steps_are_built_once_and_columns_functions_see_the_rows_of_a_turn() -> None:
    built = []

    @sv.stateful
    class Halver:
        def __init__(self):
            built.append(self)

        def __call__(self, x):
            return x // 2

    @sv.batched
    def more(y):
        return y + 1

    step = sv.requests("x", "y").derive(x=Halver(), y=more)
    made = sv.requests("x", "y").derive(turns=sv.loop(step, until=sv.col("x") <= 1, at_most=9))
    rows = [{"x": n, "y": 0} for n in (40, 3, 17)]
    found = made.run(rows, backend="inline")
    assert [row["turns"][-1]["y"] for row in found] == [5, 1, 4]
    assert len(built) == 1


def test_the_fingerprint_covers_the_steps_and_bounds_of_a_turn() -> None:
    def plan(add: int, **arguments: Any) -> str:
        step = sv.requests("x").derive(x=sv.col("x") + add)
        chosen = {"until": sv.col("x") > 9, "at_most": 5, **arguments}
        return fingerprint(sv.requests("x").derive(turns=sv.loop(step, **chosen)).plan)

    every = [plan(1), plan(2), plan(1, at_most=6), plan(1, until=sv.col("x") > 8), plan(1, money=3)]
    assert len(set(every)) == len(every)
    assert plan(1) == plan(1)


def test_explain_shows_the_turn_and_its_bounds() -> None:
    text = sv.requests("x").derive(turns=halves(at_most=7, seconds=30)).explain()
    assert "loop(x = lambda(x)" in text
    assert "until=x <= 1, at_most=7, seconds=30" in text.replace("\n      ", " ")


def test_choices_in_a_turn_and_in_its_bounds_are_open() -> None:
    x = sv.col("x")
    step = sv.requests("x").derive(x=sv.choice(x - 1, x // 2, name="by"))
    loop = sv.loop(step, until=x <= 1, at_most=sv.choice(2, 20, name="turns"))
    made = sv.requests("x").derive(turns=loop).derive(left=lambda turns: turns[-1]["x"])
    assert len(configurations(made.plan)) == 4
    assert made.ask(x=9)["left"] == 7
    dev = [{"x": n, "gold": 1} for n in range(4, 64)]
    tuned = made.tune(dev, maximize=lambda left, gold: left == gold)
    assert tuned.best.ask(x=40)["left"] == 1


def test_what_if_knows_a_loop_as_one_step() -> None:
    made = sv.requests("x").derive(turns=halves()).derive(n=lambda turns: len(turns))
    dev = [{"x": n, "gold": 1, "all": [{"x": 1}]} for n in range(2, 30)]
    table = made.what_if(on=dev, metric=lambda n, gold: n == gold, gold={"turns": "all"}, seconds=0)
    assert table.limit == "turns"


def test_the_engine_knows_the_models_of_a_turn() -> None:
    model = Talker("known", concurrency=3)
    with opened(talks(model)) as engine:
        (station,) = engine.stations
        assert [call.op for call in station.unit.asks] == ["model.generate"]
        assert station.most == 3
        assert not station.quick.in_place


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda: sv.loop(lambda x: x, until=sv.col("x"), at_most=2), "a pipeline such as"),
        (lambda: halves(until="x > 3"), "loop\\(until=…\\) takes an expression"),
        (lambda: halves(at_most=0), "at_most"),
        (lambda: halves(until=lambda y: y), "reads 'y'"),
        (lambda: sv.loop(sv.requests("x"), until=sv.col("x"), at_most=2), "derives columns"),
        (
            lambda: sv.loop(
                sv.requests("x").derive(y=1).filter(sv.col("x")), until=sv.col("x"), at_most=2
            ),
            "`filter` in a turn",
        ),
        (lambda: sv.requests("y").derive(t=halves()), "reads 'x'"),
    ],
)
def test_what_is_no_turn_is_refused_when_it_is_written(write: Any, says: str) -> None:
    with pytest.raises(sv.PlanError, match=says):
        write()
