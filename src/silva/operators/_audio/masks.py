"""SpecAugment: random runs of frames or bins hidden.

Laws, exact, for masks of one value and with the same draws:
    mask_time(mask_frequency(x)) = mask_frequency(mask_time(x))
    mask_time(mel(x)) = mel(mask_time(x))  for value 0
Not laws: mask_frequency and mel (triangles overlap); either mask and time_stretch (it moves frames,
and smears the edges of a mask).
"""

from __future__ import annotations

import numpy as np

from silva.columns import Column
from silva.operators._audio.rows import Shape, read_rows, write_rows
from silva.operators.rows import Draw, Params


def mask_time(columns: list[Column], params: Params, draw: Draw) -> Column:
    rows = read_rows(columns[0])
    sizes = np.array([0 if row is None else row.shape[-1] for row in rows], np.int64)
    most = np.floor(sizes * params["max_share"])
    runs = random_runs(sizes, most, params["max_width"], draw.uniform(2)).tolist()

    def write(i: int, row: np.ndarray, out: np.ndarray) -> None:
        start, stop = runs[i]
        np.copyto(out, row)
        out[..., start:stop] = params["value"]

    return write_rows(rows, _same, write)


def mask_frequency(columns: list[Column], params: Params, draw: Draw) -> Column:
    rows = read_rows(columns[0], axes=2)
    sizes = np.array([0 if row is None else row.shape[-2] for row in rows], np.int64)
    runs = random_runs(sizes, sizes, params["max_width"], draw.uniform(2)).tolist()

    def write(i: int, row: np.ndarray, out: np.ndarray) -> None:
        start, stop = runs[i]
        np.copyto(out, row)
        out[..., start:stop, :] = params["value"]

    return write_rows(rows, _same, write)


def random_runs(
    sizes: np.ndarray, most: np.ndarray, max_width: int, drawn: np.ndarray
) -> np.ndarray:
    """(rows, 2): where each row's mask begins and ends."""
    widths = np.minimum(np.floor(drawn[:, 0] * max_width), most)
    starts = np.floor(drawn[:, 1] * (sizes - widths + 1))  # u < 1, so a run ends inside
    return np.stack([starts, starts + widths], axis=1).astype(np.int64)


def _same(i: int, row: np.ndarray) -> Shape:
    return row.shape
