"""A function whose result is known already is not called again: where two steps derive the same,
and where values of a plain column repeat."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.testing import assert_same_stream, cut_blocks, digest

rows = sv.from_columns({"x": range(40), "y": np.arange(40) % 7})


def f(x: int) -> int:
    f.calls += 1  # type: ignore[attr-defined]  # a global would be part of its fingerprint
    return x * x


def listed(x: int) -> list[int]:
    f.calls += 1  # type: ignore[attr-defined]
    return [x]


def array(x: int) -> np.ndarray:
    f.calls += 1  # type: ignore[attr-defined]
    return np.full(3, x)


def noisy(x: int) -> float:
    f.calls += 1  # type: ignore[attr-defined]
    return x + np.random.random()


def several(x: int) -> tuple[int, int]:
    f.calls += 1  # type: ignore[attr-defined]
    return x, -x


f.calls = 0  # type: ignore[attr-defined]


def calls(pipeline: sv.Pipeline, **given: Any) -> tuple[int, list[dict[str, Any]]]:
    f.calls = 0  # type: ignore[attr-defined]
    found = list(pipeline.loader(backend="inline", **given))
    return f.calls, found  # type: ignore[attr-defined]


def test_no_column_is_taken_for_a_result_that_is_kept() -> None:
    odd = {f"{prefix}{step}.0": [99] for prefix in ("", "\0") for step in range(4)}
    found = sv.from_columns({"x": [3], **odd}).derive(a=f).derive(b=f).head(1)
    assert found == [{"x": 3, **dict.fromkeys(odd, 99), "a": 9, "b": 9}]


@pytest.mark.parametrize(
    ("pipeline", "count"),
    [
        (rows.derive(a=f).derive(b=f), 40),
        (rows.derive(a=f, b=f, c=f), 40),
        (rows.derive(a=f).filter(lambda y: y == 3).derive(b=f), 6),
        (rows.derive(a=f).filter(lambda a: a < 100).derive(b=f), 40),
        (rows.derive(a=f).derive(a=lambda a: a + 1).derive(b=f), 40),
        (rows.derive(several, into=("a", "b")).derive(several, into=("c", "d")), 40),
        (rows.derive(a=array).derive(b=array), 40),
        (rows.derive(a=f).derive(x=lambda x: x + 1).derive(b=f), 80),  # x is another one
        (rows.derive(a=listed).derive(b=listed), 80),  # two columns must not share lists
        (rows.derive(a=sv.impure(lambda x: f(x)), b=sv.impure(lambda x: f(x))), 80),
    ],
)
def test_the_same_function_of_the_same_columns_runs_once(pipeline: sv.Pipeline, count: int) -> None:
    found, batches = calls(pipeline.batch(5))
    assert found == count
    plain = pipeline.batch(5).options(optimize=False)
    assert [digest(b) for b in batches] == [digest(b) for b in calls(plain)[1]]


def test_two_columns_of_one_function_share_no_memory() -> None:
    for fn in (array, listed, f, sv.batched(lambda x: x + 1)):
        pipeline = rows.derive(a=fn).derive(b=fn)
        for batch in pipeline.batch(5).loader(backend="inline"):
            assert not np.shares_memory(np.asarray(batch["a"]), np.asarray(batch["b"]))


def test_a_function_that_draws_secretly_draws_twice() -> None:
    pipeline = rows.derive(a=noisy).derive(b=noisy).batch(5)
    batches = list(pipeline.loader(backend="processes", workers=1))
    assert all((batch["a"] != batch["b"]).all() for batch in batches)


@pytest.mark.parametrize("policy", [sv.Skip(100), sv.Substitute(-1)])
def test_both_steps_fail_as_written(policy: Any) -> None:
    def picky(x: int) -> int:
        if x % 5 == 0:
            raise ValueError(x)
        return x

    def other(x: int) -> int:
        return picky(x)

    told = []
    for second in (picky, other):
        loader = rows.derive(a=picky).derive(b=second).batch(4).loader(
            backend="inline", on_error=policy
        )  # fmt: skip
        told.append(([digest(b) for b in loader], [failure.key for failure in loader.failures]))
    assert told[0] == told[1]


def test_a_stream_of_shared_results_does_not_depend_on_how_it_is_run() -> None:
    assert_same_stream(rows.derive(a=array).derive(b=array).shuffle(seed=1).batch(4), workers=(2,))


def slow(v: Any) -> Any:
    f.calls += 1  # type: ignore[attr-defined]
    until = time.perf_counter() + 2e-5
    while time.perf_counter() < until:
        pass
    return f"<{v}>"


COUNT = 2000
FEW: dict[str, list[Any] | np.ndarray] = {
    "texts": [f"country {i % 9}" for i in range(COUNT)],
    "whole numbers": np.arange(COUNT) % 9,
    "objects": np.array([f"c{i % 9}" for i in range(COUNT)], dtype=object),
}


@pytest.mark.parametrize("values", FEW.values(), ids=FEW)
@pytest.mark.parametrize("verb", ["derive", "filter"])
def test_a_costly_function_of_few_values_runs_once_per_value(values: Any, verb: str) -> None:
    base = sv.from_columns({"v": values, "n": range(COUNT)})
    pipeline = (base.derive(w=slow) if verb == "derive" else base.filter(slow)).batch(50)
    f.calls = 0  # type: ignore[attr-defined]
    found = list(cut_blocks(pipeline.loader(backend="inline"), [200]))
    assert f.calls <= 200 + 9 * 9, "the first block shows what a row costs"  # type: ignore[attr-defined]
    plain = sv.from_columns({"v": values, "n": range(COUNT)})
    fast = plain.derive(w=lambda v: f"<{v}>") if verb == "derive" else plain
    expected = list(fast.batch(50).loader(backend="inline"))
    assert [digest(b) for b in found] == [digest(b) for b in expected]


def test_functions_of_other_values_run_on_every_row() -> None:
    def lists(v: Any) -> Any:
        return [slow(v)]

    distinct = sv.from_columns({"v": range(COUNT)}).derive(w=slow)
    few = sv.from_columns({"v": FEW["texts"]})
    for pipeline in (
        distinct,
        few.derive(w=lambda v, rng: slow(v)),
        few.derive(w=sv.impure(lists)),
    ):
        f.calls = 0  # type: ignore[attr-defined]
        list(cut_blocks(pipeline.batch(50).loader(backend="inline"), [200]))
        assert f.calls == COUNT  # type: ignore[attr-defined]


def test_lists_are_each_row_s_own() -> None:
    def lists(v: Any) -> Any:
        return [slow(v)]

    found = sv.from_columns({"v": FEW["texts"]}).derive(w=lists)
    kept = list(cut_blocks(found.loader(backend="inline"), [200]))
    kept[-1]["w"].append(1)
    assert kept[-10]["w"] == ["<country 1>"]


def test_a_value_that_fails_fails_on_each_of_its_rows() -> None:
    def picky(v: str) -> str:
        if v.endswith("3"):
            raise ValueError(v)
        return str(slow(v))

    pipeline = sv.from_columns({"v": FEW["texts"]}).derive(w=picky).batch(50)
    loader = cut_blocks(pipeline.loader(backend="inline", on_error=sv.Skip(COUNT)), [200])
    assert sum(len(batch["w"]) for batch in loader) == COUNT - sum(i % 9 == 3 for i in range(COUNT))
