"""Checks on what the methods of a user's source return.

A source that returns a row too few, or columns of different lengths, would silently lose or
misalign rows further on. `register_source` puts these checks around the methods of every class that
is not silva's own: a wrong answer is a `SourceError` that names the class and the method, whatever
is done about rows that fail. So is whatever a method raises, but for `read`: there a row fails,
which is known by its key.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from silva.columns import Array, Column
from silva.errors import SilvaError, SourceError

_COLUMN = ("rows", "take", "slice", "settled", "batch")
"""What every column has; a list or an array does not have all of it."""


_END: Any = object()


def check_answers(cls: type) -> None:
    """Puts the checks around the methods that the class has."""
    for name, check in _CHECKS.items():
        method = getattr(cls, name, None)
        if callable(method):
            setattr(cls, name, check(getattr(method, "__unchecked__", method), name))


def _wrong(source: object, method: str, wanted: str, found: object) -> SourceError:
    own = type(source)
    error = SourceError(
        f"{own.__module__}.{own.__qualname__}.{method} must return {wanted}, not {found!r:.80}"
    )
    error.wrong_answer = True
    return error


@contextmanager
def naming(source: object, name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Turns what the user's method raises into a `SourceError` that says which method it was, and
    where it is written."""
    try:
        yield
    except SilvaError:
        raise
    except (Exception, SystemExit) as error:
        own, code = type(source), getattr(method, "__code__", None)
        where = "" if code is None else f"  [{code.co_filename}:{code.co_firstlineno}]"
        raise SourceError(
            f"{own.__module__}.{own.__qualname__}.{name} raised {_shown(error)}{where}"
        ) from error


def _shown(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  an error of the user's that has no text
        return type(error).__name__


def _checked(check: Callable[[Any, str, Any], Any]) -> Callable[..., Any]:
    """A method without arguments whose answer is checked."""

    def around(method: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
        @functools.wraps(method)
        def checked(self: Any) -> Any:
            with naming(self, name, method):
                found = method(self)
            return check(self, name, found)

        checked.__unchecked__ = method  # type: ignore[attr-defined]
        return checked

    return around


def _count(source: object, name: str, found: Any) -> int:
    if not isinstance(found, bool):
        try:
            count = operator.index(found)
        except TypeError:
            count = -1
        if count >= 0:
            return count
    raise _wrong(source, name, "a whole number of at least 0", found)


def _length(source: Any, name: str, found: Any) -> int | None:
    if hasattr(source, "read"):
        return _count(source, name, found)
    rows = source.unit_rows()
    if found is None or rows is None or _count(source, name, found) == rows.sum():
        return None if found is None else _count(source, name, found)
    raise _wrong(source, name, f"{rows.sum()}, the sum of unit_rows()", found)


def _names(source: object, name: str, found: Any) -> tuple[str, ...]:
    wanted = "a tuple of different column names"
    if isinstance(found, str) or not hasattr(found, "__iter__"):
        raise _wrong(source, name, wanted, found)
    names = tuple(found)
    if not all(isinstance(n, str) and n for n in names) or len(set(names)) < len(names):
        raise _wrong(source, name, wanted, found)
    return names


def _types(source: object, name: str, found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(
        isinstance(word, str) and word and word.isprintable()
        for pair in found.items()
        for word in pair
    ):
        raise _wrong(source, name, "a dict of column names and type names", found)
    return found


def _anything(source: object, name: str, found: Any) -> Any:
    return found


def _text(source: object, name: str, found: Any) -> str:
    if isinstance(found, str) and found.isprintable():
        return found
    raise _wrong(source, name, "printable text", found)


def check_costly(source: Any) -> None:
    """Raises unless `costly` is what reading takes it for."""
    with naming(source, "costly", type(source)):
        found = source.costly
    if not isinstance(found, tuple | list | set | frozenset) or not all(
        isinstance(name, str) for name in found
    ):
        raise _wrong(source, "costly", "a tuple of column names", found)


def _unit_rows(source: Any, name: str, found: Any) -> np.ndarray | None:
    if found is None:
        return None
    rows = np.asarray(found)
    whole = rows.ndim == 1 and (rows.dtype.kind in "iu" or not rows.size)
    if not whole or len(rows) != source.units() or (rows < 0).any():
        raise _wrong(source, name, "None, or the number of rows of each unit", found)
    return rows.astype(np.int64)


def _columns(source: object, method: str, found: Any, names: tuple[str, ...]) -> dict[str, Column]:
    """The columns that were asked for, in this order."""
    if not hasattr(found, "keys"):
        raise _wrong(source, method, "a dict of columns", found)
    if missing := [n for n in names if n not in found]:
        raise _wrong(source, method, f"the column {missing[0]!r}", sorted(map(str, found)))
    columns = {name: found[name] for name in (names or tuple(found)[:1])}
    for name, column in columns.items():
        if not all(hasattr(column, attribute) for attribute in _COLUMN):
            wanted = (
                f"{name!r} as a column of silva.columns (Array for numpy arrays, Values for lists)"
            )
            raise _wrong(source, method, wanted, column)
        if isinstance(column, Array) and not isinstance(column.data, np.ndarray):
            wanted = f"{name!r} as an Array of a numpy array"
            raise _wrong(source, method, wanted, column.data)
    return columns


def _check_lengths(source: object, method: str, columns: dict[str, Column], count: int) -> None:
    for name, column in columns.items():
        if len(column) != count:
            wanted = f"{count} row{'s' * (count != 1)} in the column {name!r}"
            raise _wrong(source, method, wanted, len(column))


def _read(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def read(self: Any, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        found = _columns(self, name, method(self, rows, columns), columns)
        _check_lengths(self, name, found, len(rows))
        return found

    read.__unchecked__ = method  # type: ignore[attr-defined]
    return read


def _open(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def open(self: Any, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[Any]:
        with naming(self, name, method):
            runs = method(self, unit, start, columns)
        if not hasattr(runs, "__iter__") or hasattr(runs, "keys"):
            raise _wrong(self, name, "an iterator of dicts of columns", runs)
        at, counts = start, self.unit_rows()
        most = None if counts is None else int(counts[unit])
        with naming(self, name, method):
            following = iter(runs)
        last: list[Any] = []
        while True:
            with naming(self, name, method):
                run = next(following, _END)
            if run is _END:
                break
            found = _columns(self, name, run, columns)
            count = len(next(iter(found.values()))) if found else 0
            _check_lengths(self, name, found, count)
            at += count
            if most is not None and at > most:
                left = f"at most {most - start} rows from start={start} on: unit_rows() says that "
                raise _wrong(self, name, f"{left}unit {unit} has {most} rows", at - start)
            if at == most:  # nobody asks for more, so the end is looked for first
                last.append(found)
            else:
                yield found
        yield from last
        if most is not None and at != most:
            wanted = f"all {most} rows that unit_rows() says unit {unit} has"
            raise _wrong(self, name, wanted, at)

    open.__unchecked__ = method  # type: ignore[attr-defined]
    return open


_CHECKS: dict[str, Callable[..., Any]] = {
    "columns": _checked(_names),
    "length": _checked(_length),
    "units": _checked(_count),
    "unit_rows": _checked(_unit_rows),
    "describe": _checked(_text),
    "types": _checked(_types),
    "sketch": _checked(_anything),
    "row_bytes": _checked(_anything),
    "read": _read,
    "open": _open,
}
