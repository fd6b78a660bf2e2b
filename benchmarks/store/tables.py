"""The log as a table, and what lies in its folder."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import silva as sv
from benchmarks.store.log import Log, table


def put(path: str, rows: Any, plain: bool = False) -> sv.Table:
    """A new table of the rows, clustered if they have sessions; `plain` keeps every row of every
    column."""
    clustered = {"group": "session", "time": "ts"} if "session" in rows.column_names else {}
    store = dict.fromkeys(rows.column_names, "plain") if plain else {}
    return sv.Table.create(path, rows, store=store, **clustered)


@contextmanager
def two_tables(log: Log) -> Iterator[tuple[str, str]]:
    """The same rows deduplicated and plain, in two folders."""
    rows = table(log)
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        put(f"{folder}/dedup", rows)
        put(f"{folder}/plain", rows, plain=True)
        yield f"{folder}/dedup", f"{folder}/plain"


def files(path: str) -> dict[str, str]:
    """The hash of each file of a table; notes of who has read it are left out."""
    found = (p for p in Path(path).rglob("*") if p.is_file() and p.parent.name != "audit")
    return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in found}


def size(path: str, names: Iterable[str] | None = None) -> int:
    """Bytes of a table's files, or of some."""
    chosen = files(path) if names is None else names
    return sum((Path(path) / name).stat().st_size for name in chosen)
