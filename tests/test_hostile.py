"""Used wrongly: every odd value gives a defined result, every mistake an error of silva's own."""

from __future__ import annotations

import numpy as np
import pytest

import silva as sv

rows = sv.from_columns({"x": np.arange(10)})


def first(pipeline: sv.Pipeline, name: str = "y") -> object:
    return next(iter(pipeline.batch(5).loader(backend="inline")))[name]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: {x}, [{0}, {1}, {2}, {3}, {4}]),
        (lambda x: 10**30 + x, [10**30 + i for i in range(5)]),
        (lambda x: str(x), list("01234")),
        (lambda x: None, [None] * 5),
        (lambda x: x > 2, [False, False, False, True, True]),
        (lambda x: x if x else 0.5, [0.5, 1.0, 2.0, 3.0, 4.0]),
        (lambda x: (x, "a"), None),
        (lambda x: complex(x, 1), [complex(i, 1) for i in range(5)]),
    ],
)
def test_odd_results_are_kept_as_they_are(function, expected):
    found = first(rows.derive(y=function))
    if expected is not None:
        assert found.tolist() == expected


def test_a_masked_array_keeps_its_mask():
    found = first(rows.derive(y=lambda x: np.ma.array([1, 2], mask=[0, 1])))
    assert np.ma.getmaskarray(found).tolist() == [[False, True]] * 5


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (lambda: rows.filter(lambda x: np.array([True, False])).head(1), sv.RowError),
        (
            lambda: sv.from_columns({"m": np.zeros((4, 2))}).filter(sv.col("m") > 0).head(1),
            sv.RowError,
        ),
        (lambda: rows.explode("x").head(1), sv.RowError),
        (lambda: rows.derive(lambda x: (1, 2, 3), into=("a", "b")).head(1), sv.RowError),
        (lambda: rows.derive(lambda x: 1, into=("a", "b")).head(1), sv.RowError),
        (lambda: rows.batch(2).loader().load_state_dict({"a": 1}), sv.StateError),
        (lambda: rows.batch(2).loader().load_state_dict("hello"), sv.StateError),
        (lambda: list(rows.options(shards=2).loader()), sv.SilvaError),
        (lambda: list(rows.options(shards=3).batch(4).loader()), sv.PlanError),
        (lambda: list(sv.zip([rows, rows.take(3).rename(x="y")]).loader()), sv.SilvaError),
        (lambda: list(rows.derive(u=lambda rng: 1).cache().batch(5).loader()), sv.PlanError),
        (lambda: list(rows.filter(lambda x: True).sample(weights="x").loader()), sv.PlanError),
        (lambda: list(rows.filter(lambda x: x).shuffle(kind="two-level").loader()), sv.SilvaError),
        (lambda: sv.read_files("/nonexistent/*.jpg").head(1), sv.SourceError),
    ],
)
def test_mistakes_are_errors_of_silvas_own(run, error):
    with pytest.raises(error):
        run()


@pytest.mark.parametrize("cursor", ["junk", 7, {"at": -5}, {"at": 99}, {"ranges": "x"}, [], {}])
def test_a_damaged_state_is_refused(cursor):
    loader = rows.batch(2).loader(backend="inline")
    state = loader.state_dict()
    with pytest.raises(sv.StateError):
        loader.load_state_dict({**state, "cursors": {"0": cursor}})
    assert len(list(loader)) == 5, "the loader is as it was"


@pytest.mark.parametrize(
    ("pipeline", "count"),
    [
        (sv.from_items([]), 0),
        (rows.take(0), 0),
        (rows.skip(100), 0),
        (rows.filter(lambda x: False), 0),
        (sv.mix([rows.take(0), rows]), 10),
        (sv.mix([rows.take(0), rows], stop="repeat"), 10),
        (sv.concat([rows.take(0), rows.take(0)]), 0),
        (rows.derive(items=lambda x: []).explode("items"), 0),
    ],
)
@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_nothing_is_a_stream_too(pipeline, count, backend):
    with pipeline.loader(backend=backend, workers=1) as loader:
        assert sum(1 for _ in loader) == count


def test_hundreds_of_steps_are_fine():
    deep = rows
    for _ in range(300):
        deep = deep.derive(x=lambda x: x + 1)
    assert first(deep, "x").tolist() == [300, 301, 302, 303, 304]
