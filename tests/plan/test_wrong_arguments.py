"""A verb that is given something else than it takes says so at the line where it is written."""

from __future__ import annotations

import operator
import re

import numpy as np
import pytest

import silva as sv

ROWS = sv.from_columns({"x": range(5), "y": [1.5] * 5, "t": [[1], [2, 3], [], [4], [5]]})
OTHER = {"x": [1, 2], "price": [3.0, 4.0]}

WRONG = {
    # The silent ones: each of these used to give rows.
    'filter("x > 3")': (lambda: ROWS.filter("x > 3"), r"sv\.col\('x'\).*lambda x"),
    'filter("x")': (lambda: ROWS.filter("x"), r"sv\.col\('x'\)"),
    "filter(True)": (lambda: ROWS.filter(True), "not True"),
    "filter(1)": (lambda: ROWS.filter(1), "filter takes"),
    'derive(z="x + 1")': (lambda: ROWS.derive(z="x + 1"), r"sv\.col\('x'\)"),
    'derive(z="x")': (lambda: ROWS.derive(z="x"), r"sv\.col\('x'\)"),
    "map_rows(into=str)": (lambda: ROWS.map_rows(lambda row: row, into="xy"), "into"),
    "shuffle(1.5)": (lambda: ROWS.shuffle(1.5), "seed"),
    "shuffle(True)": (lambda: ROWS.shuffle(True), "seed"),
    "sample(seed=1.5)": (lambda: ROWS.sample("y", seed=1.5), "seed"),
    "mix(seed=1.5)": (lambda: sv.mix([ROWS, ROWS], seed=1.5), "seed"),
    "mix(weights={1.5: …})": (lambda: sv.mix([ROWS, ROWS], {0: [1, 1], 1.5: [1, 2]}), "row"),
    "pack(pad=1.5)": (lambda: ROWS.pack("t", 4, pad=1.5), "pad"),
    "bucket({4.5: 2})": (lambda: ROWS.bucket("t", {4.5: 2}), "sizes"),
    "bucket({4: True})": (lambda: ROWS.bucket("t", {4: True}), "sizes"),
    "bucket(pad of no column)": (lambda: ROWS.bucket("t", {4: 2}, pad={"q": 0}), "'q'"),
    "bucket(drop_last='no')": (lambda: ROWS.bucket("t", {4: 2}, drop_last="no"), "drop_last"),
    "batch(drop_last='no')": (lambda: ROWS.batch(2, drop_last="no"), "drop_last"),
    "options(optimize='no')": (lambda: ROWS.options(optimize="no"), "optimize"),
    "options(disable=5)": (lambda: ROWS.options(disable=5), "disable"),
    "options(seed='a')": (lambda: ROWS.options(seed="a"), "seed"),
    "cache(shared='no')": (lambda: ROWS.cache(shared="no"), "shared"),
    "split(salt='a')": (lambda: ROWS.split(a=0.5, salt="a"), "salt"),
    "batch(axis) without by": (lambda: ROWS.batch(2, axis=1), "axis"),
    "col == None": (lambda: sv.col("x") == None, r"\.is_null\(\)"),  # noqa: E711
    "col != None": (lambda: sv.col("x") != None, r"\.is_null\(\)"),  # noqa: E711
    "col > None": (lambda: sv.col("x") > None, r"\.is_null\(\)"),
    "None + col": (lambda: None + sv.col("x"), r"\.is_null\(\)"),
    # These raised something else, or too late.
    'shuffle("yes")': (lambda: ROWS.shuffle("yes"), "seed"),
    'batch("32")': (lambda: ROWS.batch("32"), "whole number"),
    "batch(2.0)": (lambda: ROWS.batch(2.0), "whole number"),
    "batch(tokens, by=lambda)": (lambda: ROWS.batch(tokens=8, by=len), "by"),
    "batch(collate=5)": (lambda: ROWS.batch(2, collate=5), "collate"),
    "batch(grouped=5)": (lambda: ROWS.batch(2, grouped=5), "grouped"),
    "batch(axis='time')": (lambda: ROWS.batch(tokens=8, by="t", axis="time"), "axis"),
    "bucket(list)": (lambda: ROWS.bucket("t", [4, 8]), "sizes"),
    "bucket(axis=1.0)": (lambda: ROWS.bucket("t", {4: 2}, axis=1.0), "axis"),
    "select(list)": (lambda: ROWS.select(["x", "y"]), r'select\("x", "y"\)'),
    "select()": (lambda: ROWS.select(), "different columns"),
    "select(unknown)": (lambda: ROWS.select("q"), "'q'"),
    "drop(unknown)": (lambda: ROWS.drop("q"), "'q'"),
    "drop(list)": (lambda: ROWS.drop(["x"]), r'drop\("x"\)'),
    "rename(x=3)": (lambda: ROWS.rename(x=3), "name"),
    "rename(unknown)": (lambda: ROWS.rename(q="z"), "'q'"),
    "rename(list)": (lambda: ROWS.rename(["x"]), "rename"),
    "derive(5, into=…)": (lambda: ROWS.derive(None, into="z"), "function"),
    "derive(z=None)": (lambda: ROWS.derive(z=None), "not None"),
    "derive(z=[1])": (lambda: ROWS.derive(z=[1]), r"not \[1\]"),
    "derive(reads=5)": (lambda: ROWS.derive(z=lambda a: a, reads=5), "reads"),
    "derive(reads=unknown)": (lambda: ROWS.derive(z=lambda a: a, reads="q"), "'q'"),
    "derive(into=5)": (lambda: ROWS.derive(lambda x: x, into=5), "into"),
    "derive(unknown column)": (lambda: ROWS.derive(z=lambda q: q), "'q'"),
    "derive(unknown expression)": (lambda: ROWS.derive(z=sv.col("q") + 1), "'q'"),
    "filter(None)": (lambda: ROWS.filter(None), "filter takes"),
    "filter(array)": (lambda: ROWS.filter(np.arange(5) > 2), "filter takes"),
    "map_rows(5)": (lambda: ROWS.map_rows(5), "function"),
    "explode(list)": (lambda: ROWS.explode(["t"]), "column"),
    "explode(unknown)": (lambda: ROWS.explode("q"), "'q'"),
    "take('3')": (lambda: ROWS.take("3"), "whole number"),
    "take(-1)": (lambda: ROWS.take(-1), "whole number"),
    "skip(1.0)": (lambda: ROWS.skip(1.0), "whole number"),
    "shuffle(kind=…)": (lambda: ROWS.shuffle(kind="full"), "'two-level' or 'window', not 'full'"),
    "shuffle(by=5)": (lambda: ROWS.shuffle(by=5), "by"),
    "sample()": (lambda: ROWS.sample(), "weights"),
    "sample(expression)": (lambda: ROWS.sample(sv.col("y")), "weights"),
    "sample(function)": (lambda: ROWS.sample(lambda y: y), "weights"),
    "sample(text)": (lambda: ROWS.sample("y > 1"), "'y > 1'"),
    "sample(words)": (lambda: ROWS.sample(["a", "b"]), "weights"),
    "sample(size='3')": (lambda: ROWS.sample("y", size="3"), "whole number"),
    "split('0.9')": (lambda: ROWS.split(train="0.9"), "shares"),
    "split(by=unknown)": (lambda: ROWS.split(a=0.5, by="q"), "'q'"),
    "split(by=5)": (lambda: ROWS.split(a=0.5, by=5), "by"),
    "join(on=lambda)": (lambda: ROWS.join(OTHER, on=lambda x: x), "on"),
    "join(on=unknown)": (lambda: ROWS.join(OTHER, on="q"), "'q'"),
    "join(list of rows)": (lambda: ROWS.join([{"x": 1}], on="x"), "join takes"),
    "join(how=…)": (lambda: ROWS.join(OTHER, on="x", how="outer"), "how"),
    "join(columns=5)": (lambda: ROWS.join(OTHER, on="x", columns=5), "columns"),
    "asof_join(on=5)": (lambda: ROWS.asof_join(OTHER, by="x", on=5), "on"),
    "asof_join(ttl=…)": (lambda: ROWS.asof_join(OTHER, by="x", on={"y": "price"}, ttl="a"), "ttl"),
    "pack(unknown)": (lambda: ROWS.pack("q", 4), "'q'"),
    "pack(length)": (lambda: ROWS.pack("t", "4"), "whole number"),
    "pack(pad='x')": (lambda: ROWS.pack("t", 4, pad="x"), "pad"),
    "pack(5)": (lambda: ROWS.pack(5, 4), "column"),
    "cache(5)": (lambda: ROWS.cache(5), "cache"),
    "cache(limit='a')": (lambda: ROWS.cache("folder", limit="a"), "a"),
    "options(shards=0)": (lambda: ROWS.options(shards=0), "shards"),
    "options(unknown)": (lambda: ROWS.options(speed=1), "speed"),
    "concat(pipeline)": (lambda: sv.concat(ROWS), "list of pipelines"),
    "concat([])": (lambda: sv.concat([]), "list of pipelines"),
    "concat([5])": (lambda: sv.concat([5]), "list of pipelines"),
    "zip(stop=…)": (lambda: sv.zip([ROWS], stop="longest"), "stop"),
    "mix(weights=text)": (lambda: sv.mix([ROWS, ROWS], ["a", "b"]), "weights"),
    "mix(weights=5)": (lambda: sv.mix([ROWS, ROWS], 5), "weights"),
    "mix(three weights)": (lambda: sv.mix([ROWS, ROWS], [1, 2, 3]), "weights"),
    "head('3')": (lambda: ROWS.head("3"), "head"),
    "from_columns(list)": (lambda: sv.from_columns([1, 2]), "from_columns"),
    "from_columns(5)": (lambda: sv.from_columns({"x": 5}), "'x'"),
    "from_items(dict)": (lambda: sv.from_items({"x": [1]}), "from_items"),
    "from_items(5)": (lambda: sv.from_items(5), "from_items"),
    "from_items(numbers)": (lambda: sv.from_items([1, 2]), "from_items"),
    "from_arrow(list)": (lambda: sv.from_arrow([1]), "from_arrow"),
    "from_torch(5)": (lambda: sv.from_torch(5), "from_torch"),
    "from_huggingface(list)": (lambda: sv.from_huggingface([1]), "from_huggingface"),
    "read_files(5)": (lambda: sv.read_files(5), "path"),
    "read_parquet([5])": (lambda: sv.read_parquet([5]), "path"),
    "loader(workers='2')": (lambda: ROWS.loader(workers="2"), "workers"),
    "loader(backend=…)": (lambda: ROWS.loader(backend="spark"), "backend"),
    "loader(seed='a')": (lambda: ROWS.loader(seed="a"), "seed"),
    "loader(epochs=1.5)": (lambda: ROWS.loader(epochs=1.5), "epochs"),
    "loader(on_error=…)": (lambda: ROWS.loader(on_error="ignore"), "on_error"),
    "loader(memory='x')": (lambda: ROWS.loader(memory="x"), "x"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_an_error_where_it_is_written(name: str) -> None:
    call, told = WRONG[name]
    with pytest.raises(sv.PlanError, match=told):
        call()


def test_a_text_that_names_no_column_is_a_constant() -> None:
    rows = ROWS.derive(part="train", note="not an expression: x y")
    assert rows.select("part", "note").head(1) == [
        {"part": "train", "note": "not an expression: x y"}
    ]


def test_is_in_takes_a_list_and_not_the_letters_of_a_text():
    for wrong in ("ab", b"ab"):
        with pytest.raises(sv.PlanError, match=re.escape(f"is_in([{wrong!r}])")):
            sv.col("x").is_in(wrong)
    with pytest.raises(sv.PlanError, match="takes a list of values, not 3"):
        sv.col("x").is_in(3)
    assert ROWS.filter(sv.col("x").is_in({1})).count() == ROWS.filter(sv.col("x") == 1).count()


@pytest.mark.parametrize("several", [[1, 2], (1, 2), {1, 2}])
def test_a_column_is_not_compared_with_several_values(several):
    for compare in (operator.eq, operator.ne):
        with pytest.raises(sv.PlanError, match=r"write is_in\(\[…\]\)"):
            compare(sv.col("x"), several)


TYPED = sv.from_columns(
    {
        "day": np.arange(10),
        "share": np.arange(10.0),
        "name": ["a"] * 10,
        "on": [True] * 10,
        "when": np.arange(10).astype("datetime64[D]"),
    }
)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (sv.col("day") == "5", "'day' is int64, and no row of it is equal to '5', which is str"),
        (sv.col("day") != b"5", "which is bytes: compare it with a number"),
        (sv.col("share") >= "0.5", "'share' is float64"),
        (sv.col("day").is_in(["5", "6"]), "'day' is int64"),
        (sv.col("name") == 5, "'name' is str, .* which is int: compare it with text"),
        (sv.col("name").is_in([1, 2]), "'name' is str"),
        ((sv.col("day") > 3) & (sv.col("name") < 1.5), "'name' is str"),
    ],
    ids=repr,
)
def test_a_comparison_of_numbers_with_text_is_refused_when_it_is_written(condition, message):
    with pytest.raises(sv.PlanError, match=message):
        TYPED.filter(condition)
    with pytest.raises(sv.PlanError, match=message):
        TYPED.derive(y=condition)


@pytest.mark.parametrize(
    "condition",
    [
        sv.col("day") == np.int32(5),
        sv.col("day") == 5.0,
        sv.col("on") == 1,
        sv.col("day") == True,  # noqa: E712
        sv.col("name") == "a",
        sv.col("name").is_in([1, "a"]),
        sv.col("when") > np.datetime64("2020-01-01"),
        sv.col("later") == "5",
        sv.col("day").is_in([]),
    ],
    ids=repr,
)
def test_comparisons_that_may_be_meant_are_accepted(condition):
    TYPED.derive(later=lambda day: str(day)).filter(condition)
