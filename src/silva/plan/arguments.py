"""Checks of verbs' arguments: errors name the verb, the argument and what it takes."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from silva.errors import PlanError
from silva.plan.hints import ARGUMENTS, CALLED

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_MOST = (1 << 63) - 1
"""The largest number that a count may be: what is stored has 64 bits."""
_LONGEST = 1e9
"""Seconds, some 31 years: every clock and event loop can wait so long, and not all of them longer.
"""


def natural(what: str, value: Any, least: int = 0, most: int = _MOST) -> int:
    """A whole number from `least` up, to at most `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PlanError(f"{what} takes a whole number from {least} up, not {shown(value)}")
    if value > most:
        raise PlanError(f"{what} takes a whole number up to {most}, not {shown(value)}")
    return value


def whole(what: str, value: Any) -> int:
    """A whole number of Python's or numpy's."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise PlanError(f"{what} takes a whole number, not {shown(value)}") from None


def flag(what: str, value: Any) -> bool:
    """True or False. Other values are refused: even "no" would count as true."""
    if not isinstance(value, bool):
        raise PlanError(f"{what} is True or False, not {shown(value)}")
    return value


def one_of(what: str, value: Any, *choices: str | None) -> Any:
    """One of a few words, or None where that is a choice. The value may be anything at all, even an
    object that cannot be compared."""
    if not (value is None or isinstance(value, str)) or value not in choices:
        words = [repr(choice) for choice in choices if choice is not None]
        raise PlanError(f"{what} is {', '.join(words[:-1])} or {words[-1]}, not {shown(value)}")
    return value


def several(what: str, value: Any) -> tuple[Any, ...]:
    """The items of a list or of another iterable; text, bytes and dicts are refused."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise PlanError(f"{what} takes a list, not {shown(value)}")
    return tuple(value)


def path_of(what: str, value: Any) -> Path:
    """A path that the file system can represent."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str) or not path or "\0" in path:
        raise PlanError(f"{what} takes a path, not {shown(value)}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise PlanError(
            f"{what} takes a path, and {path!r} has characters that no file name can have"
        ) from None
    return Path(path)


def name_of(what: str, value: Any) -> str:
    """The name of one column."""
    if not isinstance(value, str):
        raise PlanError(f"{what} takes the name of a column, not {shown(value)}")
    return value


def names_of(what: str, value: Any) -> tuple[str, ...]:
    """The names of columns, given as one name or as several."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping):
        names = tuple(value)
        if all(isinstance(name, str) for name in names):
            return names
    raise PlanError(f"{what} takes the name of a column or a list of names, not {shown(value)}")


def number(what: str, value: Any) -> float:
    """A number, which NaN is not. Text and booleans are refused, though `float` accepts them."""
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        if math.isnan(found := float(value)):
            raise ValueError
        return found
    except (TypeError, ValueError, OverflowError):
        raise PlanError(f"{what} takes numbers, not {shown(value)}") from None


def positive(what: str, value: Any) -> float:
    """A finite number above 0. Infinity is refused: what has no limit is left out."""
    if not 0 < (found := number(what, value)) < math.inf:
        raise PlanError(f"{what} takes a positive number, not {shown(value)}")
    return found


def amount(what: str, value: Any, *, finite: bool = True) -> float:
    """A number from 0 up."""
    found = number(what, value)
    if found < 0 or (finite and found == math.inf):
        raise PlanError(f"{what} takes a number from 0 up, not {shown(value)}")
    return found


def share(what: str, value: Any) -> float:
    """A number between 0 and 1, which are refused."""
    if not 0 < (found := number(what, value)) < 1:
        raise PlanError(f"{what} is between 0 and 1, not {shown(value)}")
    return found


def duration(what: str, value: Any, *, finite: bool = False) -> float:
    """A positive number of seconds; where it is `finite`, one that every clock can wait for."""
    seconds = number(what, value)
    if not seconds > 0:
        raise PlanError(f"{what} must be a positive number, not {shown(value)}")
    if finite and seconds > _LONGEST:
        raise PlanError(f"{what} must be a positive number up to {_LONGEST:g}, not {shown(value)}")
    return seconds


def text(what: str, value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise PlanError(f"{what} takes a text that is not empty, not {shown(value)}")
    return value


def missing(owner: Any, called: str, name: str, known: dict[str, str]) -> AttributeError:
    """The error for an attribute that does not exist."""
    hint = known.get(name)
    text = f"{called} has no {name!r}"
    if hint is not None:
        text = f"{text}: write {hint}"
    elif close := _close_name(name, dir(type(owner))):
        text = f"{text}; did you mean {close!r}?"
    return AttributeError(text, name=name, obj=owner)


def _close_name(name: str, there: Iterable[str]) -> str | None:
    """The public name that is most like this one, whatever their case and underscores."""
    if name.startswith("_"):  # Python and libraries ask for such names to see what an object can do
        return None
    import difflib

    plain = {other.replace("_", ""): other for other in there if not other.startswith("_")}
    close = difflib.get_close_matches(name.replace("_", "").lower(), plain, n=1, cutoff=0.75)
    return plain[close[0]] if close else None


def unknown(verb: str, name: str, there: Any) -> PlanError:
    """The error for an argument that a verb does not take."""
    hint = ARGUMENTS.get(verb, {}).get(name)
    if hint is not None:
        return PlanError(f"{verb} has no argument {name!r}: write {hint}")
    return PlanError(f"{verb} has no argument {name!r}; it takes {_listed(there)}")


def explains(verb: Callable[P, R]) -> Callable[P, R]:
    """Decorates a verb: an error about an unknown argument then says what to write instead."""

    @functools.wraps(verb)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return verb(*args, **kwargs)
        except TypeError as error:
            traceback = error.__traceback__
            if traceback is None or traceback.tb_next is not None:  # the verb has begun
                raise
        raise _not_callable_so(verb, checked.__name__, args, kwargs)

    return checked


def explains_verbs(cls: type[T]) -> type[T]:
    """Decorates a class: `explains` for each public method that it declares, and for its call."""
    for name, method in list(vars(cls).items()):
        is_plain = inspect.isfunction(method) and not hasattr(method, "__wrapped__")
        if inspect.iscoroutinefunction(method):
            continue
        if is_plain and (not name.startswith("_") or name == "__init__"):
            setattr(cls, name, explains(method))
    return cls


def _not_callable_so(
    verb: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> PlanError:
    signature = inspect.signature(verb)
    if name == "__init__":
        name = verb.__qualname__.split(".")[-2]
    there = [parameter for parameter in signature.parameters if parameter != "self"]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for given in kwargs:
        if given not in there and not takes_all:
            return unknown(name, given, there)
    hint = f": write {CALLED[name]}" if name in CALLED else ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return PlanError(f"{name}: {error}{hint or f'; it takes {_listed(there)}'}")
    raise AssertionError(f"{name} can be called with these arguments")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "no arguments"


def shown(value: Any) -> str:
    """A value in an error: its beginning, whatever its class says of itself."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001  a class of the user's; Python itself for a very large number
        return f"a value of type {type(value).__name__}"
