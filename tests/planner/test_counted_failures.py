"""Where failures are counted, which rows fail is settled by the plan as written, whatever the costs
of steps, rules, caches and cuts make of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import silva as sv
from silva.cost.costs import Cost
from silva.planner.known_costs import Effort, Measured
from silva.planner.movable_runs import StepRun
from silva.testing import digest, replanned

ROWS = 60
POLICIES = [sv.Skip(), sv.Skip(at_most=5), sv.Skip(rate=0.05), sv.Substitute(0)]


def told(loader: sv.Loader, epochs: int = 1) -> list[Any]:
    """Rows, failures and how it ended, of each epoch."""
    found: list[Any] = []
    for _ in range(epochs):
        ended = "at the end"
        try:
            found.extend(map(digest, loader))
        except sv.SilvaError as error:
            ended = f"{type(error).__name__}: {str(error).partition('rows failed')[0]}"
        found += [ended, [(f.key, f.error) for f in loader.failures]]
        if ended != "at the end":
            break
    return found


def fails_on_some(x):
    if x % 6 == 1:
        raise ValueError(f"row {x}")
    return x >= 0


def drops_these(x):
    return x % 3 != 1


def two_filters() -> sv.Pipeline:
    return sv.from_columns({"x": range(ROWS)}).filter(fails_on_some).filter(drops_these).batch(4)


class FilterCosts:
    """Costs of filters of which each drops half of its rows; they are never measured."""

    def __init__(self, seconds: list[float]) -> None:
        self._seconds = seconds

    effort = Effort(math.inf, math.inf, math.inf)

    def before(self, run: StepRun) -> Measured:
        costs = zip(run.steps, self._seconds, strict=True)
        steps = {step.id: Cost(100, 50, cost, cost, {}) for step, cost in costs}
        return Measured(Cost(100, 100, 1e-6, 1e-6, {"x": 800}), Cost(), steps)

    def now(self, run: StepRun) -> Measured:
        return Measured()

    def keep(self, runs: Sequence[StepRun], known: Sequence[Measured]) -> None:
        pass


def believing(loader: sv.Loader, seconds: list[float]) -> sv.Loader:
    """The loader, sure from the start that its steps cost so much, and that each filter drops half
    of its rows."""
    return loader.with_seams(costs=FilterCosts(seconds))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seconds", [[10.0, 0.001], [0.001, 10.0]])
def test_two_filters_fail_as_written_whichever_is_cheaper(policy, seconds):
    options = {"backend": "inline", "on_error": policy}
    expected = told(two_filters().options(optimize=False).loader(**options))
    assert len(expected[-1]) == (10 if expected[-2] == "at the end" else len(expected[-1]))
    assert told(believing(two_filters().loader(**options), seconds)) == expected
    assert told(two_filters().loader(**options)) == expected


def test_where_failures_end_the_run_the_cheaper_filter_comes_first():
    pipeline = sv.from_columns({"x": range(ROWS)}).filter(fails_on_some).filter(drops_these)
    with believing(pipeline.batch(4).loader(backend="inline"), [10.0, 0.001]) as loader:
        assert len(list(loader)) == 10
        assert [d.name for d in loader.facts().decisions if d.kind == "choice"] == ["order"]


def decoded(x):
    if x % 4 == 2:
        raise KeyError(x)
    return np.full(8, x)


def test_a_filter_does_not_overtake_a_step_that_may_fail_and_explain_says_so():
    pipeline = (
        sv.from_columns({"x": range(ROWS)}).derive(y=decoded).filter(sv.col("x") % 2 == 1).batch(4)
    )
    for policy in POLICIES:
        options = {"backend": "inline", "on_error": policy}
        expected = told(pipeline.options(optimize=False).loader(**options))
        with pipeline.loader(**options) as loader:
            assert told(loader) == expected
            text = " ".join(str(loader.explain()).split())
        assert "filter_early" in text
        assert "not used: failures are counted" in text
    assert len(told(pipeline.loader(backend="inline"))[-1]) == 0, "dropped early, it cannot fail"


def noisy(y, rng):
    return y + rng.random()


def wide() -> sv.Pipeline:
    return (
        sv.from_columns({"x": range(ROWS), "z": range(ROWS)})
        .derive(r=lambda x, rng: rng.random() if x % 10 else [][x])
        .derive(y=lambda z: z * 2 if z % 7 else 1 // z if z else 0)
        .filter(lambda z: z % 5 != 0)
        .derive(w=noisy)
        .filter(fails_on_some)
        .filter(sv.col("z") != 13)
        .derive(unread=lambda x: 1 // 0)
        .select("x", "y", "r", "w")
        .batch(4)
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_other_costs_caches_and_cuts_change_no_failure(policy, seed):
    options = {"backend": "inline", "epochs": 3, "on_error": policy}
    expected = told(wide().options(optimize=False).loader(**options), 3)
    assert told(replanned(wide().loader(**options), seed), 3) == expected


def fails_to_read(path):
    return Path(path).name != "03.bin"


def test_what_a_filter_drops_is_not_read_and_cannot_fail_in_any_plan(tmp_path: Path):
    for i in range(12):
        (tmp_path / f"{i:02}.bin").write_bytes(bytes([i]))
    files = sv.read_files(str(tmp_path / "*.bin"))
    pipeline = (
        files.filter(fails_to_read)
        .derive(n=lambda path: int(Path(path).stem))
        .filter(lambda n: n != 5)
        .derive(v=lambda bytes: bytes[0])
        .select("v")
        .batch(4)
    )
    assert files.count() == 12
    for gone in ("03", "05", "07"):
        (tmp_path / f"{gone}.bin").unlink()
    options = {"backend": "inline", "on_error": sv.Skip()}
    expected = told(pipeline.options(optimize=False).loader(**options))
    assert [key for key, _ in expected[-1]] == ["0:7"]
    assert told(pipeline.loader(**options)) == expected
    for seed in range(6):
        assert told(replanned(pipeline.loader(**options), seed)) == expected


def test_statistics_pass_over_no_row_on_which_a_step_would_fail(tmp_path: Path):
    table = pa.table({"x": np.arange(ROWS), "text": [str(i) for i in range(ROWS)]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=10)
    rows = sv.read_parquet(str(tmp_path / "rows.parquet"))
    for pipeline in (
        rows.derive(y=decoded).filter(sv.col("x") > 35).batch(4),
        rows.filter(sv.col("x") > 35).derive(y=decoded).batch(4),
    ):
        options = {"backend": "inline", "on_error": sv.Skip()}
        expected = told(pipeline.options(optimize=False).loader(**options))
        assert told(pipeline.loader(**options)) == expected
