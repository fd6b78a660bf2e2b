"""Decodes large JPEGs at a smaller scale, where the next step shrinks them anyway.

Motive: of a photo of twelve megapixels, a crop of 224 × 224 is wanted; most of the time is spent on
pixels that are averaged away.

    derive image = bytes.decode().random_resized_crop(224, interpolation="area")
      → derive image = bytes.decode(shrink=True).random_resized_crop(224, interpolation="area")

Must not fire: under `fidelity="exact"`; where the next step does not average (bilinear, nearest).

Law, `close`: see `silva.operators._image.shrink`, with its bound and its counter-example.
"""

from __future__ import annotations

from dataclasses import replace

from silva.operators.image_expr import AVERAGING
from silva.optimize.rewrite import Rewrite
from silva.plan import expr
from silva.plan.node import Derive, Filter, Node, transform
from silva.plan.show_steps import show_step

NAME = "shrink_decode"
_SHRINKING = ("image.resize", "image.resize_shorter", "image.random_resized_crop")


def apply(plan: Node) -> Rewrite:
    """The plan with decodes that may shrink."""
    notes: list[str] = []

    def change(node: Node) -> Node:
        if not isinstance(node, Derive | Filter) or not isinstance(node.step, expr.Call):
            return node
        step = expr.rebuild(node.step, _shrunk)
        if step == node.step:
            return node
        notes.append(show_step(step))
        return replace(node, step=step)

    return Rewrite(transform(plan, change), tuple(notes))


def _shrunk(term: expr.Term) -> expr.Term:
    """A resize whose image is decoded for it, with that decode allowed to shrink."""
    if not isinstance(term, expr.Call) or term.op not in _SHRINKING:
        return term
    below = term.args[0]
    if not isinstance(below, expr.Call) or below.op != "image.decode":
        return term
    if dict(term.params)["interpolation"] not in AVERAGING or "shrink" in dict(below.params):
        return term
    decode = replace(below, params=(*below.params, ("shrink", True)))
    return replace(term, args=(decode, *term.args[1:]))
