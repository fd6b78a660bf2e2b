"""Does a @sv.batched function look at a row's neighbours? Rows are done again among fewer of them,
or more, and compared. On which blocks, a `Worker` says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from silva.columns import Array, Column, concat
from silva.errors import ColumnError
from silva.physical.stage.raised import shown
from silva.plan.function import Function


def ignores_neighbours(
    function: Function,
    run: Callable[[int, int], dict[str, Column]],
    made: dict[str, Column],
    count: int,
    alone: bool,
) -> bool:
    """Whether the rows come out the same in half of the block (or all together, where each was
    done alone). An error where they do not; False where that cannot be tried."""
    cuts = [(0, count)] if alone else [(0, count // 2), (count // 2, count)]
    try:
        parts = [run(*cut) for cut in cuts]
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  the rows are good as they are; another block may tell
        return False
    for name in made:
        other = concat([part[name] for part in parts])
        differing = next(_differing(made[name], other), None)
        if differing is not None:
            one, two = map(shown, differing)
            raise ColumnError(
                f"@sv.batched {function.name} ({function.where}): a row's result "
                f"depends on its neighbours ({one} among some rows, {two} among others); use "
                "@sv.batched(size=n) for fixed chunks"
            )
    return True


def _differing(a: Column, b: Column) -> Iterator[tuple[Any, Any]]:
    """The rows in which two columns differ."""
    arrays = [c.data for c in (a, b) if isinstance(c, Array) and c.valid is None]
    if len(arrays) == 2 and _alike(*arrays):  # row by row it would take longer than the function
        return
    for row, other in zip(a.rows(), b.rows(), strict=True):
        if not _alike(row, other):
            yield row, other


def _alike(a: Any, b: Any) -> bool:
    """Whether values are equal up to the last bits, which a matrix product may change; True if they
    cannot be compared."""
    if isinstance(a, float | np.ndarray) and isinstance(b, float | np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype.kind in "fc":
            return bool(np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True))
        if a.dtype.kind != "O":
            return bool(np.array_equal(a, b))
        a, b = a.ravel().tolist(), b.ravel().tolist()
    if type(a) is not type(b):
        return False
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b, strict=True))
    if type(a) is dict:
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if type(a).__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
        return True
    try:
        return bool(a == b)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  objects of the user's that cannot be compared
        return True
