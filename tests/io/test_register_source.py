"""A source of one's own is like silva's in every way: `own_sources` are two."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from own_sources import Countdown, Squares
from source_laws import check_chunked, check_indexed

import silva as sv
from silva.columns import Array
from silva.io.source import Chunked, Indexed, kind_of, registered_sources
from silva.testing import assert_same_stream


def test_a_source_of_ones_own_obeys_the_laws_of_sources():
    assert check_indexed(Squares(11))[3] == {"n": 3, "square": 9}
    assert check_chunked(Countdown(3, 4))[0] == {"left": 12}


def test_a_source_of_ones_own_is_complete():
    squares, countdown = Squares(3), Countdown(2, 2)
    assert isinstance(squares, Indexed)
    assert isinstance(countdown, Chunked)
    assert (squares.access, countdown.access) == ("indexed", "chunked")
    assert squares.types() == squares.row_bytes() == {}
    assert squares.sketch() == squares.fingerprint()
    assert squares.runs_user_code
    assert squares.identifies_rows
    assert (squares.costly, squares.reads_at_once) == ((), False)
    assert (countdown.length(), countdown.unit_rows(), countdown.replays) == (None, None, False)


@pytest.mark.parametrize("source", [Squares(23), Countdown(5, 4)], ids=["indexed", "chunked"])
def test_a_source_of_ones_own_gives_one_stream_on_processes_shuffled_and_resumed(source):
    rows = sv.from_source(source).shuffle(seed=1, window=6).derive(u=lambda rng: rng.random())
    assert_same_stream(rows.batch(4), workers=(2,), backends=("inline", "threads", "processes"))


def test_a_source_that_a_script_declares_is_read_by_processes(tmp_path):
    source = Path(__file__).with_name("own_sources.py").read_text()
    script = tmp_path / "script.py"
    script.write_text(
        f"{source}\n"
        "loader = sv.from_source(Squares(8)).batch(4).loader(backend='processes', workers=2)\n"
        "print([batch['square'].tolist() for batch in loader])\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "[[0, 1, 4, 9], [16, 25, 36, 49]]\n"


def test_a_fingerprint_begins_with_the_tag_and_tells_sources_apart():
    assert Squares(3).fingerprint() == "squares:3"
    assert Countdown(2, 3).fingerprint() == "countdown-1:2x3"
    first, again, other = (sv.from_source(Squares(n)).fingerprint for n in (3, 3, 4))
    assert first == again != other


def test_plans_call_a_source_by_its_name():
    squares = sv.from_source(Squares(2000)).shuffle(seed=0).batch(4)
    assert "feed squares of 2,000 rows: global shuffle (seed 0)" in squares.explain()
    assert repr(sv.from_source(Countdown(2, 3))) == "source countdown"


def test_a_class_that_inherits_has_the_tag_of_its_own_declaration():
    @sv.register_source("cubes")
    class Cubes(Squares):
        pass

    assert Cubes(3).fingerprint() == "cubes:3"
    assert Squares(3).fingerprint() == "squares:3"
    assert kind_of(Cubes(3)).name == "cubes"


def test_a_field_is_not_replaced_by_a_default():
    @sv.register_source("streams")
    @dataclass(frozen=True)
    class Streams(Countdown):
        replays: bool

    assert Streams(1, 2, True).replays
    assert not Streams(1, 2, False).replays


@pytest.mark.parametrize(
    ("methods", "missing"),
    [
        ("columns length read", "has no fingerprint"),
        ("columns fingerprint read", "has no length"),
        ("fingerprint open", "has no columns and no units"),
        ("columns fingerprint", "has no units and no open"),
    ],
)
def test_a_class_that_lacks_a_method_is_refused(methods, missing):
    cls = type("Half", (), {name: lambda self: None for name in methods.split()})
    with pytest.raises(sv.PlanError, match=f"Half {missing}.*indexed.*chunked"):
        sv.register_source("half")(cls)
    assert "half" not in [kind.name for kind in registered_sources()]


@pytest.mark.parametrize(("name", "owner"), [("squares", "own_sources.Squares"), ("lance", "lake")])
def test_a_name_that_is_taken_is_refused(name, owner):
    class Other(Squares):
        pass

    with pytest.raises(sv.PlanError, match=f"{owner}.* already has a source called '{name}'"):
        sv.register_source(name)(Other)


@pytest.mark.parametrize("name", ["", "a:b", "a\nb", None, 3])
def test_a_name_that_could_not_be_shown_is_refused(name):
    with pytest.raises(sv.PlanError, match="printable text without a colon"):
        sv.register_source(name)


def test_an_empty_tag_and_what_is_no_class_are_refused():
    with pytest.raises(sv.PlanError, match="the tag of a source is printable text"):
        sv.register_source("untagged", tag="")
    with pytest.raises(sv.PlanError, match="register_source: a source is a class, not 3"):
        sv.register_source("number")(3)


def test_a_class_may_be_declared_again_as_by_a_cell_that_is_run_twice():
    assert sv.register_source("squares")(Squares) is Squares
    assert Squares(3).fingerprint() == "squares:3"


def test_an_object_that_is_not_declared_is_refused():
    with pytest.raises(sv.PlanError, match=r"list is not a source: put @sv\.register_source"):
        sv.from_source([1, 2])


class Numbers:
    """A right source; the tests below make one method of it wrong."""

    def columns(self):
        return ("a", "b")

    def fingerprint(self):
        return "numbers"

    def length(self):
        return 10

    def read(self, rows, columns):
        return {name: Array(rows) for name in columns}


class Units:
    columns, fingerprint = Numbers.columns, Numbers.fingerprint

    def units(self):
        return 3

    def open(self, unit, start, columns):
        yield {name: Array(np.arange(5)[start:]) for name in columns}


WRONG = [
    (Numbers, "read", lambda s, r, c: {n: Array(r[r != 5]) for n in c}),
    (Numbers, "read", lambda s, r, c: {n: Array(np.append(r, 1)) for n in c}),
    (Numbers, "read", lambda s, r, c: {"a": Array(r), "b": Array(r[r != 5])}),
    (Numbers, "read", lambda s, r, c: {"a": Array(r)}),
    (Numbers, "read", lambda s, r, c: dict.fromkeys(c, r)),
    (Numbers, "read", lambda s, r, c: {n: r.tolist() for n in c}),
    (Numbers, "read", lambda s, r, c: None),
    (Numbers, "read", lambda s, r, c: {n: Array(r.tolist()) for n in c}),
    (Numbers, "read", lambda s, r, c: {n: Array(r[: max(len(r) - 1, 1)]) for n in c}),
    *[(Numbers, "length", lambda s, n=n: n) for n in (None, -1, 10.0, "10", True)],
    *[(Numbers, "columns", lambda s, c=c: c) for c in (None, "ab", ("a", "a"), (1, 2), ("",))],
    (Units, "open", lambda s, u, i, c: {n: Array(np.arange(5)) for n in c}),
    (Units, "open", lambda s, u, i, c: None),
    (Units, "open", lambda s, u, i, c: iter([3])),
    (Units, "open", lambda s, u, i, c: iter([{n: Array([1, 2]) for n in c}])),
    (Units, "open", lambda s, u, i, c: iter([{"a": Array(np.arange(5))}])),
    (Units, "open", lambda s, u, i, c: iter([{"a": Array(np.arange(5)), "b": Array(np.ones(4))}])),
    *[(Units, "units", lambda s, n=n: n) for n in (None, -1, 3.0)],
    *[(Units, "unit_rows", lambda s, n=n: n) for n in (5, (5, 5), (5, 5, 6), (5.0,) * 3)],
    *[(Units, "length", lambda s, n=n: n) for n in (7, 14, 16, 100)],
    *[(Units, "types", lambda s, t=t: t) for t in (3, None, {"a": 3}, {3: "int64"}, {"a": ""})],
    *[(Units, "costly", c) for c in (None, 3, "a", (3,))],
    (Units, "fingerprint", lambda s: "\ud800"),
]


@pytest.mark.parametrize("backend", ["inline", "threads"])
@pytest.mark.parametrize(("right", "method", "answer"), WRONG)
def test_a_wrong_answer_of_a_source_is_an_error_that_names_it(right, method, answer, backend):
    wrong = sv.register_source("wrong")(type("Wrong", (right,), {method: answer}))
    with pytest.raises(sv.SourceError, match=f"Wrong.{method} must return|Wrong.open must return"):
        ask_everything(wrong(), backend)


@pytest.mark.parametrize("declared", [4, 6])
@pytest.mark.parametrize("world", [1, 2])
def test_one_unit_must_have_the_rows_that_length_says_also_where_an_epoch_continues(
    declared, world
):
    own = {"units": lambda s: 1, "length": lambda s: declared}
    wrong = sv.register_source("wrong")(type("Wrong", (Units,), own))
    told = f"Wrong.open must return the {declared} rows that length.. says there are, not 5"
    batches = sv.from_source(wrong()).batch(2, drop_last=True)
    for rank in range(world):
        with pytest.raises(sv.SourceError, match=told):
            list(batches.loader(backend="inline", rank=rank, world=world))
    if declared > 5:  # else no batch comes
        loader = batches.loader(backend="inline")
        next(iter(loader))
        resumed = batches.loader(backend="inline")
        resumed.load_state_dict(loader.state_dict())
        with pytest.raises(sv.SourceError, match=told):
            list(resumed)


def test_length_must_be_the_sum_of_the_rows_of_units():
    own = {"unit_rows": lambda s: [5] * 3, "length": lambda s: 14}
    wrong = sv.register_source("wrong")(type("Wrong", (Units,), own))
    with pytest.raises(sv.SourceError, match=r"Wrong.length must return 15, the sum of unit_rows"):
        sv.from_source(wrong()).count()


READING = [case for case in WRONG if case[1] in ("read", "open")]


@pytest.mark.parametrize("policy", [sv.Skip(at_most=100), sv.Substitute(0)])
@pytest.mark.parametrize(
    ("right", "method", "answer", "backend"),
    [(*case, "inline") for case in READING]
    + [(*case, b) for case in (READING[0], READING[-1]) for b in ("threads", "processes")],
)
def test_no_policy_for_failed_rows_hides_a_wrong_answer(right, method, answer, backend, policy):
    wrong = sv.register_source("wrong")(type("Wrong", (right,), {method: answer}))
    rows = sv.from_source(wrong())
    for steps in (rows, rows.filter(lambda a: a < 8).batch(2).derive(c=lambda a: a)):
        loader = steps.loader(backend=backend, workers=1, on_error=policy)
        with pytest.raises(sv.SourceError, match=f"Wrong.{method} must return"):
            list(loader)
        assert not loader.failures


def test_rows_before_a_wrong_answer_are_given_whatever_the_policy_is():
    few = {"read": lambda s, rows, names: {n: Array(rows[rows != 5]) for n in names}}
    rows = sv.from_source(sv.register_source("wrong")(type("Wrong", (Numbers,), few))())
    for policy in ("raise", sv.Skip(), sv.Substitute(0)):
        given = iter(rows.loader(workers=0, on_error=policy))
        assert [next(given)["a"] for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(sv.SourceError, match="1 row in the column 'a', not 0"):
            next(given)


class Forgets(Units):
    def unit_rows(self):
        return [5] * 3

    def open(self, unit, start, columns):
        yield {name: Array(np.arange(5)) for name in columns}  # `start` is ignored


class TooMany(Forgets):
    def open(self, unit, start, columns):
        yield {name: Array(np.arange(5)[start:]) for name in columns}
        yield {name: Array(np.arange(1)) for name in columns}


def test_a_source_that_ignores_start_is_found_when_a_run_is_resumed():
    rows = sv.from_source(sv.register_source("forgets")(Forgets)()).batch(2)
    loader = rows.loader(workers=0)
    next(iter(loader))
    resumed = rows.loader(workers=0)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(sv.SourceError, match=r"Forgets.open must return at most 3 rows from start"):
        list(resumed)


def test_more_rows_than_unit_rows_says_are_an_error_before_they_are_used():
    rows = sv.from_source(sv.register_source("too many")(TooMany)())
    found = []
    with pytest.raises(sv.SourceError, match=r"unit_rows.. says that unit 0 has 5 rows, not 6"):
        found.extend(row["a"] for row in rows.loader(workers=0))


class NoText(ValueError):
    def __str__(self):
        raise RuntimeError("no text")


def raising(error):
    def method(*_):
        raise error

    return method


def raising_late(self, unit, start, columns):
    yield {name: Array(np.arange(5)[start:]) for name in columns}
    raise KeyError("late")


RAISING = [
    *[(Numbers, m, raising(ValueError("mine"))) for m in ("length", "columns", "fingerprint")],
    *[(Units, m, raising(ValueError("mine"))) for m in ("open", "units", "unit_rows", "types")],
    *[(Numbers, m, raising(SystemExit(3))) for m in ("length", "columns", "fingerprint")],
    (Units, "open", raising(SystemExit(3))),
    (Units, "open", raising(StopIteration("mine"))),
    (Units, "open", raising(NoText())),
    (Units, "open", raising_late),
]


def ask_everything(source, backend):
    made = sv.from_source(source)
    assert made.schema
    assert made.fingerprint
    list(made.batch(4).loader(backend=backend, workers=1))


@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
@pytest.mark.parametrize(("right", "method", "raises"), RAISING)
def test_what_a_source_raises_is_an_error_that_names_it(right, method, raises, backend):
    wrong = sv.register_source("wrong")(type("Wrong", (right,), {method: raises}))
    with pytest.raises(sv.SourceError) as caught:
        ask_everything(wrong(), backend)
    said = str(caught.value)
    assert f"Wrong.{method} raised " in said
    assert f"test_register_source.py:{raises.__code__.co_firstlineno}]" in said
    cause = caught.value.__cause__
    assert type(cause).__name__ in said
    assert isinstance(cause, ValueError | KeyError | StopIteration | SystemExit)


def test_a_row_that_a_source_cannot_read_fails_and_is_known_by_its_key():
    def read(self, rows, columns):
        if 7 in rows:
            raise ValueError("mine")
        return {name: Array(rows) for name in columns}

    wrong = sv.register_source("wrong")(type("Wrong", (Numbers,), {"read": read}))
    with pytest.raises(sv.RowError, match="mine") as caught:
        list(sv.from_source(wrong()).batch(4).loader(backend="inline"))
    assert caught.value.key == "0:7"


def test_numbers_of_numpy_and_lists_of_rows_are_right_answers():
    right = {"length": lambda self: np.int64(10)}
    numbers = sv.register_source("right")(type("Right", (Numbers,), right))
    rows = sv.from_source(numbers()).shuffle(seed=1)
    assert sorted(row["a"] for row in rows.loader(workers=0)) == list(range(10))
    counted = {"unit_rows": lambda self: [5, 5, 5], "units": lambda self: np.int32(3)}
    units = sv.register_source("counted")(type("Counted", (Units,), counted))
    assert [row["a"] for row in sv.from_source(units()).loader(workers=0)] == [*range(5)] * 3


def test_a_tag_belongs_to_one_source():
    sv.register_source("first", tag="taken")(type("First", (Numbers,), {}))
    with pytest.raises(sv.PlanError, match="already has the tag 'taken'"):
        sv.register_source("second", tag="taken")(type("Second", (Numbers,), {}))
