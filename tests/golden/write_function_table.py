"""Writes `table-functions-0.1`: a table of silva 0.1 with columns that are functions.

PYTHONPATH=<a checkout of 0.1>/src GOLDEN_CACHE=1000 python tests/golden/write_function_table.py
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from write_cache import told

import silva as sv

HERE = Path(__file__).parent / "table-functions-0.1"


def noisy(x: int, rng: np.random.Generator) -> float:
    return x + float(rng.random())


STEPS: dict[str, Any] = {
    "stored": told,
    "drawn": noisy,
    "sum": sv.col("stored") + sv.num("x").clip(0, 5),
}


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    rows = pa.table({"id": np.arange(9), "x": np.arange(9) * 3})
    table = sv.Table.create(HERE, rows, key="id")
    for name, step in STEPS.items():
        table.derive(**{name: step})
    table.materialize("stored")


if __name__ == "__main__":
    main()
