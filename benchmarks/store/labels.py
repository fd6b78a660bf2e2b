"""Claims about what it writes to define a label anew."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import silva as sv
from benchmarks.claims import Finding
from benchmarks.store.log import Log, table
from benchmarks.store.setting import Sizes
from benchmarks.store.tables import files, put, size


def label(sizes: Sizes) -> Iterator[Finding]:
    """The label is defined, defined anew, and stored."""
    import lance

    rows = table(Log(sizes.rows))
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        path = f"{folder}/table"
        clicks = put(path, rows).derive(clicked=sv.col("dwell") > 30)
        lance.write_dataset(rows, f"{folder}/rows.lance")
        plain = size(f"{folder}/rows.lance")
        before = files(path)
        clicks.derive(clicked=sv.col("dwell") > 45)
        defined = files(path)
        clicks.materialize("clicked")
        stored = files(path)
        new = {name for name in defined if name not in before}
        data = size(path, {n for n in new if n.startswith("data/")})
        metadata = size(path, new) - data
        written = size(path, stored.keys() - defined.keys())
        whole = size(path, defined)
    kept = sum(stored.get(name) == known for name, known in defined.items())
    yield Finding(
        "a label defined anew: bytes of data written", "0", f"{data}", float(data), data == 0
    )
    yield Finding(
        "a label defined anew: bytes of metadata written",
        "≤ 10,000",
        f"{metadata:,}",
        float(metadata),
        metadata <= 10_000,
    )
    yield from _stored(written, whole, plain)
    yield Finding(
        "a label stored: files that were there before, unchanged by hash",
        "all",
        f"{kept} of {len(defined)}",
        kept / len(defined),
        kept == len(defined),
    )


def _stored(written: int, whole: int, plain: int) -> Iterator[Finding]:
    """A label that nothing foretells takes its entropy, half a bit a row and more. Of a table whose
    histories shrink to a sixth that is a larger share than of the rows in a Lance dataset as its
    own writer makes it, where the share that is wanted was found to be possible."""
    for what, bytes_of in (("this table", whole), ("the same rows in a Lance dataset", plain)):
        yield Finding(
            f"a label stored: bytes written, of those of {what}",
            "≤ 0.1 %",
            f"{written / bytes_of:.3%} ({written:,} of {bytes_of:,})",
            written / bytes_of,
            written <= bytes_of / 1000,
        )
