"""Functions as steps: parameters name columns, and errors show the function's file and line."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

import silva as sv

rows = sv.from_columns({"x": [1, 2, 3], "y": [10, 20, 30]})


def add(x, y):
    return x + y


def run(pipeline: sv.Pipeline, name: str) -> list:
    return [row[name] for row in pipeline.head(9)]


def test_parameters_name_the_columns_that_are_read():
    assert run(rows.derive(z=add), "z") == [11, 22, 33]
    assert run(rows.derive(z=lambda y: y * 2), "z") == [20, 40, 60]


def test_keyword_only_parameters_and_defaults_work():
    def scaled(x, factor=3, *, y):
        return x * factor + y

    assert run(rows.derive(z=scaled), "z") == [13, 26, 39]


def test_a_default_is_a_column_where_there_is_one_of_that_name():
    def shifted(x, y=1000):
        return x + y

    assert run(rows.derive(z=shifted), "z") == [11, 22, 33]
    assert run(rows.select("x").derive(z=shifted), "z") == [1001, 1002, 1003]


def test_partials_methods_and_callable_objects_work():
    class Adder:
        def __init__(self, n):
            self.n = n

        def __call__(self, x):
            return x + self.n

        def method(self, y):
            return y - self.n

    assert run(rows.derive(z=functools.partial(add, y=5)), "z") == [6, 7, 8]
    assert run(rows.derive(z=Adder(1)), "z") == [2, 3, 4]
    assert run(rows.derive(z=Adder(1).method), "z") == [9, 19, 29]


def test_reads_names_the_columns_of_functions_without_readable_parameters():
    words = sv.from_items([{"a.b": "hello"}])
    assert run(words.derive(len, into="n", reads="a.b"), "n") == [5]
    assert run(rows.derive(max, into="m", reads=("x", "y")), "m") == [10, 20, 30]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *args: 1, r"\*args.*Columns: 'x', 'y'"),
        (lambda **kwargs: 1, r"\*\*kwargs"),
        (lambda z: z, r"reads 'z', but the columns here are 'x', 'y'; reads='…' names the column"),
        (lambda xx, yy: 0, r"'xx', 'yy'"),
    ],
)
def test_wrong_parameters_are_an_error_with_file_line_and_columns(function, message):
    with pytest.raises(sv.PlanError, match=message) as error:
        rows.derive(z=function)
    assert "test_functions.py:" in str(error.value)


def test_a_builtin_without_parameters_asks_for_reads():
    with pytest.raises(sv.PlanError, match="reads="):
        rows.derive(z=max)


def test_a_column_called_rng_clashes_with_the_generator():
    with pytest.raises(sv.PlanError, match="rename the column"):
        rows.rename(x="rng").derive(z=lambda y, rng: 0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: rows.select("nope"), "'nope'.*'x', 'y'"),
        (lambda: rows.drop("nope"), "'nope'"),
        (lambda: rows.rename(x="y"), "two columns"),
        (lambda: rows.derive(z=sv.col("q") + 1), "'q'"),
        (lambda: rows.filter(sv.col("q") > 1), "'q'"),
        (lambda: rows.explode("q"), "'q'"),
        (lambda: rows.derive(), "at least one"),
        (lambda: rows.derive(add), "into="),
        (lambda: rows.derive(z=object()), "a step is"),
        (lambda: rows.derive(z=dict), "is a class"),
        (lambda: rows.take(-1), "take"),
        (lambda: rows.batch(0), "batch"),
        (lambda: rows.batch(2).shuffle(), "before batch"),
        (lambda: rows.batch(2).batch(2), "before batch"),
        (lambda: rows.batch(2, tokens=5), "one of"),
        (lambda: rows.batch(tokens=5), "by="),
        (lambda: rows.shuffle(kind="best"), "not 'best'"),
        (lambda: rows.options(speed=9), "no option"),
        (lambda: rows.sample(), "either"),
        (lambda: rows.split(a=0.9, b=0.2), "add up"),
        (lambda: sv.mix([rows, rows.select("x")]), "same ones"),
        (lambda: sv.mix([rows, rows], weights=[1]), "weights"),
        (lambda: sv.mix([rows], weights=[-1]), "weights"),
        (lambda: sv.zip([rows, rows]), "more than one"),
        (lambda: sv.concat([]), "list of pipelines"),
        (lambda: rows.loader(workers=-1), "workers"),
        (lambda: rows.loader(backend="gpu"), "backend"),
        (lambda: rows.loader(rank=2, world=2), "rank"),
        (lambda: rows.loader(memory="lots"), "memory"),
        (lambda: rows.loader(on_error="ignore"), "on_error"),
        (lambda: sv.from_items([{"a": 1}, {"b": 2}]), "item 1"),
        (lambda: sv.from_columns({"a": [1], "b": [1, 2]}), "different lengths"),
        (lambda: bool(sv.col("x") > 1), "truth value"),
    ],
)
def test_mistakes_are_told_when_the_pipeline_is_written(build, message):
    with pytest.raises(sv.SilvaError, match=message):
        build()


def test_inputs_are_read_only_unless_owned():
    images = sv.from_columns({"image": np.zeros((2, 3))})

    def spoil(image):
        image[:] = 1
        return image

    with pytest.raises(sv.RowError, match="read-only"):
        images.derive(out=spoil).head(1)
    owned = sv.owns("image")(lambda image: spoil(image))
    assert images.derive(out=owned).head(1)[0]["out"].tolist() == [1, 1, 1]


def test_batches_are_writable_and_do_not_alias_the_source():
    data = np.arange(6)
    loader = sv.from_columns({"x": data}).batch(3).loader(backend="inline")
    for batch in loader:
        batch["x"][:] = -1
    assert data.tolist() == list(range(6))
    assert [b["x"].tolist() for b in loader] == [[0, 1, 2], [3, 4, 5]]


def test_expressions_follow_numpy_and_carry_nulls():
    table = sv.from_items([{"a": 1, "s": "x"}, {"a": None, "s": "y"}, {"a": 3, "s": "x"}])
    assert run(table.filter(sv.col("a") > 0), "a") == [1, 3]
    assert run(table.filter(sv.col("s") == "x"), "a") == [1, 3]
    assert run(table.filter(~sv.col("a").is_null()), "a") == [1, 3]
    assert run(table.filter(sv.col("s").is_in(["y"])), "s") == ["y"]
    assert run(table.filter(~sv.col("a").is_in([1])), "a") == [3]
    assert run(table.filter(sv.col("a").is_in([1, None])), "a") == [1, None]
    assert run(table.filter(~sv.col("a").is_in([1, None])), "a") == [3]
    assert run(rows.derive(z=(2 - sv.col("x")) * sv.col("y") // 3), "z") == [3, 0, -10]
    assert run(rows.derive(z=abs(-sv.col("x")).cast("float32") / 2), "z") == [0.5, 1.0, 1.5]
    assert run(rows.filter((sv.col("x") > 1) & (sv.col("y") < 30) | (sv.col("x") == 1)), "x") == [
        1,
        2,
    ]


def test_stateful_classes_are_built_in_the_worker_with_their_arguments():
    @sv.stateful
    class Scale:
        def __init__(self, factor, *, plus=0):
            self.factor, self.plus = factor, plus

        def __call__(self, x):
            return x * self.factor + self.plus

    pipeline = rows.derive(z=Scale(3, plus=1))
    for backend in ("inline", "threads", "processes"):
        with pipeline.batch(3).loader(backend=backend, workers=1) as loader:
            assert [b["z"].tolist() for b in loader] == [[4, 7, 10]]


def test_a_batched_function_must_return_as_many_rows():
    @sv.batched
    def wrong(x):
        return x[:-1]

    with pytest.raises(sv.SilvaError, match="rows"):
        list(rows.derive(z=wrong).batch(3).loader(backend="inline"))


def test_a_second_loop_over_a_random_pipeline_is_told_to_be_the_same_epoch():
    rows = sv.from_columns({"x": range(9)})
    random = [rows.shuffle(seed=1), rows.derive(y=lambda x, rng: rng.random()), rows.sample("x")]
    for pipeline in random:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            first = list(pipeline.batch(3))
            whole = pipeline.batch(3)
            assert str(list(whole)) == str(first)
        with pytest.warns(UserWarning, match=r"loader = pipeline\.loader\(\)"):
            assert str(list(whole)) == str(first)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            list(whole)  # once
            list(rows), list(rows)  # nothing here is random
            loader = pipeline.batch(3).loader(backend="inline")
            assert str(list(loader)) != str(list(loader))
