"""Tables keep what repeats once, and what is computed of it is computed once."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from store_tools import assert_no_orphans, data_files

import silva as sv
from silva.store.versions.manifest import InGroup, Part, Slices

SESSIONS, EACH = 40, 16


def log(order: np.ndarray | None = None) -> pa.Table:
    """Sessions of many rows, each with one history; and a history that slides."""
    rng = np.random.default_rng(0)
    session = np.repeat(np.arange(SESSIONS), EACH)
    fixed = rng.integers(0, 1 << 40, (SESSIONS, 20))[session]
    long = rng.integers(0, 1 << 40, (SESSIONS, 20 + EACH))
    sliding = [long[s, i : i + 20] for s in range(SESSIONS) for i in range(EACH)]
    table = pa.table(
        {
            "session": session,
            "ts": np.tile(np.arange(EACH), SESSIONS),
            "fixed": list(fixed),
            "sliding": sliding,
            "user": [f"the user called {s}" for s in session],
        }
    )
    return table if order is None else table.take(order)


def part_of(table: sv.Table) -> Part:
    (fragment,) = table._folder.all_fragments(table.version)
    return fragment.parts[-1]


@pytest.fixture
def table(tmp_path: Path) -> sv.Table:
    shuffled = np.random.default_rng(1).permutation(SESSIONS * EACH)
    return sv.Table.create(tmp_path / "t", log(shuffled), group="session", time="ts")


def test_rows_come_back_whatever_they_share(table: sv.Table) -> None:
    assert pa.table(table.read().loader(backend="inline")).cast(log().schema).equals(log())
    columns = part_of(table).columns
    assert isinstance(columns["fixed"], InGroup)
    assert isinstance(columns["sliding"], Slices)
    assert columns["user"] == columns["fixed"]  # they change together
    told = table.explain()
    assert "each stored value is shared by 16.0" in told


def test_how_a_column_is_stored_can_be_said(tmp_path: Path) -> None:
    made = sv.Table.create(
        tmp_path / "t", log(), group="session", store={"fixed": "plain", "sliding": "grouped"}
    )
    made.append(log())
    for fragment in made._folder.all_fragments(made.version):
        assert isinstance(fragment.parts[0].columns["fixed"], Slices)
        assert fragment.parts[0].columns["sliding"] == InGroup(1)
    with pytest.raises(sv.ColumnError, match="'ts' is int64: only lists can be slices"):
        sv.Table.create(tmp_path / "u", log(), store={"ts": "slices"})
    assert not list((tmp_path).glob("u/data/*"))


def test_a_function_of_what_repeats_is_called_once_for_each_distinct_row(table: sv.Table) -> None:
    calls = []

    def total(fixed):
        calls.append(1)
        return int(fixed.sum() % 1000)

    expected = [int(np.array(row).sum() % 1000) for row in log().column("fixed").to_pylist()]
    table.derive(total=total)
    read = [b["total"] for b in table.read().select("total").batch(64).loader(backend="inline")]
    assert np.concatenate(read).tolist() == expected
    assert sum(calls) <= 2 * SESSIONS  # a session may lie in two blocks

    calls.clear()
    table.materialize("total")
    assert sum(calls) == SESSIONS
    part = part_of(table)
    assert isinstance(next(iter(part.columns.values())), InGroup)
    calls.clear()
    read = [b["total"] for b in table.read().select("total").batch(64).loader(backend="inline")]
    assert np.concatenate(read).tolist() == expected
    assert not calls


def test_random_numbers_are_not_stored_once_for_what_repeats(table: sv.Table) -> None:
    table.derive(noise=lambda user: len(user) + random.random())
    with pytest.raises(sv.TableError, match="draws from the generators of random"):
        table.materialize("noise")
    assert len({row["noise"] for row in table.read().head(SESSIONS * EACH)}) == SESSIONS * EACH


def test_a_value_that_only_deleted_rows_have_may_fail(table: sv.Table) -> None:
    bad = log().column("user").to_pylist()[0]

    def size(user):
        if user == bad:
            raise ValueError("not this one")
        return len(user)

    table.delete(sv.col("user") == bad)
    table.derive(size=size).materialize("size")
    read = [row["size"] for row in table.read().select("size").head(1000)]
    assert read == [len(u) for u in log().column("user").to_pylist() if u != bad]


def test_a_column_under_the_index_of_another_keeps_its_files(table: sv.Table) -> None:
    table.derive(size=lambda user: len(user)).materialize("size")
    table.gc(versions=1)
    assert_no_orphans(table.path)
    assert table.read().select("size").count() == SESSIONS * EACH
    before = {p: p.read_bytes() for p in data_files(table.path)}
    table.append(log())
    assert all(p.read_bytes() == data for p, data in before.items())
    assert table.read().select("size").count() == 2 * SESSIONS * EACH
