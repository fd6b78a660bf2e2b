"""What is stored: by cost, by wish, within a budget; and what is told about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.store.derived.storage_choice import BETTER, Candidate, Costs, choose
from silva.store.versions.audit import Read, count_reads, note, reads
from silva.store.versions.table_folder import Folder

AMOUNTS = st.floats(0.001, 1000)
CANDIDATES = st.builds(
    Candidate,
    st.uuids().map(str),
    st.builds(Costs, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS),
    st.floats(0, 100),
    st.booleans(),
    st.sampled_from([None, None, None, "always", "never"]),
    st.sampled_from([None, None, None, "it is random"]),
)
MANY = st.lists(CANDIDATES, max_size=8)


def total(candidates: list[Candidate], store: dict[str, bool]) -> float:
    return sum(c.when_stored if store[c.name] else c.on_read for c in candidates)


@given(st.lists(CANDIDATES.map(lambda c: replace(c, pin=None, unstorable=None)), max_size=8))
def test_the_choice_is_near_the_best_and_never_far_from_all_or_nothing(
    candidates: list[Candidate],
) -> None:
    chosen = total(candidates, {d.name: d.store for d in choose(candidates)})
    best = sum(min(c.when_stored, c.on_read) for c in candidates)
    assert chosen <= BETTER * best * (1 + 1e-9)


@given(MANY, st.floats(0, 3000))
def test_budget_pins_and_what_cannot_be_stored_are_respected(
    candidates: list[Candidate], budget: float
) -> None:
    made = choose(candidates, budget)
    assert [d.name for d in made] == [c.name for c in candidates]
    stored = [c for c, d in zip(candidates, made, strict=True) if d.store]
    assert sum(c.costs.bytes for c in stored) <= budget * (1 + 1e-9)
    assert not [c for c in stored if c.pin == "never" or c.unstorable]
    for candidate, decision in zip(candidates, choose(candidates), strict=True):
        if candidate.pin == "always" and not candidate.unstorable:
            assert decision.store


@given(CANDIDATES)
def test_what_was_chosen_stays_chosen(candidate: Candidate) -> None:
    (first,) = choose([candidate])
    (again,) = choose([replace(candidate, stored=first.store)])
    assert again.store == first.store


def slow(x: int) -> int:
    return sum(i * x for i in range(2000))


@pytest.fixture
def table(tmp_path: Path) -> sv.Table:
    made = sv.Table.create(tmp_path / "t", pa.table({"x": np.arange(300), "y": np.arange(300)}))
    return made.derive(slow=slow, twice=sv.col("x") * 2, both=lambda slow, twice: slow + twice)


def is_stored(table: sv.Table, name: str) -> bool:
    return f"{name} (stored)" in str(table.read([name]).explain())


def test_a_column_that_is_read_often_and_slow_is_stored(table: sv.Table) -> None:
    table.optimize()
    assert not is_stored(table, "slow"), "nobody reads it"
    table.expect(slow=1e6)
    assert "optimize() would store it" in table.explain()
    table.optimize()
    assert is_stored(table, "slow")
    number = table.version.number
    table.optimize()
    assert table.version.number == number
    table.pin(slow="never", twice="always").optimize()
    assert not is_stored(table, "slow")
    assert is_stored(table, "twice")
    table.pin(twice=None).expect(twice=0).optimize(budget=1)
    assert not is_stored(table, "twice")


def test_the_explanation_names_bytes_reasons_and_lineage(table: sv.Table) -> None:
    table.expect(twice=3).derive(r=lambda x, rng: rng.random())
    table.materialize("slow").append(pa.table({"x": [1], "y": [1]}))
    told = str(table.explain())
    assert told.startswith(f"table {table.path} (main")
    assert "301 rows in 2 fragments" in told
    assert "stored for 1 of 2 fragments: " in told
    assert "computed on read: 0 B" in told
    assert "because 3 reads cost" in told
    assert "because it is random" in told
    assert "of slow (x), twice (x): " in told
    assert "of x: def slow(x: int) -> int: …" in told


def test_wishes_are_for_derived_columns_and_make_sense(table: sv.Table) -> None:
    with pytest.raises(sv.PlanError, match="not a derived column"):
        table.expect(x=3)
    with pytest.raises(sv.PlanError, match="a number of reads"):
        table.expect(slow=-1)
    with pytest.raises(sv.PlanError, match="'always', 'never' or None"):
        table.pin(slow="sometimes")  # type: ignore[arg-type]
    number = table.version.number
    table.pin(slow="never").pin(slow="never")
    assert table.version.number == number + 1


# Who read what.


def test_each_epoch_is_noted_with_what_it_read(table: sv.Table) -> None:
    folder = Folder(table.path)
    before = len(list(reads(folder)))
    pipeline = table.read().filter(sv.col("x") > 5).select("y", "twice").batch(50)
    with pipeline.loader(backend="inline") as loader:
        for _ in range(2):
            list(loader)
    found = list(reads(folder))[before:]
    assert [read.epoch for read in found] == [0, 1]
    assert set(found[0].columns) == {"x", "y", "twice"}
    assert (found[0].branch, found[0].version) == ("main", table.version.number)
    assert count_reads(folder, found[0].time)["twice"] >= 2


def test_what_is_long_ago_counts_for_less(table: sv.Table) -> None:
    folder = Folder(table.path)
    for days in (0, 30, 60):
        note(folder, Read(days * 86400.0, "job", 1, "main", 1, 0, ("z",)))
    assert count_reads(folder, 60 * 86400.0)["z"] == pytest.approx(1 + 0.5 + 0.25)


def test_a_table_that_cannot_be_written_to_can_be_read(table: sv.Table) -> None:
    audit = Path(table.path) / "audit"
    assert not audit.exists()
    audit.write_text("in the way")
    assert table.read(["x"]).head(1) == [{"x": 0}]


def test_a_line_that_was_cut_short_is_left_out(table: sv.Table) -> None:
    table.read(["x"]).head(1)
    (path,) = (Path(table.path) / "audit").iterdir()
    count = len(list(reads(Folder(table.path))))
    path.write_bytes(path.read_bytes() + b'{"time": 1, "jo')
    assert len(list(reads(Folder(table.path)))) == count
