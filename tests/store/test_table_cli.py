"""`silva table …`: what it prints, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import silva as sv
from silva.cli import main


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["table", *arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def table(tmp_path: Path) -> sv.Table:
    made = sv.Table.create(tmp_path / "clicks", pa.table({"x": [1, 2, 3]}), key="x").tag("first")
    return made.append(pa.table({"x": [4]})).derive(y=sv.col("x") * 2, z=lambda x: -x)


def test_tables_are_listed(table: sv.Table, tmp_path: Path, capsys) -> None:
    table.branch("exp")
    assert run("ls", str(tmp_path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "clicks  exp 4: branch from main 3  4 rows",
        "clicks  main 3: derive y, z  4 rows",
    ]
    assert run("ls", str(tmp_path / "clicks")) == 0
    assert capsys.readouterr().out.startswith("no tables in")


def test_versions_tags_and_readers_are_shown(table: sv.Table, capsys) -> None:
    table.read(["y"]).head(1)
    assert run("show", table.path) == 0
    out = capsys.readouterr().out
    assert "main 1: create with 3 rows  3 rows  [first]" in out
    assert "read x, y of main 3" in out


def test_columns_are_stored_and_explained(table: sv.Table, capsys) -> None:
    assert run("materialize", table.path, "y") == 0
    assert capsys.readouterr().out == "main 4: store y of 2 fragments\n"
    assert run("explain", table.path) == 0
    out = capsys.readouterr().out
    assert "x (key)" in out
    assert "of x: x * 2" in out
    assert "this program does not have its function" in out
    assert run("materialize", table.path, "z") == 2
    assert "derive it again" in capsys.readouterr().err
    assert run("materialize", table.path) == 2
    assert run("explain", table.path, "--version", "first") == 0


def test_what_changed_between_versions_is_told(table: sv.Table, capsys) -> None:
    table.delete(sv.col("x") == 2).materialize("y")
    assert run("diff", table.path, "first") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "+ y: x * 2"
    assert out[1].startswith("+ z: ")
    assert out[2:] == ["+ 1 row", "- 1 row", "  y: stored for 2 fragments, before 0"]
    table.derive(y=sv.col("x") * 3)
    assert run("diff", table.path, "5", "main") == 0
    assert "~ y: x * 2 → x * 3" in capsys.readouterr().out
    assert run("diff", table.path, "2", "2") == 0
    assert capsys.readouterr().out == "no difference\n"


def test_garbage_is_collected(table: sv.Table, capsys) -> None:
    assert run("gc", table.path) == 0
    assert capsys.readouterr().out == "removed 0 files, 0 B\n"
    assert run("gc", table.path, "--versions", "0") == 2


def test_mistakes_are_one_line(tmp_path: Path, capsys) -> None:
    assert run("show", str(tmp_path)) == 2
    assert "is not a table" in capsys.readouterr().err
    assert run("ls", str(tmp_path / "nowhere")) == 2
