"""Powers to logarithms.

Laws: none that the planner could use. A mask of value v before `log` is one of value
log(max(v, floor)) after it; `decibels` with a range or `"max"` looks at the whole clip, and what a
mask hides may be its loudest value.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np

from silva.columns import Column
from silva.errors import PlanError
from silva.operators.arguments import is_array, number
from silva.operators.audio.declare import audio_operator
from silva.operators.audio.rows import Shape, read_rows, write_rows
from silva.operators.rows import Params
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

    return write_rows(read_rows(columns[0]), _same, write)


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

    return write_rows(read_rows(columns[0]), _same, write)


def _same(i: int, row: np.ndarray) -> Shape:
    return row.shape


def _floor(value: Any) -> float:
    floor = number("floor", value)
    if floor < 1e-37:  # the least normal float32 is 1.2e-38
        raise PlanError(f"floor is a positive number, at least 1e-37, not {value!r}")
    return floor
