"""Some random pipelines of each run; `make fuzz` does this for minutes or a night."""

from __future__ import annotations

import os
import time

import pytest
from fuzz_case import Case, Tree
from fuzz_check import check
from fuzz_draw import draw
from fuzz_shrink import shrink
from fuzz_ways import SHARED, Different, Effort
from mutations import MUTATIONS, cases_until_found, mutate

import silva as sv

FIXED = 20261118
"""The first seed in continuous integration: a red run there is due to the change that it tests."""
SEED = int(os.environ.get("SEED") or (FIXED if os.environ.get("CI") else time.time_ns() % 10**9))


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
            pytest.fail(
                f"seed {seed} (run it again with SEED={first}): {error}\n\n{case.text}\n\n"
                f"smaller: {said}\n\n{less.text}"
            )
        except Exception as error:
            error.add_note(f"seed {seed} (run it again with SEED={first}):\n\n{case.text}")
            raise


def test_random_pipelines_give_one_stream_in_every_way(effort):
    effort.processes = 0.05
    check_cases(SEED, 16, effort)


@pytest.mark.rest
def test_many_random_pipelines_give_one_stream_in_every_way(effort):
    check_cases(SEED + 1000, 400, effort)


def test_a_seed_means_one_case():
    for seed in range(SEED, SEED + 20):
        assert draw(seed).text == draw(seed).text, f"seed {seed}"
        assert _built(draw(seed)) == _built(draw(seed)), f"seed {seed}"


def _built(case: Case) -> str:
    """The fingerprint, or why silva refuses the pipeline."""
    try:
        return case.build().fingerprint
    except sv.SilvaError as error:
        return str(error)


REFUSED = {
    "must return a dict": Tree("memory(4, x='int64')", verbs=(".map_rows(lambda row: 3)",)),
    "cache keeps rows by the source row": Tree(
        (Tree("parquet(9, 1, 3, x='int64')", verbs=(".shuffle(1)", ".take(3)", ".cache()")),) * 2,
        "sv.mix({}, seed=1)",
        (".map_rows(lambda row: {**row, 'x': row['x'] + 1})", ".batch(2)"),
    ),
    "row 0:0 failed": Tree(
        "memory(4, x='int64')", verbs=(".explode('x')", ".map_rows(lambda row: row)")
    ),
}
"""Pipelines that silva refuses when they are written, with a part of what it says."""


@pytest.mark.parametrize("said", REFUSED)
def test_a_refusal_of_the_pipeline_as_written_is_an_outcome(effort, said):
    with pytest.raises(sv.SilvaError, match=said):
        REFUSED[said].build()
    check(Case(0, REFUSED[said]), effort)


def test_a_refusal_that_changes_its_words_is_found(effort):
    words = iter(range(100))

    class Changing(Case):
        def build(self):
            raise sv.PlanError(f"refused {next(words)}")

    with pytest.raises(Different, match=r"refused 0.*refused 1"):
        check(Changing(0, Tree("memory(1)")), effort)


def test_the_cases_hold_everything_that_there_is():
    """So that the tests before this one mean something."""
    texts = "".join(draw(seed).text for seed in range(1500))
    wanted = [
        "memory(", "items(", "arrow(", "parquet(", "ipc(", "jsonl(", "csv(", "table(", "tar(",
        "npy(", "files(", "lines(", "torch_map(", "torch_stream(", "torch_sized(", "own_rows(",
        "own_units(", "'few'", "'lengths'", "'raises'", "'length'", ".derive(",
        ".filter(", ".select(", ".drop(", ".rename(", ".explode(", ".map_rows(", ".shuffle(",
        "'window'", ".sample(", ".take(", ".skip(", ".batch(", "drop_last", "pad=", "grouped=",
        "tokens=", "collate=", ".bucket(", ".pack(", ".cache()", ".cache(folder", ".join(",
        ".asof_join(", "sv.mix(", "'repeat'", "'first'", "'all'", "sv.zip(", "sv.concat(",
        "sv.batched(", "counts(", "sv.impure(", "Adds(", "rng", "global_draw(", "looks_around(",
        "sv.Skip()", "at_most=", "rate=", "sv.Substitute(", "shards=", ".split(", "owned(",
        "StopIteration", "'next'", "GeneratorExit", "SystemExit", "CancelledError", "'Own'",
        "BadStr", "BadReduce", "Unpicklable", "ExceptionGroup", "RecursionError",
        "x='strided'", "x='backwards'", "w='broadcast'", "a='broadcast'", "a='backwards'",
        "a='transposed'", "l='views'", "np.broadcast_to(", "[::-1]", "w='unmasked'", "a='masked'",
        "a='holes'", "a='unmasked'", "l='masked'", "n='constants'", "np.ma.array(", "np.ma.masked",
        "s='nuls'", "s='numpy'", "s='surrogates'", "o='nuls'", "o='numpy'", "np.str_(",
        "np.bytes_(", "o='records'", "'holed pairs'", "Substitute(np.zeros", "Substitute(np.ma",
        "Substitute({", "1e308",
        ".shuffle(3).take(9).derive(weight",
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
