"""Image operators. An image is an array (height, width, channels).

Each family file holds an operator's method (what people write, checked at once), its declaration
with the facts that laws rely on, and its kernel: what happens to one image, by native calls that
release the GIL. `ImageExpr` is composed of the families' methods. `silva.operators.rows` takes a
row through a whole chain of kernels and writes the last result into the array of the block.
`scene` is an image with its boxes and mask, `moves` are what geometric operators do to all of them.
"""

from __future__ import annotations

from silva.errors import PlanError
from silva.operators.arguments import column_name
from silva.operators.image.augment import AugmentMethods
from silva.operators.image.codecs import CodecMethods
from silva.operators.image.colour import ColourMethods
from silva.operators.image.crops import CropMethods
from silva.operators.image.detection import DetectionMethods
from silva.operators.image.filters import FilterMethods
from silva.operators.image.levels import LevelMethods
from silva.operators.image.pixels import PixelMethods
from silva.operators.image.turns import TurnMethods
from silva.plan.expr import Col, Expr
from silva.plan.open import chooses


class ImageExpr(
    CodecMethods,
    CropMethods,
    TurnMethods,
    DetectionMethods,
    ColourMethods,
    LevelMethods,
    FilterMethods,
    PixelMethods,
    AugmentMethods,
):
    """A column of encoded images, or of arrays (height, width, channels).

    >>> image("photo").crop(0, 0, 8, 8).flip()
    photo.crop(top=0, left=0, height=8, width=8).flip(direction='horizontal')
    """

    __slots__ = ()


@chooses
def image(
    name: str, *, boxes: str | None = None, labels: str | None = None, mask: str | None = None
) -> ImageExpr:
    """A column of images, by name; with boxes, their labels, and a mask that move along.

    Boxes are (n, 4): left, top, right, bottom in pixels. What comes out is several columns, the
    image first, then the others in this order: `derive(…, into=("image", "boxes", "labels"))`.

    >>> image("bytes").decode(max_pixels=10**6).random_crop(32)
    bytes.decode(max_pixels=1000000).random_crop(height=32, width=32)
    >>> image("photo", boxes="boxes").flip()
    photo.scene(boxes, carries=('boxes',)).flip(direction='horizontal')
    """
    given = {"boxes": boxes, "labels": labels, "mask": mask}
    if labels is not None and boxes is None:
        raise PlanError("labels= belong to boxes=: give both")
    carried = {part: column_name(x) for part, x in given.items() if x is not None}
    start = ImageExpr(Col(column_name(name)))
    if not carried:
        return start
    columns = [Expr(Col(column)) for column in carried.values()]
    return start._call("image.scene", *columns, carries=tuple(carried))


import silva.operators.image.laws  # noqa: E402, F401  comes last: laws name operators by their facts

__all__ = ["ImageExpr", "image"]
