"""Powers to logarithms.

Laws: none that the planner could use. A mask of value v before `log` is one of value
log(max(v, floor)) after it; `decibels` with a range or `"max"` looks at the whole clip, and what a
mask hides may be its loudest value.
"""

from __future__ import annotations

import math

import numpy as np

from silva.columns import Column
from silva.operators._audio.rows import Shape, read_rows, write_rows
from silva.operators.rows import Params


def log(columns: list[Column], params: Params, draw: object) -> Column:
    floor = np.float32(params["floor"])

    def write(i: int, row: np.ndarray, out: np.ndarray) -> None:
        np.maximum(row, floor, out=out)
        np.log(out, out=out)

    return write_rows(read_rows(columns[0]), _same, write)


def decibels(columns: list[Column], params: Params, draw: object) -> Column:
    floor, reference, span = params["floor"], params["reference"], params["range"]

    def write(i: int, row: np.ndarray, out: np.ndarray) -> None:
        if row.size == 0:
            return
        level = float(row.max()) if reference == "max" else reference
        np.maximum(row, np.float32(floor), out=out)
        np.log10(out, out=out)
        np.multiply(out, np.float32(10), out=out)
        np.subtract(out, np.float32(10 * math.log10(max(level, floor))), out=out)
        if span is not None:
            np.maximum(out, out.max() - np.float32(span), out=out)

    return write_rows(read_rows(columns[0]), _same, write)


def _same(i: int, row: np.ndarray) -> Shape:
    return row.shape
