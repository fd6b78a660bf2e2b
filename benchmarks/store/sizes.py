"""Claims about bytes on the disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims import Finding
from benchmarks.store.log import Log, table
from benchmarks.store.setting import Sizes
from benchmarks.store.tables import put, size
from silva.store.files.dedup import choose_kinds


def list_bytes(sizes: Sizes) -> Iterator[Finding]:
    """The list column alone, beside the same column in random order in Parquet."""
    for name, log, least in (
        ("unchanged 9 times of 10", Log(sizes.rows), 5.5),
        ("unchanged within a session", Log(sizes.rows, unchanged=1.0), 14),
        ("sliding by one item a row", Log(sizes.rows, slides=True), 10),
    ):
        yield _times(f"bytes of histories {name}: of Parquet, times as small", log, ["hist"], least)


def table_bytes(sizes: Sizes) -> Iterator[Finding]:
    """All columns, beside the same rows in random order in Parquet."""
    names = ["session", "ts", "dwell", "hist", "items"]
    claim = "bytes of the whole table: of Parquet in random order, times as small"
    yield _times(claim, Log(sizes.rows), names, 3.7)


def _times(claim: str, log: Log, names: list[str], least: float) -> Finding:
    rows = table(log).select(names)
    kinds = choose_kinds(rows.slice(0, min(rows.num_rows, 8192)))
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        put(f"{folder}/table", rows)
        ours = size(f"{folder}/table")
        theirs = _parquet(Path(folder) / "rows.parquet", rows)
    factor = theirs / ours
    chosen = ", ".join(f"{name} {kind}" for name, kind in kinds.items() if kind != "plain")
    shown = f"{factor:.2f} ({ours / 1e6:.2f} of {theirs / 1e6:.2f} MB; chosen: {chosen})"
    return Finding(claim, f"≥ {least:g}", shown, factor, factor >= least)


def _parquet(path: Path, rows: Any) -> int:
    """The size of the rows in random order, by pyarrow with zstd."""
    import pyarrow.parquet as pq

    order = np.random.default_rng(1).permutation(rows.num_rows)
    pq.write_table(rows.take(order), path, compression="zstd")
    return path.stat().st_size
