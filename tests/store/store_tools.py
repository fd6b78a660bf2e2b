"""What the tests of tables share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

import silva as sv
from silva.store.folder import Folder
from silva.store.manifest import Version, files_of


def rows_of(table: sv.Table, columns: list[str] | None = None) -> list[dict[str, Any]]:
    """All rows of a table, read in its own order."""
    with table.read(columns).loader(backend="inline") as loader:
        return [{name: _plain(value) for name, value in row.items()} for row in loader]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def named_files(path: str | Path) -> set[Path]:
    """Every file that a table's versions name, the versions among them."""
    folder = Folder(path)
    found: set[Path] = {folder.tags / f"{name}.json" for name in folder.all_tags()}
    for branch in folder.branches():
        for number in folder.numbers(branch):
            found.add(folder.version_file(branch, number))
            version = folder.entry(branch, number)
            if not isinstance(version, Version):
                continue
            found.add(folder.schemas / f"{version.schema}.json")
            found |= {folder.definitions / f"{name}.json" for _, name in version.definitions}
            for ref in version.lists:
                found.add(folder.lists / f"{ref.name}.json")
                for fragment in folder.fragments(ref.name):
                    found |= {folder.data / file.name for file in files_of(fragment)}
    return found


def data_files(path: str | Path) -> set[Path]:
    """Every file that holds columns of a table."""
    return {p for p in (Path(path) / "data").rglob("*") if p.is_file()}


def all_files(path: str | Path) -> set[Path]:
    return {p for p in Path(path).rglob("*") if p.is_file()}


def assert_no_orphans(path: str | Path) -> None:
    """Every file is named, and every named file is there, at its size."""
    named, there = named_files(path), all_files(path)
    others = {"audit", "writing"}
    assert named == {p for p in there if not others & set(p.relative_to(path).parts)}


def metadata_bytes(version: Version) -> int:
    return len(msgspec.json.encode(version))
