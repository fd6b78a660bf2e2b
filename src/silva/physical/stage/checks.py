"""Checks, on a few blocks, that functions keep their promises. On which blocks, a `Worker` says.

*A function does not change its inputs in place.* It is given copies, which are then compared with
the inputs. A change would reach other steps, the source and later epochs, on some backends only:
numpy's read-only flag does not stop torch, and lists have none. Arrays, tensors, dataclasses and
Python's containers are compared, whatever they are nested in; objects of other types are not.

*A `@sv.batched` function does not look at a row's neighbours.* Rows are computed again among fewer
of them, or more, and compared.
"""

from __future__ import annotations

import array
import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from silva.columns import Array, Column, concat
from silva.columns.column import is_masked_array
from silva.columns.owned import is_fixed, is_record, private, private_container
from silva.columns.padding import bytes_of
from silva.columns.values import as_numpy
from silva.errors import ColumnError
from silva.physical.stage.raised import shown
from silva.plan.function import Function

_MOST = 64 << 20
"""Bytes of inputs that are copied for a check, about; rows beyond them are not checked."""


class InputsChanged(ColumnError):
    """A function has changed its inputs in place: the step fails, not a row."""


class Trial:
    """One check of a function: the values it was given, and copies to compare them with."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._pairs: list[tuple[str, Any, Any]] = []
        """Names of columns, with their values before and now."""
        self._left = _MOST

    def give(self, column: str, value: Any) -> Any:
        """The value to give to the function in place of one that it does not own."""
        if is_fixed(type(value)) or self._left <= 0:
            return value
        given = _copied(value)
        if given is value:
            return value
        self._left -= _size(value)
        if _strides(given) != _strides(value):  # floats would be summed in another order
            given, value = value, given
        self._pairs.append((column, value, given))
        return given

    def check(self) -> None:
        """Raises an error if a value has changed."""
        pairs, self._pairs, self._left = self._pairs, [], _MOST
        for column, before, after in pairs:
            if not _unchanged(before, after):
                function = self._function
                raise InputsChanged(
                    f"{function.name} ({function.where}) changes its input {column!r} in place "
                    f"({_brief(before)} became {_brief(after)}), which other steps and later "
                    f"epochs would see: mark it @sv.owns({column!r}) to get a private copy, or "
                    "let it change a copy of its own"
                )


def as_argument(name: str, value: Any, function: Function, trial: Trial | None) -> Any:
    """A column of a block or batch as a function gets it: private where it owns it, else
    read-only."""
    if name in function.marks.owns:
        return private(value)
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value if trial is None else trial.give(name, value)


def _copied(value: Any) -> Any:
    tensor = as_numpy(value)
    if tensor is not value:
        return value.detach().clone() if type(value).__module__ == "torch" else value
    copy = private_container(value)
    if isinstance(copy, np.ndarray) and not value.flags.writeable:
        copy.flags.writeable = False
    return copy


def _brief(value: Any) -> str:
    return " ".join(shown(value).split())


def _strides(value: Any) -> Any:
    return value.strides if isinstance(value, np.ndarray) else None


def _size(value: Any) -> int:
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    return 64 * (1 + len(value)) if hasattr(type(value), "__len__") else 64


def _unchanged(before: Any, after: Any) -> bool:
    try:
        return _same(before, after)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  it holds itself, or objects that cannot be compared
        return True


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal bit by bit; True if they cannot be compared."""
    kind = type(a)
    if a is b:
        return True
    if kind is not type(b):
        return False
    if is_fixed(kind):
        return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(_same, a.values(), b.values()))
    if isinstance(a, set | bytearray | array.array):
        return bool(a == b)
    if isinstance(a, np.ndarray):
        return _same_arrays(a, b)
    if is_record(a):
        names = [field.name for field in dataclasses.fields(a)]
        return all(_same(getattr(a, n, None), getattr(b, n, None)) for n in names)
    one, two = as_numpy(a), as_numpy(b)
    return one is a or _same(one, two)


def _same_arrays(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if is_masked_array(a):
        masks = np.ma.getmaskarray(a), np.ma.getmaskarray(b)
        return bool(np.array_equal(*masks)) and _same_arrays(np.ma.getdata(a), np.ma.getdata(b))
    if a.dtype.hasobject:
        return all(map(_same, a.ravel().tolist(), b.ravel().tolist()))
    return bool(np.array_equal(a, b)) or bytes_of(a) == bytes_of(b)


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
        differing = next(_differing_rows(made[name], other), None)
        if differing is not None:
            one, two = map(shown, differing)
            raise ColumnError(
                f"@sv.batched {function.name} ({function.where}): a row's result "
                f"depends on its neighbours ({one} among some rows, {two} among others); use "
                "@sv.batched(size=n) for fixed chunks"
            )
    return True


def _differing_rows(a: Column, b: Column) -> Iterator[tuple[Any, Any]]:
    """The rows in which two columns differ."""
    arrays = [c.data for c in (a, b) if isinstance(c, Array) and c.valid is None]
    if len(arrays) == 2 and _about_equal(*arrays):  # row by row would take longer
        return
    for row, other in zip(a.rows(), b.rows(), strict=True):
        if not _about_equal(row, other):
            yield row, other


def _about_equal(a: Any, b: Any) -> bool:
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
        return len(a) == len(b) and all(_about_equal(x, y) for x, y in zip(a, b, strict=True))
    if type(a) is dict:
        return a.keys() == b.keys() and all(_about_equal(a[key], b[key]) for key in a)
    if type(a).__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
        return True
    try:
        return bool(a == b)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  objects of the user's that cannot be compared
        return True
