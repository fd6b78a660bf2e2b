"""The declaration of an image operator: what it is called, and the facts that laws rely on.

`@image_operator` stands on a function that binds what happens to the pixels of one image;
`@image_move` stands on one that chooses a move, which also moves boxes and masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import numpy as np

from silva.operators.arguments import is_array, share
from silva.operators.declare import column_operator
from silva.operators.image.moves import Choose, moving
from silva.operators.image.scene import Scene, check
from silva.operators.rows import Bind, Draw, Fuse, Link, Params, RowKernel
from silva.plan.expr import Expr

Fact = Literal[
    "pixelwise", "keeps_size", "sets_size", "keeps_bytes", "moves", "crops", "flips", "resizes",
    "fills", "blurs",
]  # fmt: skip
E = TypeVar("E", bound=Expr)
B = TypeVar("B", bound=Bind)
C = TypeVar("C", bound=Choose)


def image_operator(
    name: str,
    *,
    random: bool = False,
    pixelwise: bool = False,
    keeps_size: bool = False,
    keeps_bytes: bool = False,
    blurs: bool = False,
    also_random: bool = False,
    after: Mapping[str, Fuse] | None = None,
) -> Callable[[B], B]:
    """Registers `image.<name>`, which changes the values of an image.

    - `pixelwise`: each pixel of a uint8 image depends on that pixel alone, not on its place.
    - `keeps_size`: height and width stay as they are.
    - `keeps_bytes`: uint8 stays uint8, with as many channels.
    - `blurs`: each pixel is a mean of its neighbours.

    `also_random` registers `image.random_<name>` too, which changes a row with `probability`, one
    more parameter. `after` maps the operator before this one to a kernel that does both.
    """
    found = {
        "pixelwise": pixelwise, "keeps_size": keeps_size, "keeps_bytes": keeps_bytes,
        "blurs": blurs,
    }  # fmt: skip
    facts = [fact for fact, holds in found.items() if holds]
    register = column_operator(
        f"image.{name}", facts=facts, random=random, form=lambda bind: RowKernel(bind, after)
    )
    if not also_random:
        return register
    register_random = column_operator(
        f"image.random_{name}",
        facts=facts,
        random=True,
        form=lambda bind: RowKernel(_on_some_rows(bind)),
    )
    return lambda bind: register_random(register(bind))


def with_probability(image: E, name: str, probability: float, **params: Any) -> E:
    """The image with `image.<name>` applied to it: on all rows, or at random on some."""
    if not is_array(probability) and probability == 1:
        return image._call(f"image.{name}", **params)
    chance = share("probability", probability)
    return image._call(f"image.random_{name}", **params, probability=chance)


def _on_some_rows(bind: Bind) -> Bind:
    """The kernel on some rows; the others stay as they are."""

    def bind_some(params: Params, draw: Draw) -> Link:
        chosen = (draw.uniform(1)[:, 0] < params["probability"]).tolist()
        change = bind(params, draw)

        def link(row: int, value: Any, out: np.ndarray | None) -> Any:
            if chosen[row]:
                return change(row, value, out)
            check(value.image if type(value) is Scene else value)
            return value

        return link

    return bind_some


def image_move(
    name: str,
    *,
    random: bool = False,
    crops: bool = False,
    flips: bool = False,
    resizes: bool = False,
    fills: bool = False,
    keeps_size: bool = False,
    sets_size: bool = False,
    with_decode: Callable[[Choose], Fuse] | None = None,
) -> Callable[[C], C]:
    """Registers `image.<name>`, which moves pixels and keeps the type and channels of an image.

    - `crops`, `flips`, `resizes`: what the move does, where it does nothing else (`resizes` also
      where it crops first).
    - `fills`: parts of the result are set to a colour that the user gives.
    - `keeps_size`: height and width stay as they are.
    - `sets_size`: the parameters `height` and `width` are the size of the result.

    `with_decode` makes one kernel of `image.decode` and this move.
    """
    facts = {
        "keeps_bytes": True, "moves": True, "crops": crops, "flips": flips, "resizes": resizes,
        "fills": fills, "keeps_size": keeps_size, "sets_size": sets_size,
    }  # fmt: skip

    def form(choose: Choose) -> RowKernel:
        fused = {} if with_decode is None else {"image.decode": with_decode(choose)}
        return RowKernel(moving(choose), fused)

    return column_operator(
        f"image.{name}",
        facts=[fact for fact, holds in facts.items() if holds],
        random=random,
        form=form,
    )
