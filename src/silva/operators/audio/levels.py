"""Powers to logarithms, and SpecAugment: random runs of frames or bins hidden.

Laws, exact, for masks of one value and with the same draws:
    mask_time(mask_frequency(x)) = mask_frequency(mask_time(x))
    mask_time(mel(x)) = mel(mask_time(x))  for value 0
Not laws: mask_frequency and mel (triangles overlap); either mask and time_stretch (it moves frames,
and smears the edges of a mask). `log` and `decibels` have none that the planner could use: a mask
of value v before `log` is one of value log(max(v, floor)) after it; `decibels` with a range or
`"max"` looks at the whole clip, and what a mask hides may be its loudest value.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np

from silva.columns import Column
from silva.errors import PlanError
from silva.operators.arguments import is_array, number, positive
from silva.operators.audio.rows import audio_operator, read_rows, same_shape, write_rows
from silva.operators.rows import Draw, Params
from silva.plan.expr import Expr


class LevelMethods(Expr):
    """Methods that turn powers into logarithms."""

    __slots__ = ()

    def log(self, floor: float = 1e-10) -> Self:
        """Takes the natural logarithm; values below `floor` count as `floor`.

        >>> import silva as sv
        >>> sv.audio("mel").log(1e-6)
        mel.log(floor=1e-06)
        """
        return self._call("audio.log", floor=_floor(floor))

    def decibels(
        self,
        reference: float | Literal["max"] = 1.0,
        floor: float = 1e-10,
        range: float | None = 80.0,
    ) -> Self:
        """Converts powers to decibels, 10 · log10(power / reference), as `librosa.power_to_db`.

        `"max"` is the loudest value of the clip. Values that are more than `range` below the
        loudest are raised to that level.

        >>> import silva as sv
        >>> sv.audio("mel").decibels("max")
        mel.decibels(reference='max', floor=1e-10, range=80.0)
        """
        if is_array(reference) or reference != "max":
            reference = number("reference", reference)
            if reference <= 0:
                raise PlanError(f"reference is a positive number or 'max', not {reference}")
        if range is not None:
            range = number("range", range)
            if range < 0:
                raise PlanError(f"range is a number of decibels, at least 0, not {range}")
        return self._call("audio.decibels", reference=reference, floor=_floor(floor), range=range)


@audio_operator("log")
def log(columns: list[Column], params: Params, draw: object) -> Column:
    floor = np.float32(params["floor"])

    def write(i: int, row: np.ndarray, out: np.ndarray) -> None:
        np.maximum(row, floor, out=out)
        np.log(out, out=out)

    return write_rows(read_rows(columns[0]), same_shape, write)


@audio_operator("decibels")
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

    return write_rows(read_rows(columns[0]), same_shape, write)


def _floor(value: Any) -> float:
    floor = number("floor", value)
    if floor < 1e-37:  # the least normal float32 is 1.2e-38
        raise PlanError(f"floor is a positive number, at least 1e-37, not {value!r}")
    return floor


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
    return _masked(read_rows(columns[0]), -1, params["max_share"], params, draw)


@audio_operator("mask_frequency", random=True)
def mask_frequency(columns: list[Column], params: Params, draw: Draw) -> Column:
    return _masked(read_rows(columns[0], axes=2), -2, 1.0, params, draw)


def _masked(rows: list[Any], axis: int, max_share: float, params: Params, draw: Draw) -> Column:
    """The rows with a random run along the axis set to a value."""
    sizes = np.array([0 if row is None else row.shape[axis] for row in rows], np.int64)
    most = np.floor(sizes * max_share)
    runs = random_runs(sizes, most, params["max_width"], draw.uniform(2)).tolist()

    def write(i: int, row: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, row)
        np.moveaxis(out, axis, 0)[slice(*runs[i])] = params["value"]

    return write_rows(rows, same_shape, write)


def random_runs(
    sizes: np.ndarray, most: np.ndarray, max_width: int, drawn: np.ndarray
) -> np.ndarray:
    """(rows, 2): where each row's mask begins and ends."""
    widths = np.minimum(np.floor(drawn[:, 0] * max_width), most)
    starts = np.floor(drawn[:, 1] * (sizes - widths + 1))  # u < 1, so a run ends inside
    return np.stack([starts, starts + widths], axis=1).astype(np.int64)
