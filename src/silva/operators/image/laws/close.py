"""Laws of operators on images that hold nearly: used under `fidelity="close"` only."""

from __future__ import annotations

from silva.operators.image.laws.known import only_moves
from silva.operators.image.moves import AVERAGING
from silva.operators.laws import inner, on, param, with_params
from silva.plan.expr import Call, Term
from silva.plan.law import law
from silva.plan.operator import has_fact


@law(
    "gray_decode",
    "grayscale(decode(x)) ≈ decode('gray')(x), also with moves in between",
    "close",
    fails=(
        "stripes of red and black, one pixel wide: the codec's colours are blurred over them, the "
        "red is clamped, and its luminance is off by up to 26 levels, 13 on average"
    ),
    bound="a mean of 1.5 levels of 255, 99 % within 16, on photos and parts of them",
)
def gray_decode(call: Call) -> Term | None:
    if call.op != "image.grayscale":
        return None
    made = _decoded_gray(call.args[0])
    if made is None or param(call, "channels") == 1:
        return made
    return on(call, made)


def _decoded_gray(term: Term) -> Call | None:
    """The same moves on the image decoded as gray; None where something else is in between."""
    if not isinstance(term, Call):
        return None
    if term.op == "image.decode" and param(term, "mode") is None:
        return Call(term.op, term.args, (("mode", "gray"), *term.params))
    below = _decoded_gray(term.args[0]) if only_moves(term) else None
    return None if below is None else on(term, below)


@law(
    "shrink_decode",
    "area_resize(decode(x)) ≈ area_resize(decode at 1/2, 1/4 or 1/8 (x)): it shrinks anyway",
    "close",
    fails="an image of noise, whose smaller scales are not the means of its pixels",
    bound="a mean of 2.5 levels of 255, 99 % within 16, on photos",
)
def shrink_decode(call: Call) -> Term | None:
    first = inner(call, "image.decode")
    if not has_fact(call.op, "resizes") or first is None or param(first, "shrink"):
        return None
    if param(call, "interpolation") not in AVERAGING:
        return None
    return on(call, with_params(first, shrink=True))
