"""Checks of what people give to operators, made when the step is written: a clear sentence at once
instead of an error from a kernel, later and elsewhere."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.plan.arguments import shown


def is_array(value: Any) -> bool:
    """Whether a value is an array or a tensor, which `==` compares item by item."""
    return hasattr(value, "__array__") and not isinstance(value, np.generic)


def one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if isinstance(value, bool) or is_array(value) or value not in allowed:
        raise PlanError(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}")


def flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise PlanError(f"{name} is True or False, not {value!r}")


def plain_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise PlanError(f"{name} is a text, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PlanError(f"{name} holds half a surrogate pair: {value!r}") from None
    return value


def column_name(value: Any) -> str:
    if not isinstance(value, str):
        raise PlanError(f"a column's name is a string, not {shown(value)}")
    return value


def integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise PlanError(f"{name} is a whole number, not {value!r}") from None
    if isinstance(value, bool) or number < least:
        raise PlanError(f"{name} is a whole number of at least {least}, not {value!r}")
    if most is not None and number > most:
        raise PlanError(f"{name} is a whole number of at most {most}, not {value!r}")
    return number


def positive(name: str, value: Any) -> int:
    return integer(name, value, 1)


def height_width(name: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, tuple | list):
        value = (value, value)
    if len(value) != 2:
        raise PlanError(f"{name} is a number of pixels or (height, width), not {value!r}")
    return positive(name, value[0]), positive(name, value[1])


def number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise PlanError(f"{name} is a number, not {value!r}") from None
    if not math.isfinite(number):
        raise PlanError(f"{name} is a finite number, not {value!r}")
    return number


def numbers(name: str, value: Any) -> tuple[float, ...]:
    if isinstance(value, bytes | bytearray | Set | Mapping):  # no numbers, or in no order
        raise PlanError(f"{name} is a number or a sequence of numbers, not {value!r}")
    if isinstance(value, str) or not hasattr(value, "__len__") or getattr(value, "ndim", 1) == 0:
        return (number(name, value),)
    if len(value) == 0:
        raise PlanError(f"{name} is empty: give one number, or one for each channel")
    return tuple(number(name, x) for x in value)


def share(name: str, value: Any) -> float:
    found = number(name, value)
    if not 0 <= found <= 1:
        raise PlanError(f"{name} is between 0 and 1, not {value!r}")
    return found


def factors(name: str, value: Any) -> tuple[float, float]:
    """The range of a factor: a pair, or a number that says how far it may be from 1."""
    if isinstance(value, tuple | list):
        low, high = ordered(name, value)
    else:
        reach = number(name, value)
        low, high = max(0.0, 1 - reach), 1 + reach
    if not 0 <= low <= high:
        raise PlanError(f"{name} is a number of at least 0, or (least, most), not {value!r}")
    return low, high


def pair(name: str, value: Any) -> tuple[float, float]:
    found = numbers(name, value)
    if len(found) != 2:
        raise PlanError(f"{name} is a pair of numbers (x, y), not {value!r}")
    return found[0], found[1]


def ordered(name: str, value: Any) -> tuple[float, float]:
    found = numbers(name, value)
    if len(found) != 2 or found[0] > found[1]:
        raise PlanError(f"{name} is (least, most), not {value!r}")
    return found[0], found[1]


def interval(name: str, value: Any) -> tuple[float, float]:
    found = numbers(name, value)
    if len(found) != 2 or not 0 < found[0] <= found[1]:
        raise PlanError(f"{name} is (least, most), both positive, not {value!r}")
    return found[0], found[1]
