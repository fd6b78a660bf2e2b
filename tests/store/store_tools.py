"""What the tests of tables share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import silva as sv
from silva.store.versions.manifest import Version, files_of
from silva.store.versions.sealed import FORMAT, Sealed, name_of
from silva.store.versions.table_folder import Folder


def rows_of(table: sv.Table, columns: list[str] | None = None) -> list[dict[str, Any]]:
    """All rows of a table, read in its own order."""
    with table.read(columns).loader(backend="inline") as loader:
        return [{name: _plain(value) for name, value in row.items()} for row in loader]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def named_files(path: str | Path) -> set[Path]:
    """Every file that a table's versions name, the versions among them."""
    folder = Folder(path)
    found: set[Path] = {folder.path / "tags" / f"{name}.json" for name in folder.all_tags()}
    for branch in folder.branches():
        for number in folder.numbers(branch):
            found.add(folder.path / "versions" / branch / f"{number:010d}.json")
            version = folder.entry(branch, number)
            if not isinstance(version, Version):
                continue
            found.add(folder.path / "schemas" / f"{version.schema}.json")
            definitions = folder.path / "definitions"
            found |= {definitions / f"{name}.json" for _, name in version.definitions}
            for ref in version.lists:
                found.add(folder.path / "lists" / f"{ref.name}.json")
                for fragment in folder.fragments(ref):
                    found |= {folder.data.path / file.name for file in files_of(fragment)}
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


def resealed(path: Path, change: Callable[[bytes], bytes]) -> bytes:
    """Changes a sealed file as somebody could who knows how it is sealed: what it says then."""
    body = change(bytes(msgspec.json.decode(path.read_bytes(), type=Sealed).body))
    path.write_bytes(msgspec.json.encode(Sealed(FORMAT, name_of(body), msgspec.Raw(body))))
    return body


def metadata_bytes(version: Version) -> int:
    return len(msgspec.json.encode(version))
