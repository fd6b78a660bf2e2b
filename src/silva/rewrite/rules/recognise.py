"""Replaces functions of other libraries by silva's operators, where these mean the same.

Motive: people come with transforms that they trust. torchvision's jitter takes 8 ms per photo where
silva's takes a tenth of that; a numpy function is called once per row where once per block will do.

    derive image = Compose(bytes)
    source
        →
    derive image = bytes.random_crop(height=224, width=224).to_chw()
    source

`Compose` stands for `Compose([ToImage(), RandomCrop(224)])`. A numpy function stays, and is called
with whole blocks.

Must not fire: under `fidelity="exact"` (other random numbers, other rounding); where any part of a
`Compose` has no counterpart, or arguments that silva's operators refuse (then all of it runs as it
is, and `explain` says why).

Law, `close`: the same distribution of results up to rounding; each operator's tests state how near
it is to torchvision's. numpy's vectorised loops may differ from its scalar ones in the last bit.
"""

from __future__ import annotations

from dataclasses import replace
from types import FunctionType
from typing import Any

import numpy as np

from silva.operators import from_text
from silva.plan.function import Function, Step, show_step
from silva.plan.node import Derive, Node, option, transform
from silva.rewrite.rule import Rewrite, Rule


def apply(plan: Node) -> Rewrite:
    """The plan with silva's operators in place of equivalent functions."""
    notes: list[str] = []
    refused: list[str] = []

    def change(node: Node) -> Node:
        if not isinstance(node, Derive) or not isinstance(node.step, Function):
            return node
        into = ", ".join(node.into)
        found = recognised(node.step)
        if isinstance(found, str):
            refused.append(f"{into}: {found}")
        if found is None or isinstance(found, str):
            return node
        notes.append(f"{into}: {node.step.name} → {show_step(found)}")
        return replace(node, step=found)

    made = transform(plan, change)
    if notes:
        return Rewrite(made, (*notes, *(f"not used for {why}" for why in refused)))
    asked = option(plan, "fidelity", "exact") == "close"
    return Rewrite(plan, why_not="; ".join(refused) if refused and asked else None)


def recognised(function: Function) -> Step | str | None:
    """The equivalent step of silva's own; where there is none, the reason for a transform of
    torchvision, and None for any other function."""
    fn: Any = function.fn
    if isinstance(fn, FunctionType):
        return None  # written in Python: nothing is known of what it does
    if function.marks.impure or function.keywords or function.marks.batched:
        return None
    if isinstance(fn, np.ufunc) and fn.nin == len(function.reads) and fn.nout == 1:
        return replace(function, marks=replace(function.marks, batched=True))
    if len(function.reads) != 1:
        return None
    if type(fn).__module__.startswith("torchvision.transforms"):  # v1 or v2
        from silva.operators import from_torchvision

        try:
            return from_torchvision.as_expression(fn, function.reads[0]).term
        except from_torchvision.Unknown as why:
            return str(why)
    return from_text.as_term(fn, function.reads[0])


RULE = Rule(
    "recognise",
    apply,
    "silva has operators that do the same",
    exact=False,
    numeric=True,
    acts_on=Function,
)
