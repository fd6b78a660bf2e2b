"""What attacks on tables share: a table of every kind of column, and all that can be read of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from store_tools import resealed

import silva as sv
from silva.store.derived.definitions import recipes
from silva.store.derived.table_source import TableSource
from silva.store.versions.sealed import name_of
from silva.store.versions.table_folder import Folder
from silva.testing import digest


def make_table(path: Path, rows: int = 40, first: int = 0) -> sv.Table:
    """Numbers, nulls, text, lists, repeated and derived columns, put ones and deleted rows."""
    ids = np.arange(first, first + rows)
    data = pa.table(
        {
            "id": ids,
            "price": pa.array([None if i % 7 == 0 else i / 3 for i in ids.tolist()]),
            "text": [f"Text {i} " * 3 for i in ids],
            "bio": [f"a long biography of user {i % 4}" * 4 for i in ids],
            "seen": [list(range(i, i + i % 5)) for i in ids.tolist()],
            "tags": [[f"tag {j}" for j in range(i % 3)] for i in ids.tolist()],
        }
    )
    table = sv.Table.create(path, data.slice(0, rows * 3 // 4), key="id", store={"bio": "grouped"})
    table.derive(twice=sv.col("id") * 2, quiet=sv.text("text").lower()).materialize("quiet")
    table.tag("first")
    table.append(data.slice(rows * 3 // 4))
    table.put("score", [0.5, 0.25], keys=[first + 3, first + 31], default=0.0)
    return table.delete(sv.col("id") == first + 5)


def read_all(path: Path) -> str:
    """All rows of the last version and of the tagged one, and what led there, as one digest."""
    table = sv.Table.open(path)
    found: list[Any] = [(v.number, v.what) for v in table.versions()]
    found += [_rows(path, each) for each in (table, table.at("first"))]
    return digest(found)


def _rows(path: Path, table: sv.Table) -> dict[str, Any]:
    """Straight from the source: thousands of tables are read."""
    folder, names = Folder(path), table.columns
    derived = [name for name, _ in table.version.definitions]
    source = TableSource.of(folder, table.version)
    source = source.with_columns(recipes(folder, table.version, derived, {}), derived)
    columns = source.read(np.arange(source.length()), names)
    return {name: [_plain(row) for row in column.rows()] for name, column in columns.items()}


def _plain(row: Any) -> Any:
    return row.tolist() if hasattr(row, "tolist") else row


def json_files(path: Path) -> list[Path]:
    """Every manifest of a table, but for who read it."""
    return sorted(p for p in path.rglob("*.json"))


def data_files(path: Path) -> list[Path]:
    return sorted(p for p in (path / "data").rglob("*") if p.is_file())


def renamed(path: Path, kind: str, old: Path, data: bytes) -> None:
    """Puts other contents in the place of a list or schema, as somebody could who knows how they
    are named: each version that names it names the new one."""
    new = name_of(data)
    (path / kind / f"{new}.json").write_bytes(data)
    for version in sorted((path / "versions").rglob("*.json")):
        resealed(version, lambda body: body.replace(old.stem.encode(), new.encode()))


def changed(path: Path, file: Path, change: Callable[[Any], Any]) -> None:
    """Changes what a manifest says, with every hash as it should be."""
    data = file.read_bytes()
    if file.parent.name in ("lists", "schemas"):
        renamed(path, file.parent.name, file, json.dumps(change(json.loads(data))).encode())
    else:
        resealed(file, lambda body: json.dumps(change(json.loads(body))).encode())


class Copy:
    """A table that can be damaged and made whole again."""

    def __init__(self, source: Path, path: Path) -> None:
        self._source, self.path = source, path
        self.restore()

    def restore(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self._source, self.path, symlinks=True)
