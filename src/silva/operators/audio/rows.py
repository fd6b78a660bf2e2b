"""Kernels of audio operators: each row of a column is written straight to where it will stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from silva.columns import Array, Column, Values, empty
from silva.operators.declare import K, column_operator

Shape = tuple[int, ...]


def read_rows(column: Column, axes: int = 1) -> list[Any]:
    """The rows, each None or a float32 array of at least so many axes, time last."""
    return [None if row is None else _read(row, axes) for row in column.rows()]


def _read(row: Any, axes: int) -> np.ndarray:
    if isinstance(row, list | tuple):
        try:
            row = np.asarray(row)
        except ValueError:
            raise ValueError("the channels of a clip have one length") from None
    if not isinstance(row, np.ndarray):
        hint = "; decode() comes first" if isinstance(row, bytes) else ""
        raise ValueError(f"a clip is an array of samples, not {type(row).__name__}{hint}")
    if row.dtype.kind != "f" and row.size:
        hint = "; int16 / 32768 gives samples" if row.dtype.kind in "iu" else ""
        raise ValueError(f"the samples of a clip are floats, not {row.dtype}{hint}")
    if row.ndim < axes:
        raise ValueError(
            f"a spectrogram has the shape (bins, frames), not {row.shape}; spectrogram() comes "
            "first"
        )
    return np.ascontiguousarray(row, dtype=np.float32)


def write_rows(
    rows: list[Any],
    shape: Callable[[int, np.ndarray], Shape],
    write: Callable[[int, np.ndarray, np.ndarray], object],
) -> Column:
    """A column of what `write(i, row, out)` puts into `out`, float32 of `shape(i, row)`.

    One array when every row has the same shape, else an array a row; nulls stay nulls.
    """
    shapes = [None if row is None else shape(i, row) for i, row in enumerate(rows)]
    first = shapes[0] if shapes else None
    whole: np.ndarray | None = None
    outs: list[Any]
    if first is not None and shapes.count(first) == len(shapes):
        whole = empty((len(rows), *first), np.float32)
        outs = list(whole)
    else:
        outs = [None if s is None else empty(s, np.float32) for s in shapes]
    for i, (row, out) in enumerate(zip(rows, outs, strict=True)):
        if row is not None:
            write(i, row, out)
    return Values(outs) if whole is None else Array(whole)


def same_shape(i: int, row: np.ndarray) -> Shape:
    return row.shape


def flat(array: np.ndarray, axes: int) -> np.ndarray:
    """All leading axes as one, so that the result has `axes` + 1; a view."""
    tail = array.shape[array.ndim - axes :]
    return array.reshape(-1, *tail) if array.size else np.empty((0, *tail), array.dtype)


def audio_operator(name: str, *, random: bool = False) -> Callable[[K], K]:
    """Registers the decorated kernel, `kernel(columns, params, draw)`, as `audio.<name>`. It makes
    each row of that row alone."""
    return column_operator(f"audio.{name}", by_row=True, needs=("soundfile", "soxr"), random=random)
