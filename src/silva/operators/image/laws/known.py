"""What the plan knows of an image before it exists: its type and its size, from the calls that make
it. Laws hold for uint8, and some only for a known size; elsewhere they are not used."""

from __future__ import annotations

from silva.operators.laws import param
from silva.plan.expr import Call, Term, width
from silva.plan.operator import has_fact


def channels(term: Term) -> int | None:
    """The number of channels of a uint8 image; None where it is not known to be one.

    It is not known of a decode that may shrink, which depends on the operator after it.
    """
    if not isinstance(term, Call):
        return None
    if term.op == "image.decode":
        return None if param(term, "shrink") else 1 if param(term, "mode") == "gray" else 3
    below = channels(term.args[0]) if term.args else None
    if term.op == "image.grayscale":
        return None if below is None else int(param(term, "channels"))
    return below if has_fact(term.op, "keeps_bytes") else None


def size(term: Term) -> tuple[int, int] | None:
    """Height and width of an image, where they follow from the calls alone."""
    if not isinstance(term, Call):
        return None
    if has_fact(term.op, "sets_size"):
        return param(term, "height"), param(term, "width")
    return size(term.args[0]) if has_fact(term.op, "keeps_size") else None


def only_moves(call: Call) -> bool:
    """Whether the call moves pixels and fills nothing, so that the number of channels is free."""
    return has_fact(call.op, "moves") and not has_fact(call.op, "fills")


def is_plain(term: Term) -> bool:
    """Whether no boxes go along; their floats would be rounded in another order."""
    return width(term) == 1


def changes(jitter: Call, name: str) -> bool:
    """Whether a color_jitter changes this property at all."""
    return bool(param(jitter, name) != ((0.0, 0.0) if name == "hue" else (1.0, 1.0)))
