"""Derived columns: definitions that cost nothing, stored or not, and nobody can tell which."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from failure_tools import run_script
from store_tools import all_files, assert_no_orphans, data_files, metadata_bytes, resealed, rows_of

import silva as sv
from silva.store.derived import materialize
from silva.store.versions.table_folder import Folder
from silva.testing import assert_same_stream, digest

ITERATOR = iter([1])


def events(first: int, count: int) -> pa.Table:
    at = np.arange(first, first + count)
    return pa.table({"id": at, "dwell": at * 7 % 60, "h": [list(range(i % 4)) for i in at]})


def long(dwell: int) -> bool:
    return dwell > 30


@pytest.fixture
def table(tmp_path: Path) -> sv.Table:
    return sv.Table.create(tmp_path / "t", events(0, 20)).append(events(20, 15))


class Note:
    """Notes what it is called with, which does not change what it is."""

    def __init__(self, seen: list[int]) -> None:
        self.__class__.seen = seen

    def __call__(self, value: int) -> None:
        self.__class__.seen.append(value)


def hashes(path: str) -> dict[Path, str]:
    return {p: hashlib.md5(p.read_bytes()).hexdigest() for p in all_files(path)}


def column(table: sv.Table, name: str) -> list[Any]:
    return [row[name] for row in rows_of(table, [name])]


def test_a_definition_writes_no_data_and_little_else(table: sv.Table) -> None:
    before = hashes(table.path)
    table.derive(clicked=long)
    after = hashes(table.path)
    assert {p: h for p, h in after.items() if p in before} == before
    new = [p for p in after if p not in before]
    assert not data_files(table.path) - before.keys()
    assert sum(p.stat().st_size for p in new) < 2000
    assert metadata_bytes(table.version) < 1000
    assert column(table, "clicked") == [d > 30 for d in column(table, "dwell")]


def test_the_same_definition_makes_no_new_version_and_another_does(table: sv.Table) -> None:
    table.derive(clicked=long)
    number = table.version.number
    table.derive(clicked=long)
    assert table.version.number == number

    def long_too(dwell: int) -> bool:
        return dwell > 30

    sv.Table.open(table.path).derive(clicked=long_too)
    assert table.version.number == number, "the same code is the same column"
    table.derive(clicked=lambda dwell: dwell > 45)
    assert table.version.number == number + 1
    assert column(table, "clicked") == [d > 45 for d in column(table, "dwell")]
    assert column(table.at(number), "clicked") == [d > 30 for d in column(table, "dwell")]


def test_definitions_read_what_there_was_when_they_were_made(table: sv.Table) -> None:
    table.derive(x=sv.col("dwell") + 1)
    table.derive(y=sv.col("x") * 10)
    table.derive(x=sv.col("x") + 1000, dwell=sv.col("dwell") * 0)
    dwell = column(table.at(1), "dwell")
    assert rows_of(table, ["x", "y", "dwell"]) == [
        {"x": d + 1001, "y": (d + 1) * 10, "dwell": 0} for d in (i * 7 % 60 for i in range(35))
    ]
    assert len(dwell) == 20
    names = [name for name, _ in table.version.definitions]
    assert names == ["x", "y", "x", "dwell"]
    table.derive(y=sv.col("dwell"), x=sv.col("id"))
    assert [name for name, _ in table.version.definitions] == ["dwell", "y", "x"]


def test_a_definition_can_come_back_while_others_read_what_was_between(table: sv.Table) -> None:
    table.derive(x=sv.col("dwell") + 1).derive(x=sv.col("dwell") + 2)
    table.derive(y=sv.col("x") * 10).derive(x=sv.col("dwell") + 1)
    assert rows_of(table, ["x", "y"]) == [
        {"x": d + 1, "y": (d + 2) * 10} for d in (i * 7 % 60 for i in range(35))
    ]
    table.materialize("x", "y")
    assert rows_of(table, ["y", "x"])[3] == {"y": 230, "x": 22}
    table.derive(x=sv.col("dwell") + 2)
    assert [name for name, _ in table.version.definitions] == ["x", "y"]


def test_a_stored_column_is_small_and_touches_no_other_file(table: sv.Table) -> None:
    table.derive(clicked=long)
    before = hashes(table.path)
    table.materialize("clicked")
    after = hashes(table.path)
    assert {p: h for p, h in after.items() if p in before} == before
    assert column(table, "clicked") == [d > 30 for d in column(table, "dwell")]
    assert table.materialize("clicked").versions()[-1].what == "store clicked of 2 fragments"


def test_what_is_stored_is_not_computed_and_what_is_new_is(table: sv.Table) -> None:
    calls: list[int] = []

    @sv.stateful
    class Square:
        def __init__(self, seen: Any) -> None:
            self.seen = seen

        def __call__(self, dwell: int) -> int:
            self.seen(dwell)
            return dwell * dwell

    source = table.derive(square=Square(Note(calls))).materialize("square")
    table.append(events(35, 5))
    assert len(calls) == 35
    calls.clear()
    with source.read().loader(backend="inline") as loader:
        rows = list(loader)
        assert "square (stored in 2 of 3 fragments)" in str(loader.explain())
    assert [r["square"] for r in rows] == [int(r["dwell"]) ** 2 for r in rows]
    assert calls == [d * 7 % 60 for d in range(35, 40)]


def test_a_column_is_stored_for_all_who_define_it_alike(table: sv.Table) -> None:
    table.derive(clicked=long).materialize("clicked")
    exp = table.branch("exp").derive(clicked=lambda dwell: dwell > 45)
    assert "read_stored" not in str(exp.read(["clicked"]).explain())
    back = table.branch("back").derive(clicked=lambda dwell: dwell > 45).derive(clicked=long)
    assert "clicked (stored)" in str(back.read(["clicked"]).explain())
    mine = sv.read_table(table.path, 2).derive(own=long)
    assert "read_stored" not in str(mine.explain()), "version 2 is older than what is stored"
    assert column(exp, "clicked") != column(table, "clicked")


def test_a_program_without_the_function_reads_what_is_stored(
    table: sv.Table, tmp_path: Path
) -> None:
    table.derive(clicked=long, twice=sv.col("dwell") * 2)
    script = """
import sys, silva as sv
try:
    sv.read_table(sys.argv[1])
except sv.TableError as error:
    print(error)
print(sum(row["twice"] for row in sv.read_table(sys.argv[1], columns=["twice"])))
t = sv.Table.open(sys.argv[1])
def long(dwell: int) -> bool:
    return dwell > 30
number = t.version.number
t.derive(clicked=long)
print(t.version.number - number, sum(row["clicked"] for row in t.read(["clicked"])))
"""
    said = run_script(tmp_path, script, table.path)
    assert "'clicked' of table" in said
    assert "is a function that this program does not have, and it is not stored" in said
    assert said.splitlines()[-2:] == [
        str(sum(column(table, "twice"))),
        f"0 {sum(column(table, 'clicked'))}",
    ]
    table.materialize("clicked")
    stranger = sv.Table.open(table.path)
    assert column(stranger, "clicked") == column(table, "clicked")
    table.append(events(40, 2))
    with pytest.raises(sv.TableError, match="it is stored in 2 of 3 fragments"):
        stranger.read(["clicked"])
    with pytest.raises(sv.TableError, match="derive it again"):
        stranger.materialize("clicked")


@pytest.mark.parametrize(
    "step",
    [
        lambda dwell: dwell > 30,
        lambda dwell: dwell / 7,
        lambda dwell: None if dwell % 3 == 0 else dwell,
        lambda dwell: f"é{dwell}",
        lambda dwell: bytes([dwell]),
        lambda dwell: [dwell] * (dwell % 3),
        lambda dwell: None if dwell % 5 == 0 else ["a", str(dwell)],
        lambda dwell: np.full((2, 3), dwell, np.float32),
        lambda dwell: np.float32(dwell),
        lambda dwell: None,
        sv.list("h").length(),
        sv.list("h").truncate(2),
        sv.col("dwell") % 5 == 0,
        3,
        "text",
    ],
)
def test_nobody_can_tell_what_is_stored_from_what_is_computed(table: sv.Table, step: Any) -> None:
    table.derive(y=step)
    read = table.read(["id", "y"]).derive(seen=lambda y: f"{type(y).__name__} {y!r}").batch(4)
    with read.loader(backend="inline") as loader:
        computed = [digest(batch) for batch in loader]
    for stored_first in (True, False):
        if stored_first:
            head = table.version
            with pytest.MonkeyPatch.context() as patch:  # only the first of two fragments
                patch.setattr(materialize, "_COMMIT", 1)
                patch.setattr(sv.Table, "_commit", _first_only(sv.Table._commit))
                table.materialize("y")
            assert table.version != head
        else:
            table.materialize("y")
        again = table.read(["id", "y"]).derive(seen=lambda y: f"{type(y).__name__} {y!r}").batch(4)
        with again.loader(backend="inline") as loader:
            assert [digest(batch) for batch in loader] == computed
            assert "read_stored" in str(loader.explain())


def _first_only(commit: Any) -> Any:
    done: list[int] = []

    def first(self: sv.Table, change: Any) -> Any:
        if done:
            return self.version
        done.append(1)
        return commit(self, change)

    return first


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (lambda dwell: dwell if dwell % 2 else dwell / 2, "rows of float and int"),
        (lambda dwell: [dwell, "a"], "lists of int and str"),
        (lambda dwell: np.zeros(dwell % 3), "arrays of different shapes"),
        (lambda dwell: np.zeros((2, 0)), "arrays without items"),
        (lambda dwell: {"a": dwell}, "rows of dict"),
        (lambda dwell: 1 << 70, "Arrow cannot hold"),
        (lambda dwell, rng: rng.random(), "it is random"),
        (lambda dwell: float(np.random.random()), "generators of numpy"),
        (sv.impure(lambda dwell: dwell), "it is impure"),
        (lambda dwell, iterator=ITERATOR: dwell, "holds in one process only"),
        (lambda dwell: 1 // (dwell - 7), "ZeroDivisionError"),
    ],
)
def test_what_would_not_come_back_as_it_was_is_not_stored(
    table: sv.Table, step: Any, why: str
) -> None:
    table.derive(y=step)
    version, before = table.version, all_files(table.path)
    with pytest.raises(sv.TableError, match=why):
        table.materialize("y")
    assert table.version == version
    assert all_files(table.path) - before == set()


def test_rows_on_which_a_definition_fails_follow_the_policy_of_the_loader(
    table: sv.Table,
) -> None:
    def inverse(dwell: int) -> float:
        return 1 / dwell

    table.derive(y=inverse)
    expected = [1 / d for d in column(table, "dwell") if d]
    for _ in range(2):
        read = table.read(["y"])
        with read.loader(backend="inline", on_error=sv.Skip(at_most=5)) as loader:
            assert [row["y"] for row in loader] == expected
            assert len(loader.failures) == 1
        with pytest.raises(sv.RowError, match="ZeroDivisionError"), read.loader() as loader:
            list(loader)
        table.materialize("y", on_error="skip")
    assert "stored in 1 of 2 fragments" in str(table.read(["y"]).explain())


def test_a_state_is_good_whether_a_column_is_stored_or_not(table: sv.Table) -> None:
    table.derive(clicked=long)

    def pipeline() -> sv.Pipeline:
        return table.read().filter(sv.col("clicked")).shuffle(seed=4).select("id").batch(3)

    with pipeline().loader(backend="inline") as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = [b["id"].tolist() for b in batches]
    table.materialize("clicked")
    with pipeline().loader(backend="inline") as loader:
        loader.load_state_dict(state)
        assert [b["id"].tolist() for b in loader] == rest


@pytest.mark.rest
def test_a_partly_stored_column_is_the_same_stream_however_it_is_run(table: sv.Table) -> None:
    table.derive(clicked=long).materialize("clicked").append(events(35, 9))
    table.delete(sv.col("id") % 5 == 1)
    rows = table.read().shuffle(seed=1).filter(sv.col("clicked")).select("id", "clicked")
    assert_same_stream(rows.batch(10), workers=(2,), epochs=1)


def test_deletions_and_stored_columns_go_together(table: sv.Table) -> None:
    table.derive(sq=lambda dwell: dwell * dwell)
    table.delete(sv.col("sq") > 900).materialize("sq").delete(sv.col("dwell") == 0)
    assert rows_of(table, ["dwell", "sq"]) == [
        {"dwell": d, "sq": d * d} for d in (i * 7 % 60 for i in range(35)) if 0 < d <= 30
    ]
    table.gc()
    assert_no_orphans(table.path)


def test_rows_appended_while_a_column_is_stored_are_computed(
    table: sv.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.derive(y=sv.col("dwell") * 2)
    real, other = materialize._parts, sv.Table.open(table.path)

    def parts(*arguments: Any) -> Any:
        if other.rows == 35:
            other.append(events(35, 5)).delete(sv.col("id") == 2)
        return real(*arguments)

    monkeypatch.setattr(materialize, "_parts", parts)
    table.materialize("y")
    assert "y (stored in 2 of 3 fragments)" in str(table.read(["y"]).explain())
    dwell = [i * 7 % 60 for i in range(40) if i != 2]
    assert column(table, "y") == [2 * d for d in dwell]
    table.gc()
    assert_no_orphans(table.path)


def test_a_version_that_was_collected_does_not_come_back_without_its_definitions(
    table: sv.Table,
) -> None:
    old = table.derive(y=sv.col("dwell") * 2).at(table.version.number)
    table.derive(y=sv.col("dwell") * 3).gc(versions=1)
    with pytest.raises(sv.TableError, match=r"collected by gc\(versions=…\)"):
        old.read()
    with pytest.raises(sv.TableError, match=r"collected by gc\(versions=…\)"):
        old.branch("back")
    assert table.branches() == ("main",)


def test_gc_forgets_what_is_stored_of_columns_that_nobody_defines(table: sv.Table) -> None:
    table.derive(y=sv.col("dwell") * 2).materialize("y").tag("old")
    table.derive(y=sv.col("dwell") * 3).materialize("y")
    many = len(data_files(table.path))
    table.gc(versions=1)
    assert len(data_files(table.path)) == many, "the tag has it"
    (Path(table.path) / "tags" / "old.json").unlink()
    table.gc(versions=1)
    assert len(data_files(table.path)) == many - 2
    assert "y (stored)" in str(table.read(["y"]).explain())
    assert column(table, "y") == [d * 3 for d in column(table, "dwell")]
    table.derive(y=sv.col("dwell") * 2)
    assert column(table, "y") == [d * 2 for d in column(table, "dwell")]
    assert_no_orphans(table.path)


def test_statistics_of_stored_columns_pass_fragments_over(table: sv.Table) -> None:
    table.derive(big=sv.col("id") * 100).materialize("big")
    wanted = table.read().filter(sv.col("big") >= 2000).select("id")
    explained = " ".join(str(wanted.explain()).split())
    assert "1 of 2 fragments skipped by their statistics" in explained
    assert [row["id"] for row in wanted] == list(range(20, 35))


def test_a_tampered_definition_is_not_used(table: sv.Table) -> None:
    table.derive(twice=sv.col("dwell") * 2)
    (path,) = (Path(table.path) / "definitions").iterdir()
    body = resealed(path, lambda body: body.replace(b'["literal",2]', b'["literal",3]'))
    assert b'["literal",3]' in body
    with pytest.raises(sv.TableError, match="this program does not have"):
        sv.read_table(table.path)


def test_mistakes_are_told_when_they_are_made(table: sv.Table) -> None:
    number = table.version.number
    with pytest.raises(sv.PlanError, match="reads 'nope'"):
        table.derive(y=sv.col("nope") + 1)
    with pytest.raises(sv.PlanError, match="reads 'nope'"):
        table.derive(y=lambda nope: nope)
    with pytest.raises(sv.PlanError, match="at least one column"):
        table.derive()
    with pytest.raises(sv.PlanError, match="not a derived column"):
        table.materialize("dwell")
    with pytest.raises(sv.TableError, match="cannot be changed"):
        table.at(1).derive(y=3)
    assert table.version.number == number
    assert Folder(table.path).is_table
