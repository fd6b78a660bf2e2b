"""Some random pipelines of each run; `make fuzz` does this for minutes or a night."""

from __future__ import annotations

import os
import time

import pytest
from fuzz_check import check
from fuzz_draw import draw
from fuzz_shrink import shrink
from fuzz_ways import SHARED, Different, Effort
from mutations import MUTATIONS, cases_until_found, mutate

SEED = int(os.environ.get("SEED") or time.time_ns() % 10**9)


@pytest.fixture
def effort(_nothing_is_left_behind):
    """What is shared by cases ends before the test is asked what it left."""
    yield Effort()
    SHARED.end()


def check_cases(first: int, count: int, effort: Effort) -> None:
    for seed in range(first, first + count):
        case = draw(seed)
        try:
            check(case, effort)
        except Different as error:
            less, said = shrink(case, effort)
            pytest.fail(f"seed {seed}: {error}\n\n{case.text}\n\nsmaller: {said}\n\n{less.text}")


def test_random_pipelines_give_one_stream_in_every_way(effort):
    effort.processes = 0.05
    check_cases(SEED, 16, effort)


@pytest.mark.rest
def test_many_random_pipelines_give_one_stream_in_every_way(effort):
    check_cases(SEED + 1000, 400, effort)


def test_a_seed_means_one_case():
    for seed in range(SEED, SEED + 20):
        assert draw(seed).text == draw(seed).text
        assert draw(seed).build().fingerprint == draw(seed).build().fingerprint


def test_the_cases_hold_everything_that_there_is():
    """So that the tests before this one mean something."""
    texts = "".join(draw(seed).text for seed in range(1500))
    wanted = [
        "memory(", "items(", "arrow(", "parquet(", "ipc(", "jsonl(", "csv(", "table(", "tar(",
        "npy(", "files(", "lines(", "torch_map(", "torch_stream(", "torch_sized(", ".derive(",
        ".filter(", ".select(", ".rename(", ".explode(", ".map_rows(", ".shuffle(", "'window'",
        ".sample(", ".take(", ".skip(", ".batch(", "drop_last", "pad=", "grouped=", "tokens=",
        "collate=", ".bucket(", ".pack(", ".cache()", ".cache(folder", ".join(", ".asof_join(",
        "sv.mix(", "'repeat'", "'first'", "'all'", "sv.zip(", "sv.concat(", "sv.batched(",
        "counts(", "sv.impure(", "Adds(", "rng", "global_draw(", "looks_around(", "sv.Skip()",
        "at_most=", "rate=", "sv.Substitute(", "shards=", ".split(", "owned(",
        "StopIteration", "'next'", "GeneratorExit", "SystemExit", "CancelledError", "'Own'",
        "BadStr", "BadReduce", "Unpicklable", "ExceptionGroup", "RecursionError",
    ]  # fmt: skip
    assert [word for word in wanted if word not in texts] == []


@pytest.mark.rest
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_fault_that_silva_once_had_is_found(mutation):
    cases, said = cases_until_found(mutation, 1000)
    assert cases is not None, said


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutations_fit_the_code_as_it_is(mutation, tmp_path):
    mutate(mutation, tmp_path)
