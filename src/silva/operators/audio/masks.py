"""SpecAugment: random runs of frames or bins hidden.

Laws, exact, for masks of one value and with the same draws:
    mask_time(mask_frequency(x)) = mask_frequency(mask_time(x))
    mask_time(mel(x)) = mel(mask_time(x))  for value 0
Not laws: mask_frequency and mel (triangles overlap); either mask and time_stretch (it moves frames,
and smears the edges of a mask).
"""

from __future__ import annotations

from typing import Self

import numpy as np

from silva.columns import Column
from silva.errors import PlanError
from silva.operators.arguments import number, positive
from silva.operators.audio.rows import Shape, audio_operator, read_rows, write_rows
from silva.operators.rows import Draw, Params
from silva.plan.expr import Expr


class MaskMethods(Expr):
    """Methods that hide frames or bins at random."""

    __slots__ = ()

    def mask_time(self, max_width: int, max_share: float = 1.0, value: float = 0.0) -> Self:
        """Sets a random run of frames to `value`: SpecAugment.

        The width is one of 0, …, max_width - 1, each as likely, and so is each place. At most
        `max_share` of the frames are hidden; by default a wide mask may hide a short clip whole.

        >>> import silva as sv
        >>> sv.audio("mel").mask_time(80, max_share=0.5)
        mel.mask_time(max_width=80, max_share=0.5, value=0.0)
        """
        max_share = number("max_share", max_share)
        if not 0 <= max_share <= 1:
            raise PlanError(f"max_share is between 0 and 1, not {max_share}")
        return self._call(
            "audio.mask_time",
            max_width=positive("max_width", max_width),
            max_share=max_share,
            value=number("value", value),
        )

    def mask_frequency(self, max_width: int, value: float = 0.0) -> Self:
        """Sets a random run of bins to `value` in all frames: SpecAugment.

        >>> import silva as sv
        >>> sv.audio("mel").mask_frequency(27).mask_frequency(27)
        mel.mask_frequency(max_width=27, value=0.0).mask_frequency(max_width=27, value=0.0)
        """
        width, value = positive("max_width", max_width), number("value", value)
        return self._call("audio.mask_frequency", max_width=width, value=value)


@audio_operator("mask_time", random=True)
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


@audio_operator("mask_frequency", random=True)
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
