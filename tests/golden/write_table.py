"""Writes `table-0.1`: run once, by silva 0.1, whose tables every later silva reads.

PYTHONPATH=<a checkout of 0.1>/src python tests/golden/write_table.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa

import silva as sv

HERE = Path(__file__).parent / "table-0.1"


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    rows = np.arange(40)
    first = pa.table(
        {
            "id": rows,
            "user": rows % 4,
            "price": pa.array([None if i % 7 == 0 else i / 3 for i in rows.tolist()]),
            "text": [f"Text {i}" for i in rows],
            "bio": [f"a long biography of user {i % 4}" * 4 for i in rows],
            "seen": [list(range(i % 5)) for i in rows],
        }
    )
    table = sv.Table.create(
        HERE, first.slice(0, 30), key="id", group="user", store={"bio": "grouped"}
    )
    table.derive(twice=sv.col("id") * 2, quiet=sv.text("text").lower())
    table.materialize("twice", "quiet")
    table.tag("first")
    table.append(first.slice(30))
    table.put("score", [0.5, 0.25], keys=[3, 31], default=0.0)
    table.delete(sv.col("id") == 5)


if __name__ == "__main__":
    main()
