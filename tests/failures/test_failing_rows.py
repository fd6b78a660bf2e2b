"""A row on which a step fails follows the policy, alike on every backend, and is written down."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from failure_tools import WAYS, every_way, inline, taken

import silva as sv
from silva.testing import batches_of, cut_blocks, digest

BAD = 37


def numbers(n: int = 100) -> sv.Pipeline:
    return sv.from_columns({"x": range(n)})


def fails(x):
    if x == BAD:
        raise KeyError("no such thing")
    return x * 2


def fails_after_drawing(x, rng):
    drawn = rng.random()
    if x == BAD:
        raise KeyError("no such thing")
    return drawn


@sv.batched
def fails_on_columns(x):
    if (x == BAD).any():
        raise ZeroDivisionError("a bad row among these")
    return x * 2


def fails_on_row(row):
    if row["x"] == BAD:
        raise LookupError("no such thing")
    return {"y": row["x"]}


def returns_two(x):
    return (x,) if x == BAD else (x, -x)


def leaves(x):
    if x == BAD:
        sys.exit(4)
    return x


class FailsOnCall:
    def __call__(self, x):
        return fails(x)


JPEG = simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8))
BYTES = [b"x" if i == BAD else JPEG for i in range(100)]

STEPS = {
    "derive": (lambda: numbers().derive(y=fails), KeyError),
    "derive with rng": (lambda: numbers().derive(y=fails_after_drawing), KeyError),
    "derive a lambda": (lambda: numbers().derive(y=lambda x: 1 // (x - BAD)), ZeroDivisionError),
    "derive several": (lambda: numbers().derive(returns_two, into=("y", "z")), ValueError),
    "stateful": (lambda: numbers().derive(y=sv.stateful(FailsOnCall)()), KeyError),
    "expression": (
        lambda: sv.from_columns({"x": range(100), "bytes": BYTES}).derive(
            y=sv.image("bytes").decode().resize(2, 2)
        ),
        Exception,
    ),
    "filter": (lambda: numbers().filter(lambda x: fails(x) >= 0), KeyError),
    "batched": (lambda: numbers().derive(y=fails_on_columns), ZeroDivisionError),
    "explode": (
        lambda: numbers().derive(y=lambda x: 5 if x == BAD else [x]).explode("y"),
        TypeError,
    ),
    "map_rows": (lambda: numbers().map_rows(fails_on_row, into=("y",)), LookupError),
    "sys.exit": (lambda: numbers().derive(y=leaves), SystemExit),
}
QUICK = {"derive", "expression", "filter", "batched", "explode"}
every_step = pytest.mark.parametrize(
    "step", [pytest.param(s, marks=() if s in QUICK else pytest.mark.rest) for s in STEPS]
)


@every_step
def test_an_error_names_row_step_and_cause_and_what_came_before_is_handed_out(step):
    build, kind = STEPS[step]
    pipeline = build().batch(4)
    expected = None
    for backend, workers in WAYS:
        with cut_blocks(pipeline.loader(backend=backend, workers=workers), [7, 16]) as loader:
            found, error = taken(loader)
        assert isinstance(error, sv.RowError), (backend, error)
        assert error.key.split(":")[:2] == ["0", str(BAD)]
        assert isinstance(error.__cause__, kind), backend
        if step not in ("expression", "explode"):
            assert "test_failing_rows.py:" in error.step, "the function's file and line"
        assert f"pipeline.row({error.key!r})" in str(error)
        assert len(found) == BAD // 4, backend
        expected = expected or found
        assert found == expected, backend
        assert loader.failures[0].key == error.key
        if step not in ("expression", "explode", "derive several"):
            assert "test_failing_rows.py" in loader.failures[0].traceback


@every_step
def test_a_state_taken_when_a_row_has_failed_comes_to_that_row_again(step):
    pipeline = STEPS[step][0]().batch(4)
    for backend, workers in WAYS:
        with cut_blocks(pipeline.loader(backend=backend, workers=workers), [7, 16]) as loader:
            _, error = taken(loader)
            state = loader.state_dict()
        again = pipeline.loader(backend="inline")
        again.load_state_dict(state)
        rest, same = taken(again)
        assert isinstance(same, sv.RowError), (backend, "rows would be lost")
        assert same.key == error.key
        assert rest == []


@every_step
def test_skipped_and_substituted_rows_give_one_stream_with_full_batches(step):
    pipeline = STEPS[step][0]().batch(4)
    for policy in (sv.Skip(at_most=5), sv.Substitute(None)):
        expected = inline(pipeline, on_error=policy)
        for backend, workers in WAYS:
            for sizes in ([1], [7, 16], [100]):
                if backend != "inline" and sizes != [7, 16]:
                    continue
                with cut_blocks(
                    pipeline.loader(backend=backend, workers=workers, on_error=policy), sizes
                ) as loader:
                    batches = list(loader)
                    assert [digest(b) for b in batches] == expected, (policy, backend, sizes)
                    assert [f.key.split(":")[1] for f in loader.failures] == [str(BAD)]
        counts = [len(next(iter(b.values()))) for b in batches]
        assert set(counts[:-1]) == {4}, "batches stay full"
        kept = step not in ("filter", "explode") and isinstance(policy, sv.Substitute)
        assert sum(counts) == (100 if kept else 99)


def two_batches_fail(x):
    if x[0] in (20, 60):
        raise KeyError("no such thing")
    return x * 2


def failing_collate(rows):
    if rows[0]["x"] in (20, 60):
        raise KeyError("no such thing")
    return {"x": np.array([row["x"] for row in rows])}


BATCH_STEPS = {
    "after batch": lambda: numbers().batch(10).derive(y=two_batches_fail),
    "filter after batch": lambda: (
        numbers().batch(10).filter(lambda x: two_batches_fail(x) is not None)
    ),
    "collate": lambda: numbers().batch(10, collate=failing_collate),
}


@pytest.mark.parametrize("step", BATCH_STEPS)
def test_a_batch_on_which_a_step_fails_follows_the_policy(step):
    pipeline = BATCH_STEPS[step]()
    skipped = inline(pipeline, on_error=sv.Skip(at_most=2))
    assert len(skipped) == 8
    before = None
    for backend, workers in WAYS:
        with pipeline.loader(backend=backend, workers=workers) as loader:
            found, error = taken(loader)
        assert isinstance(error, sv.RowError), (backend, error)
        assert error.key == "0:20"
        assert isinstance(error.__cause__, KeyError)
        assert "test_failing_rows.py:" in error.step
        assert len(found) == 2
        before = before or found
        assert found == before
        options = {"backend": backend, "workers": workers}
        with pipeline.loader(**options, on_error=sv.Skip(at_most=2)) as loader:
            assert [digest(b) for b in loader] == skipped
        with pipeline.loader(**options, on_error=sv.Skip(at_most=1)) as loader:
            _, error = taken(loader)
        assert isinstance(error, sv.FailureBudgetExceeded)


def every_tenth_fails(x):
    if x % 10 == 3:
        raise ValueError(x)
    return x


@every_way
def test_skip_ends_where_its_budget_does(backend, workers):
    pipeline = numbers().derive(y=every_tenth_fails).batch(4)
    options = {"backend": backend, "workers": workers}
    expected = None
    for policy, enough in (
        (sv.Skip(at_most=10), True),
        (sv.Skip(at_most=9), False),
        (sv.Skip(rate=0.2), True),
        (sv.Skip(rate=0.02), False),
    ):
        with cut_blocks(pipeline.loader(**options, on_error=policy), [5]) as loader:
            found, error = taken(loader)
        if enough:
            assert error is None
            expected = expected or found
            assert found == expected
            assert len(found) == 23
        else:
            assert isinstance(error, sv.FailureBudgetExceeded)
            assert isinstance(error.__cause__, ValueError)
            assert found == expected[: len(found)]


@pytest.mark.parametrize("policy", [sv.Skip(at_most=9), sv.Skip(rate=0.02)])
def test_a_budget_ends_at_the_same_row_whatever_runs_it(policy):
    pipeline = numbers(400).derive(y=every_tenth_fails).batch(4)
    ends = set()
    for backend, workers in WAYS:
        for sizes in ([13],) if backend == "processes" else ([1], [13], [400]):
            with cut_blocks(
                pipeline.loader(backend=backend, workers=workers, on_error=policy), sizes
            ) as loader:
                found, error = taken(loader)
            assert isinstance(error, sv.FailureBudgetExceeded)
            ends.add((len(found), str(error).partition("rows failed")[0]))
    assert len(ends) == 1, ends


@every_way
def test_failures_are_written_with_key_and_traceback(backend, workers, tmp_path: Path):
    file = tmp_path / "failures.jsonl"
    pipeline = numbers().derive(y=every_tenth_fails).batch(4)
    options = {"backend": backend, "workers": workers, "on_error": sv.Skip(at_most=10)}
    with pipeline.loader(**options, failures=file) as loader:
        list(loader)
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r["key"] for r in records] == [f"0:{i}" for i in range(3, 100, 10)]
    assert all("every_tenth_fails" in r["step"] for r in records)
    assert all("raise ValueError(x)" in r["traceback"] for r in records)
    assert [f.key for f in loader.failures] == [r["key"] for r in records]


@every_way
def test_budget_counters_survive_a_resume(backend, workers):
    pipeline = numbers().derive(y=every_tenth_fails).batch(4)
    options = {"backend": backend, "workers": workers, "on_error": sv.Skip(at_most=9)}
    with pipeline.loader(**options) as loader:
        whole, error = taken(loader)
    assert isinstance(error, sv.FailureBudgetExceeded)
    for stop in (7,) if backend == "processes" else (1, 7, len(whole) - 1):
        with pipeline.loader(**options) as loader:
            batches = iter(loader)
            found = [digest(next(batches)) for _ in range(stop)]
            state = json.loads(json.dumps(loader.state_dict()))
            batches.close()
        with pipeline.loader(**options) as loader:
            loader.load_state_dict(state)
            rest, error = taken(loader)
        assert isinstance(error, sv.FailureBudgetExceeded), stop
        assert found + rest == whole


@pytest.mark.parametrize("step", BATCH_STEPS)
def test_counters_of_failed_batches_survive_a_resume(step):
    loader = BATCH_STEPS[step]().loader(backend="inline", on_error=sv.Skip(at_most=1))
    for _ in batches_of(loader, 4):
        pass
    again = BATCH_STEPS[step]().loader(backend="inline", on_error=sv.Skip(at_most=1))
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    with pytest.raises(sv.FailureBudgetExceeded):
        list(again)


@every_way
def test_a_file_that_is_gone_fails_its_row_alone(backend, workers, tmp_path: Path):
    for i in range(30):
        (tmp_path / f"{i:02}.bin").write_bytes(bytes([i]))
    files = sv.read_files(str(tmp_path / "*.bin"))
    assert files.count() == 30
    pipeline = files.derive(v=lambda bytes: bytes[0]).select("v").batch(4)
    (tmp_path / "17.bin").unlink()
    options = {"backend": backend, "workers": workers}
    with pipeline.loader(**options) as loader:
        found, error = taken(loader)
    assert isinstance(error, sv.RowError)
    assert error.key == "0:17"
    assert isinstance(error.__cause__, OSError)
    assert "17.bin" in str(error)
    assert len(found) == 4
    with pipeline.loader(**options, on_error=sv.Skip(at_most=1)) as loader:
        assert np.concatenate([b["v"] for b in loader]).tolist() == [
            i for i in range(30) if i != 17
        ]


class Unpicklable(Exception):
    def __init__(self, x, lock):
        super().__init__(f"row {x}")
        self.lock = lock


def fails_strangely(x):
    if x == BAD:
        import threading

        raise Unpicklable(x, threading.Lock())
    return x


@every_way
def test_an_exception_that_cannot_travel_is_told_in_words(backend, workers):
    with (
        numbers()
        .derive(y=fails_strangely)
        .batch(4)
        .loader(backend=backend, workers=workers) as loader
    ):
        _, error = taken(loader)
    assert isinstance(error, sv.RowError)
    assert error.key == f"0:{BAD}"
    assert "Unpicklable: row 37" in str(error)


def test_only_the_failure_that_ends_the_stream_is_written_down(tmp_path):
    """Rows of the other pipeline are read ahead, up to one that fails: its turn never comes."""

    def fails_at(number):
        def step(x):
            if x == number:
                raise ValueError(x)
            return x

        return step

    long = (
        sv.from_columns({"x": range(40)}).derive(y=fails_at(30)).shuffle(1, kind="window", window=6)
    )
    short = sv.from_columns({"x": range(40)}).derive(y=fails_at(2))
    mixed = sv.mix([long.map_rows(dict), short]).map_rows(dict)
    for size in (1, 7, 1000):
        file = tmp_path / f"{size}.jsonl"
        loader = cut_blocks(mixed.loader(backend="inline", failures=file), (size,))
        with pytest.raises(sv.RowError, match="row 1:2 failed"):
            list(loader)
        assert [failure.key for failure in loader.failures] == ["1:2"]
        assert [json.loads(line)["key"] for line in file.read_text().splitlines()] == ["1:2"]


@pytest.mark.parametrize(
    "drop", [lambda rows: rows.derive(fails=fails_below), lambda rows: rows.filter(drops_below)]
)
def test_parts_of_a_row_are_counted_alike_wherever_blocks_end(drop):
    below = [drop(numbers(n)) for n in (9, 40)]
    rows = sv.concat(below).derive(p=lambda x: list(range(x % 4))).explode("p")
    counts = []
    for sizes in ((100,), (1,), (3, 1, 7)):
        with cut_blocks(rows.loader(backend="inline", on_error=sv.Skip()), sizes) as loader:
            counts.append([loader.state_dict()["failures"] for _ in loader])
    assert counts[1:] == counts[:1] * 2


def fails_below(x):
    return 1 // (x % 5 not in (0, 1))


def drops_below(x):
    return x % 5 not in (0, 1)


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_a_rate_is_also_checked_at_the_end_of_a_short_epoch(backend):
    rows = sv.from_columns({"x": range(50)}).derive(y=lambda x: 1 // (x % 2)).batch(8)
    with pytest.raises(sv.FailureBudgetExceeded, match="25 of 50 rows failed"):
        list(rows.loader(backend=backend, workers=1, on_error=sv.Skip(rate=0.01)))


def fails_often(x):
    if x in (1, 4, 5, 6, 7):
        raise KeyError("no such thing")
    return np.float32(x)


@sv.batched
def fails_often_on_columns(x):
    if np.isin(x, (1, 4, 5, 6, 7)).any():
        raise ZeroDivisionError("a bad row among these")
    return x.astype(np.float32)


@every_way
@pytest.mark.parametrize("step", [fails_often, fails_often_on_columns, sv.num("low").log1p()])
@pytest.mark.parametrize(
    ("value", "types"),
    [
        (np.float32(0), ["float32"] * 3),
        (0, ["float64", "int64", "float32"]),
        (None, ["float32", "object", "float32"]),
        ("x", ["object", "object", "float32"]),
    ],
)
def test_a_substitute_takes_part_in_the_type_of_its_batch_as_any_row_does(
    step, value, types, backend, workers
):
    """Rows 1 and 4 to 7 fail: one of the first batch, all of the second, none of the third."""
    low = [-2.0 if i in (1, 4, 5, 6, 7) else float(i) for i in range(12)]
    rows = sv.from_columns({"x": range(12), "low": low}).derive(y=step).select("y").batch(4)
    expected = inline(rows, on_error=sv.Substitute(value))
    for sizes in ((1,), (3,), (1000,)) if backend == "inline" else ((3,),):
        made = rows.loader(backend=backend, workers=workers, on_error=sv.Substitute(value))
        with cut_blocks(made, sizes) as loader:
            batches = list(loader)
        assert [batch["y"].dtype.name for batch in batches] == types
        assert [digest(batch) for batch in batches] == expected


def _reciprocal(x):
    return {"label": [1 // x]}


def _reciprocals(x):
    return [1 // x], [1 // x]


@every_way
def test_each_row_has_a_substitute_of_its_own(backend, workers):
    value = {"label": [-1]}
    rows = sv.from_items([{"x": 0}] * 4).derive(y=_reciprocal)
    rows = rows.derive(_reciprocals, into=("a", "b")).batch(2)
    loader = rows.loader(backend=backend, workers=workers, on_error=sv.Substitute(value))
    with loader:
        for epoch in range(2):
            for batch in loader:
                for name in ("y", "a", "b"):
                    assert batch[name].tolist() == [{"label": [-1]}] * 2
                    batch[name][0]["label"].append("changed")
                    batch[name][0]["more"] = 1
            assert len(loader.failures) == 8 * (epoch + 1)
    assert value == {"label": [-1]}


def test_a_batch_that_fails_has_a_substitute_of_its_own():
    value = [-1]
    rows = sv.from_items([{"x": 0}] * 4).batch(2).derive(y=lambda x: 1 // 0)
    for batch in rows.loader(backend="inline", on_error=sv.Substitute(value)):
        assert batch["y"] == [-1]
        batch["y"].append(2)
    assert value == [-1]


def test_a_wrong_number_of_results_counts_even_if_the_result_equals_the_substitute():
    rows = sv.from_items([{"x": 0}] * 4).derive(lambda x: 0, into=("a", "b")).batch(2)
    loader = rows.loader(backend="inline", on_error=sv.Substitute(0))
    assert [batch["a"].tolist() for batch in loader] == [[0, 0]] * 2
    assert len(loader.failures) == 4


def test_a_substitute_that_cannot_be_copied_is_handed_out_as_it_is():
    value = threading.Lock()
    rows = sv.from_items([{"x": 0}]).derive(y=lambda x: 1 // x).batch(1)
    (batch,) = rows.loader(backend="inline", on_error=sv.Substitute(value))
    assert batch["y"][0] is value


@every_way
def test_a_file_that_fails_is_named_by_its_path_too(tmp_path, backend, workers):
    for i in range(4):
        data = simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8))
        (tmp_path / f"photo-{i}.jpg").write_bytes(b"no image" if i == 2 else data)
    rows = sv.from_columns({"bytes": [b""]}).select("bytes").take(0)
    photos = sv.read_files(tmp_path / "*.jpg").select("bytes")
    rows = sv.concat([rows, photos]).derive(image=sv.image("bytes").decode()).select("image")
    bad = str(tmp_path / "photo-2.jpg")
    with pytest.raises(sv.RowError) as caught:
        list(rows.batch(2).loader(backend=backend, workers=workers))
    assert str(caught.value).startswith(f"row 1:2 ({bad}) failed in `")
    assert caught.value.key == "1:2"
    noted = tmp_path / "failures.jsonl"
    with rows.batch(2).loader(
        backend=backend, workers=workers, on_error=sv.Skip(), failures=noted
    ) as loader:
        list(loader)
        assert [failure.file for failure in loader.failures] == [bad]
    assert json.loads(noted.read_text())["file"] == bad


def test_a_sampled_row_is_not_named_by_another_rows_file(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.bin").write_bytes(b"x")
    rows = (
        sv.read_files(tmp_path / "*.bin").sample([1, 1, 1], seed=0).derive(y=lambda bytes: 1 // 0)
    )
    with pytest.raises(sv.RowError, match=r"^row 0:\d+ failed"):
        list(rows.loader(backend="inline"))
