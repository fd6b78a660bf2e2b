"""Values that are not chosen yet: where they may stand, and where they have no meaning.

A function or a method that builds an expression takes them as any of its arguments, also within
lists, tuples and dicts (`chooses`): the expression is then built once for each value. Verbs of a
pipeline other than `derive` and `filter` refuse them (`refuses_choices`).
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from silva.errors import PlanError
from silva.plan.arguments import explains

if TYPE_CHECKING:
    from silva.plan.expr import Expr, Term

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
E = TypeVar("E", bound="Expr")

_CONTAINERS = (list, tuple, dict)


class Open(ABC):
    """A value that is not chosen yet."""

    @abstractmethod
    def as_term(self) -> Term:
        """It as an operand."""

    @abstractmethod
    def as_step(self, made: Callable[[Any], Any]) -> Term:
        """It as a whole step; `made` makes a step of one of the values."""

    @abstractmethod
    def spread(self, build: Callable[..., E], arguments: Mapping[str, Any]) -> E:
        """What `build` gives with these arguments, of which this and maybe others are open, for
        each of their values."""


def open_values(given: Any) -> Iterator[Open]:
    """The open values in an argument."""
    if isinstance(given, Open):
        yield given
    elif type(given) in _CONTAINERS:
        for item in given.values() if type(given) is dict else given:
            if isinstance(item, (Open, *_CONTAINERS)):
                yield from open_values(item)


def chooses(build: Callable[P, E]) -> Callable[P, E]:
    """Lets a function that builds an expression take open values as its arguments. An error about
    an unknown argument says what to write instead."""
    build = explains(build)

    @functools.wraps(build)
    def built(*args: P.args, **kwargs: P.kwargs) -> E:
        first = _first_open(args, kwargs)
        if first is None:
            return build(*args, **kwargs)
        try:
            bound = inspect.signature(build).bind(*args, **kwargs)
        except TypeError:
            return build(*args, **kwargs)  # which says what is wrong

        def build_one(arguments: Mapping[str, Any]) -> E:
            bound.arguments.update(arguments)
            return build(*bound.args, **bound.kwargs)

        return first.spread(build_one, dict(bound.arguments))

    return built


def methods_choose(cls: type[T]) -> type[T]:
    """Decorates a class of expressions: `chooses` for each public method that it declares."""
    return _decorated(cls, chooses, ())


def refuses_choices(*but: str) -> Callable[[type[T]], type[T]]:
    """Decorates a class: its public methods, but for these, refuse open values by name."""

    def refuses(verb: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(verb)
        def checked(*args: Any, **kwargs: Any) -> R:
            found = _first_open(args, kwargs)
            if found is not None:
                names = (n for n, value in kwargs.items() if next(open_values(value), None))
                named = next((f"{name}=…" for name in names), "…")
                raise PlanError(
                    f"{verb.__name__}({named}) takes no {found!r}: a choice is a step of derive or "
                    "filter, or a value in one"
                )
            return verb(*args, **kwargs)

        return checked

    return lambda cls: _decorated(cls, refuses, but)


def _decorated(cls: type[T], decorate: Callable[..., Any], but: tuple[str, ...]) -> type[T]:
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_") and name not in but:
            setattr(cls, name, decorate(method))
    return cls


def _first_open(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Open | None:
    every = (*args, *kwargs.values())
    return next((one for given in every for one in open_values(given)), None)
