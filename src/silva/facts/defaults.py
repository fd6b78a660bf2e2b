"""Leaves out the arguments of operators that have their default values."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator

from silva.plan.expr import Expr

_CALL = re.compile(r"\.(\w+)\(")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def without_defaults(text: str) -> str:
    """Text with calls of operators, without the arguments that have their default values.

    >>> import silva as sv
    >>> photo = sv.image("photo").resize(8, 8, interpolation="bilinear")
    >>> without_defaults(str(photo))
    'photo.resize(height=8, width=8)'
    >>> without_defaults(str(sv.image("photo").resize(8, 8, interpolation="area")))
    "photo.resize(height=8, width=8, interpolation='area')"
    >>> without_defaults(str(sv.list("clicks").pad(3)))  # arrays are padded by other arguments
    'clicks.pad(length=3)'
    """
    parts, start = [], 0
    for call in _CALL.finditer(text):
        found = _arguments(text, call.end())
        if call.end() < start or found is None:
            continue
        arguments, end = found
        defaults = _defaults(call[1], frozenset(one.partition("=")[0] for one in arguments))
        if not defaults:
            continue
        kept = [one for one in arguments if one.partition("=")[::2] not in defaults]
        parts += [text[start : call.end()], ", ".join(kept)]
        start = end
    return "".join([*parts, text[start:]])


def _arguments(text: str, start: int) -> tuple[list[str], int] | None:
    """The arguments of a call, and where they end; None where that is not clear."""
    open_brackets, quote, begun, found = [], "", start, []
    for at in range(start, len(text)):
        character = text[at]
        if quote:
            quote = "" if character == quote and text[at - 1] != "\\" else quote
        elif character in "'\"":
            quote = character
        elif character in _CLOSING:
            open_brackets.append(_CLOSING[character])
        elif open_brackets and character == open_brackets[-1]:
            open_brackets.pop()
        elif not open_brackets and character in ",)":
            found.append(text[begun:at].strip())
            begun = at + 1
            if character == ")":
                return [one for one in found if one], at
    return None


@functools.cache
def _defaults(operator: str, names: frozenset[str]) -> frozenset[tuple[str, str]]:
    """The names and default values of an operator's arguments, as text. An operator of several
    kinds of columns has those that are the same for all which take arguments of these names."""
    found = [vars(kind).get(operator) for kind in _subclasses(Expr)]
    every = [inspect.signature(one) for one in found if inspect.isfunction(one)]
    # an argument may be shown under other names than it is given by: crop(8) has height=8, width=8
    signatures = [one for one in every if names <= one.parameters.keys()] or every
    each = [
        {
            (name, repr(given.default))
            for name, given in signature.parameters.items()
            if given.default is not given.empty
        }
        for signature in signatures
    ]
    return frozenset(set.intersection(*each)) if each else frozenset()


def _subclasses(kind: type[Expr]) -> Iterator[type[Expr]]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)
