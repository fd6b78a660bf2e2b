"""Rows that were kept: read from a cache folder, from a table and through a service.

Each has a number, a text and a list of integers. The first epoch, which is not measured, fills the
cache; the table is written beforehand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.workload import Contestant, Open, Workload, sizes

_SIZE = 256
"""Rows of a batch: large enough for the decoding of columns to matter."""


def rows_of(count: int) -> Any:
    import pyarrow as pa

    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 32, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    items = pa.array(rng.integers(0, 10**6, int(offsets[-1])))
    return pa.table(
        {
            "x": np.arange(count),
            "text": [f"row {n} says {'word ' * (n % 12)}" for n in range(count)],
            "items": pa.ListArray.from_arrays(pa.array(offsets), items),
        }
    )


def expected(rows: int) -> tuple[int, float]:
    return rows, float(np.arange(rows).sum())


def silva_cache(rows: int) -> Open:
    import silva as sv

    folder = tempfile.mkdtemp()
    kept = sv.from_arrow(rows_of(rows)).derive(y=lambda x: x).cache(folder).batch(_SIZE)
    return lambda: kept.loader(backend="inline")


def silva_table(rows: int) -> Open:
    import silva as sv

    table = sv.Table.create(f"{tempfile.mkdtemp()}/table", rows_of(rows))
    kept = table.read().batch(_SIZE)
    return lambda: kept.loader(backend="inline")


def silva_service(rows: int) -> Open:
    import silva as sv

    made = sv.from_arrow(rows_of(rows)).batch(_SIZE)
    service = sv.Service({"rows": made}, backend="inline")

    def batches() -> Iterator[Any]:
        yield from sv.connect(service.address, "rows", token=service.token)

    return batches


WORKLOAD = Workload(
    name="kept",
    title=f"Rows of a number, a text and a list, which were kept; batches of {_SIZE}",
    setting=sizes({"rows": 200_000}, {"rows": 20_000}),
    contestants=(
        Contestant("silva, cache folder", silva_cache, key="x"),
        Contestant("silva, table", silva_table, key="x"),
        Contestant("silva, service", silva_service, key="x"),
    ),
    checksum=lambda x: float(x.sum()),
    expected=expected,
    warm=True,
    epochs=3,
)
