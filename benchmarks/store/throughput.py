"""Claims about reading whole tables; `scans` tells what each contestant hands out."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.claims import Finding
from benchmarks.measure import Children, Given, ratio
from benchmarks.store.log import Log, table
from benchmarks.store.setting import Sizes
from benchmarks.store.tables import put

_CHILDREN = Children("benchmarks.store.child", threads=2)
_FEW = 2
"""Rounds of HF datasets, which take long and are far away."""
_MOST = 5
_COLUMNS = {"all columns": None, "two columns": ["hist", "dwell"]}
_OURS = {"every row's lists": False, "distinct lists": True}


def scanning(sizes: Sizes) -> Iterator[Finding]:
    rows = table(Log(sizes.rows))
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        put(f"{folder}/table", rows)
        _put_peers(folder, rows)
        for what, columns in _COLUMNS.items():
            yield from _compared(sizes, folder, what, columns)


def _put_peers(folder: str, rows: Any) -> None:
    import lance
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    lance.write_dataset(rows, f"{folder}/rows.lance")
    Dataset(rows).save_to_disk(f"{folder}/hf")


def _compared(sizes: Sizes, folder: str, what: str, columns: list[str] | None) -> Iterator[Finding]:
    ours: dict[str, tuple[str, Given]] = {
        name: ("scan_silva", {"path": f"{folder}/table", "columns": columns, "grouped": grouped})
        for name, grouped in _OURS.items()
    }
    near = ours | {"lance": ("scan_lance", {"path": f"{folder}/rows.lance", "columns": columns})}
    hf = {"path": f"{folder}/hf", "columns": columns}
    far: dict[str, tuple[str, Given]] = {
        "HF datasets": ("scan_hf", hf | {"by_hand": False}),
        "HF datasets, Arrow turned into numpy by hand": ("scan_hf", hf | {"by_hand": True}),
    }
    few = min(_FEW, sizes.rounds)
    found = _CHILDREN.in_turns(few, near | far)
    for name, more in _CHILDREN.in_turns(min(sizes.rounds, _MOST) - few, near).items():
        found[name] += more
    for name in ours:
        yield _finding(
            sizes, f"{what}, {name}", "Lance's scanner", found[name], found["lance"], 0.9
        )
    for peer in far:
        first = found["every row's lists"][:few]
        yield _finding(sizes, f"{what}, every row's lists", peer, first, found[peer], 2.0)


def _finding(
    sizes: Sizes, what: str, peer: str, ours: list[Given], theirs: list[Given], least: float
) -> Finding:
    seconds = [[one["seconds"] for one in runs] for runs in (ours, theirs)]
    cpus = [1e9 * statistics.median(one["cpu"] for one in runs) for runs in (ours, theirs)]
    rates = [sizes.rows / statistics.median(spent) for spent in seconds]
    faster = ratio(seconds[1], seconds[0])
    return Finding(
        f"a table read in batches of 1024, {what}: times as fast as {peer}",
        f"≥ {least:g}",
        f"{faster}; {rates[0]:,.0f} and {rates[1]:,.0f} rows/s, CPU "
        f"{cpus[0] / sizes.rows:,.0f} and {cpus[1] / sizes.rows:,.0f} ns a row",
        faster.median,
        faster.median >= least,
    )
