"""Claims about reading: bytes, transforms, and preprocessing."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator

from benchmarks.claims import Finding
from benchmarks.measure import Children, ratio
from benchmarks.store.log import Log, table
from benchmarks.store.setting import Sizes
from benchmarks.store.tables import put, two_tables

_CHILDREN = Children("benchmarks.store.child")


def bytes_read(sizes: Sizes) -> Iterator[Finding]:
    rows = table(Log(sizes.rows)).select(["hist"])
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        put(f"{folder}/dedup", rows)
        _lance(f"{folder}/lists.lance", rows)
        ours = _CHILDREN.run("bytes_of_table", path=f"{folder}/dedup", rows=sizes.rows)["bytes"]
        theirs = _CHILDREN.run("bytes_of_lists", file=f"{folder}/lists.lance", rows=sizes.rows)
    factor = theirs["bytes"] / ours
    yield Finding(
        "bytes read for histories of 1024 neighbouring rows: of Lance lists, times as few",
        "≥ 8",
        f"{factor:.2f} ({ours:,.0f} of {theirs['bytes']:,.0f} bytes, mean of many batches)",
        factor,
        factor >= 8,
    )


def _lance(path: str, rows: object) -> None:
    """The rows in a Lance file as its own writer makes it."""
    from lance.file import LanceFileWriter

    with LanceFileWriter(path) as writer:
        writer.write_batch(rows)


def transform_rows(sizes: Sizes) -> Iterator[Finding]:
    for unchanged in (1.0, 0.9, 0.5):
        log = Log(sizes.rows, unchanged=unchanged)
        with two_tables(log) as (dedup, _):
            runs = _CHILDREN.run("transform_rows", path=dedup)["runs"]
        share = sizes.rows / runs / log.factor
        yield Finding(
            f"rows for each run of a transform, {unchanged:.0%} unchanged: of the predicted factor",
            "0.95 to 1.05",
            f"{share:.3f} ({sizes.rows / runs:.2f} of {log.factor:.2f})",
            share,
            abs(share - 1) <= 0.05,
        )


def preprocessing(sizes: Sizes) -> Iterator[Finding]:
    with two_tables(Log(sizes.rows)) as (dedup, plain):
        found = _CHILDREN.in_turns(
            sizes.rounds,
            {
                "dedup": ("preprocess", {"path": dedup, "grouped": True}),
                "plain": ("preprocess", {"path": plain, "grouped": False}),
            },
        )
    seconds = {name: [one["seconds"] for one in runs] for name, runs in found.items()}
    faster = ratio(seconds["plain"], seconds["dedup"])
    rates = {name: sizes.rows / statistics.median(spent) for name, spent in seconds.items()}
    yield Finding(
        "preprocessing (hash, modulo, cut, a Python function; 2 processes): times as fast as plain",
        "≥ 1.8, goal 3",
        f"{faster}; {rates['dedup']:,.0f} and {rates['plain']:,.0f} rows/s",
        faster.median,
        faster.median >= 1.8,
    )
