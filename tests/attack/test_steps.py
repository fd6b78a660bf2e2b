"""Whatever a step raises is its row's failure, on every backend; Ctrl-C alone stops the loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failure_tools import worker_pids
from steps_tools import (
    BAD,
    COUNT,
    KINDS,
    QUICK,
    STEPS,
    NoMessage,
    fail_if_bad,
    numbers,
    pipeline_of,
)

import silva as sv
from silva.testing import cut_blocks, digest

WAYS = [("inline", 0), ("threads", 2), ("processes", 2)]
POLICIES = {"skip": sv.Skip(), "substitute": sv.Substitute(-1)}
SILENTLY = "Never hangs, never shortens an epoch, never drops a row silently"
pytestmark = pytest.mark.attacks(SILENTLY)
every_step = pytest.mark.parametrize("step", STEPS)


def ran(pipeline: sv.Pipeline, backend: str, workers: int, policy: Any) -> tuple[list[str], list]:
    """What came out, and what was written down."""
    with cut_blocks(
        pipeline.loader(backend=backend, workers=workers, on_error=policy), [7, 16]
    ) as loader:
        found = [digest(batch) for batch in loader]
        return found, [(f.key, f.step, f.error) for f in loader.failures]


def ways() -> list[Any]:
    """(step, policy, backend); those that take long are left to `make attack`."""
    found = []
    for step in STEPS:
        for policy in POLICIES:
            found.append(pytest.param(step, policy, "threads"))
            quick = step in QUICK and policy == "skip"
            marks = () if quick else pytest.mark.rest
            found.append(pytest.param(step, policy, "processes", marks=marks))
    return found


@pytest.mark.parametrize(("step", "policy", "backend"), ways())
def test_whatever_is_raised_is_recorded_with_its_row_and_step(step, policy, backend):
    pipeline, chosen = pipeline_of(step), POLICIES[policy]
    expected, failures = ran(pipeline, "inline", 0, chosen)
    assert [key.split(":")[1] for key, _, _ in failures] == [str(x) for x in BAD]
    assert len({label for _, label, _ in failures}) == 1
    assert ran(pipeline, backend, 2, chosen) == (expected, failures)
    assert ran(pipeline.options(optimize=False), "inline", 0, chosen) == (expected, failures)


def ends(step: str, kind: str, backend: str, workers: int) -> tuple[list[str], Any]:
    """What came before the row that raises `kind`, and the error."""
    row = next(x for x, name in BAD.items() if name == kind)
    found: list[str] = []
    pipeline = pipeline_of(step, [0, 2, 3, 5, 6, row, 8])
    made = pipeline.loader(backend=backend, workers=workers)
    with cut_blocks(made, [7]) as loader, pytest.raises(sv.RowError) as caught:
        found.extend(map(digest, loader))
    error = caught.value
    assert error.key.split(":")[1] == "5"
    return found, (error.key, error.step, str(error).splitlines()[-2])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_ends_a_run_that_raises_with_its_row(kind):
    for step in QUICK:
        found, error = ends(step, kind, "inline", 0)
        assert len(found) == (5 if step == "after batch" else 1)
        assert ends(step, kind, "threads", 1) == (found, error)


@pytest.mark.rest
@every_step
def test_each_kind_in_each_step_ends_a_run_alike_on_every_backend(step):
    for kind in KINDS:
        first, *others = [ends(step, kind, backend, min(n, 1)) for backend, n in WAYS]
        assert [first, first] == others, kind


@pytest.mark.parametrize(("backend", "workers"), WAYS)
def test_the_failures_file_is_written_whatever_cannot_be_shown(backend, workers, tmp_path: Path):
    file = tmp_path / "failures.jsonl"
    pipeline = pipeline_of("derive")
    with pipeline.loader(
        backend=backend, workers=workers, on_error=sv.Skip(), failures=file
    ) as loader:
        rows = sum(len(batch["x"]) for batch in loader)
    assert rows == COUNT - len(BAD)
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [r["key"] for r in records] == [f"0:{x}" for x in BAD]
    told = dict(zip(BAD.values(), records, strict=True))
    assert told["NoMessage"]["error"].startswith("NoMessage (its message cannot be shown")
    assert told["surrogate"]["error"] == "ValueError: half a pair: \\ud800"


def test_a_budget_counts_what_map_would_have_swallowed():
    pipeline = numbers().derive(y=lambda x: next(v for v in [1, 2] if x % 10 or v > 2)).batch(4)
    for backend, workers in WAYS[:2]:
        with pipeline.loader(
            backend=backend, workers=workers, on_error=sv.Skip(at_most=5)
        ) as loader:
            with pytest.raises(sv.FailureBudgetExceeded) as caught:
                list(loader)
            assert isinstance(caught.value.__cause__, StopIteration)
        with pipeline.loader(
            backend=backend, workers=workers, on_error=sv.Skip(at_most=6)
        ) as loader:
            assert sum(len(batch["y"]) for batch in loader) == 54


def interrupts(x):
    if x == 20:
        raise KeyboardInterrupt
    return x


@sv.batched
def interrupts_on_columns(x):
    if (x == 20).any():
        raise KeyboardInterrupt
    return x


class Interrupts:
    def __init__(self, x):
        self.x = x

    def __bool__(self):
        return interrupts(self.x) >= 0


INTERRUPTED = {
    "derive": lambda: numbers().derive(y=interrupts).batch(4),
    "batched": lambda: numbers().derive(y=interrupts_on_columns).batch(4),
    "filter": lambda: numbers().filter(lambda x: Interrupts(x)).batch(4),
    "after batch": lambda: numbers().batch(4).derive(y=lambda x: interrupts(int(x[0]))),
}


@pytest.mark.parametrize("step", INTERRUPTED)
@pytest.mark.parametrize(("backend", "workers"), WAYS)
def test_a_keyboard_interrupt_in_a_step_stops_the_loop(step, backend, workers):
    made = INTERRUPTED[step]().loader(backend=backend, workers=workers, on_error=sv.Skip())
    loader = cut_blocks(made, [4])
    found: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(map(digest, loader))
    assert len(found) == 5
    assert not loader.failures
    assert not worker_pids()


@sv.stateful
class CannotBeBuilt:
    def __init__(self, kind):
        KINDS[kind]()

    def __call__(self, x):
        return x


@pytest.mark.parametrize("kind", ["ValueError", "StopIteration", "SystemExit", "NoMessage"])
def test_a_class_that_cannot_be_built_is_an_error_of_the_step(kind):
    for build in (
        lambda: numbers().derive(y=CannotBeBuilt(kind)).batch(4),
        lambda: numbers().batch(4).derive(y=CannotBeBuilt(kind)),
    ):
        for backend, workers in WAYS if kind == "SystemExit" else WAYS[:2]:
            with build().loader(backend=backend, workers=workers, on_error=sv.Skip()) as loader:
                with pytest.raises(sv.StepError, match=r"CannotBeBuilt.*cannot be built") as caught:
                    list(loader)
                assert type(caught.value.__cause__).__name__ == kind


@sv.batched
def fails_on_many(x):
    if len(x) > 1:
        raise StopIteration
    return x


def test_what_fails_on_a_block_but_on_no_row_is_one_error_on_every_backend():
    pipeline = numbers().derive(y=fails_on_many).batch(4)
    texts = set()
    for backend, workers in WAYS:
        with cut_blocks(pipeline.loader(backend=backend, workers=workers), [8]) as loader:
            with pytest.raises(sv.StepError, match="on none of them alone") as caught:
                list(loader)
            assert isinstance(caught.value.__cause__, StopIteration)
            texts.add(str(caught.value))
    assert len(texts) == 1


@sv.batched
def needs_a_row(x):
    return np.stack([np.asarray(v) for v in x])


def test_a_batched_function_is_not_called_for_no_rows():
    pipeline = numbers().filter(lambda x: x > 30).derive(y=needs_a_row).filter(needs_a_row).batch(4)
    for backend, workers in WAYS[:2]:
        with cut_blocks(pipeline.loader(backend=backend, workers=workers), [5]) as loader:
            assert sum(len(batch["y"]) for batch in loader) == COUNT - 31


class OddLength(list):
    def __len__(self):
        raise StopIteration


class OddSize:
    @property
    def nbytes(self):
        raise NoMessage


def test_objects_that_cannot_be_put_into_a_batch_are_told_by_their_column():
    pipeline = numbers().derive(y=lambda x: OddLength([x])).batch(4)
    for backend, workers in WAYS[:2]:
        loader = pipeline.loader(backend=backend, workers=workers)
        with loader, pytest.raises(sv.ColumnError, match=r"column 'y'.*StopIteration"):
            list(loader)
    assert len(list(numbers().derive(y=lambda x: OddSize()).batch(4).loader(workers=0))) == 15


class Ends:
    """A stream that raises something in the middle."""

    def __init__(self, kind):
        self.kind = kind

    def __iter__(self):
        for x in range(10):
            if x == 5:
                KINDS[self.kind]()
            yield {"x": x}


@pytest.mark.parametrize("kind", ["GeneratorExit", "SystemExit", "Panic", "StopIteration"])
def test_a_stream_that_raises_what_is_no_exception_is_an_error_of_the_source(kind):
    for backend, workers in WAYS[:2]:
        with sv.from_torch(Ends(kind)).batch(2).loader(backend=backend, workers=workers) as loader:
            with pytest.raises((sv.SilvaError, RuntimeError)) as caught:
                list(loader)
            assert type(caught.value.__cause__).__name__ == kind


class UnpickledBadly:
    def __init__(self, x):
        self.x = x

    def __reduce__(self):
        return (fail_if_bad, (self.x,))


class NotPickled:
    def __reduce__(self):
        raise SystemExit(3)


@pytest.mark.parametrize("x", [4, 13])
def test_results_that_end_a_process_when_they_travel_are_an_error(x):
    for make in (lambda x, at=x: UnpickledBadly(at), lambda x: NotPickled()):
        pipeline = numbers().derive(y=make).batch(4)
        loader = pipeline.loader(backend="processes", workers=1)
        with loader, pytest.raises(sv.StepError, match=r"cannot be (read by|sent back to) the"):
            list(loader)


class NoClass:
    """An object that `isinstance` cannot be asked about."""

    @property
    def __class__(self):
        raise RuntimeError("no class")


@pytest.mark.attacks("One stream")
@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_an_object_that_hides_its_class_is_handed_out_as_it_is(backend):
    rows = sv.from_columns({"x": range(4)}).derive(y=lambda x: NoClass() if x == 1 else x)
    with rows.loader(backend=backend, workers=1) as loader:
        assert [type(row["y"]) for row in loader] == [int, NoClass, int, int]
