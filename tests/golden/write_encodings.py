"""Writes `encodings-0.1`: run once, by silva 0.1, whose pages and batches every later silva reads.

PYTHONPATH=<a checkout of 0.1>/src python tests/golden/write_encodings.py
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from silva.cache.entries import Entries
from silva.cache.file_store import FileStore
from silva.cache.open_store import shelf_at
from silva.cache.row_store import CacheBudget
from silva.cache.shelf_index import About
from silva.columns import Array, Column, Dictionary, Lists, Ragged, Strings, Values
from silva.columns.ragged import Grouped as GroupedBatch
from silva.columns.serial.batch_codec import encode_batch
from silva.cost.book import Book
from silva.cost.costs import Cost
from silva.sinks.progress import WriteProgress, write_progress
from silva.store.files.pages import write_pages

HERE = Path(__file__).parent / "encodings-0.1"
FINGERPRINT = "0123456789abcdef" * 2
ABOUT = About(["explode l"], "rows", ["number", "text", "list", "group", "image", "any"], "0.1", "")
KEYS = np.array([7, 8, 9], np.uint64)
PACKED = {"x": np.arange(5000) % 77, "flag": np.arange(5000) % 3 == 0, "t": np.arange(5000.0)}
COST = Cost(rows=100, kept=50, seconds=2.0, cpu=1.0, columns={"x": 8}, operators={"a": (1.0, 5, 9)})
PROGRESS = WriteProgress("f" * 32, {"rows": 5}, ["part-00000.parquet"], [5], {"k": 1}, {"epoch": 0})


def entries() -> Entries:
    """Three input rows that became five, in columns of every kind."""
    record = np.array([(1, "ä"), (2, "b"), (3, "")] + [(4, "c")] * 2, [("a", "<i4"), ("b", "<U2")])
    columns: dict[str, Column] = {
        "number": Array(np.arange(5.0), np.array([True, True, False, True, True])),
        "text": Strings(pa.array(["a", None, "grüße", "", "日本"])),
        "list": Lists(Array(np.arange(8)), np.array([0, 2, 2, 5, 6, 8])),
        "group": Dictionary(Strings(pa.array(["x", "y"])), np.array([0, 1, 1, 0, 1]), True),
        "image": Values([np.arange(i, dtype=np.int16) for i in range(5)]),
        "any": Values([(1, "a"), {"k": [None]}, np.float32(2), record, 1 << 80]),
    }
    places, sub = np.arange(5, dtype=np.uint64), np.array([0, 1, 0, 1, 2])
    return Entries(np.array([2, 0, 3]), columns, places, (sub,))


def batch() -> dict[str, Any]:
    return {
        "x": np.arange(3),
        "words": np.array(["a", None, "c"], dtype=object),
        "lists": Ragged(np.arange(4), np.array([0, 1, 1, 4])),
        "group": GroupedBatch(np.array([5, 6, 7]), np.array([0, 2, 3]), np.array([0, 0, 1])),
    }


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    store = FileStore(shelf_at(HERE / "cache"), FINGERPRINT, ABOUT, CacheBudget(1 << 20), None)
    store.add(KEYS, entries(), 1.5)
    store.close()
    (HERE / "batch.bin").write_bytes(encode_batch(batch()))
    file = write_pages(HERE, PACKED)
    (HERE / file.name).rename(HERE / "packed.pages")
    Book(HERE).put("costs", COST)
    write_progress(HERE, PROGRESS)


if __name__ == "__main__":
    main()
