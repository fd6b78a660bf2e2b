"""A JPEG decoded only as far down as the crop after it looks has the same pixels."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_image

import silva as sv
from silva.columns import Values
from silva.operators.image import ImageExpr
from silva.operators.image.decoding.partial import upper_rows
from silva.operators.image.header import read_header
from silva.operators.image.laws.exact import decode_upper_rows
from silva.physical.stage.evaluate import evaluate
from silva.plan import expr
from silva.testing import assert_same_stream

PHOTO = load_sample_image("china.jpg")[:301, :203]
X = sv.image("x")


def with_pillow(image: np.ndarray, mode: str = "RGB", orientation: int = 1, **how: Any) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.fromarray(image).convert(mode).save(buffer, "JPEG", exif=exif, **how)
    return buffer.getvalue()


def subsampled(image: np.ndarray, how: str) -> bytes:
    image = np.ascontiguousarray(image)
    return simplejpeg.encode_jpeg(image, 85, colorspace="RGB", colorsubsampling=how)


SUBSAMPLINGS = ("444", "422", "420", "440", "411", "Gray")
IN_ONE_GO = {
    **{how: subsampled(PHOTO, how) for how in SUBSAMPLINGS},
    "optimised": with_pillow(PHOTO, optimize=True),
    "gray": with_pillow(PHOTO, "L"),
}
OTHERS = {
    "progressive": with_pillow(PHOTO, progressive=True),
    "CMYK": with_pillow(PHOTO, "CMYK"),
    "restarts": with_pillow(PHOTO, restart_marker_rows=2),
    "turned": with_pillow(PHOTO, orientation=6),
    "mirrored": with_pillow(PHOTO, orientation=4),
    "PNG": cv2.imencode(".png", PHOTO)[1].tobytes(),
}


def rows(chain: ImageExpr, data: bytes) -> list[Any]:
    """Of six rows of the same image, whose random numbers differ."""
    ids = np.arange(6, dtype=np.uint64)
    return evaluate(chain.term, {"x": Values([data] * 6)}, ids, None, (0, 0, "y")).rows()


def outcome(chain: ImageExpr, data: bytes) -> Any:
    try:
        return [image.tobytes() for image in rows(chain, data)]
    except ValueError as error:
        return str(error)


def in_part(chain: ImageExpr) -> ImageExpr:
    """The right side of the law."""
    made = expr.rebuild(
        chain.term,
        lambda part: (isinstance(part, expr.Call) and decode_upper_rows(part)) or part,
    )
    assert made != chain.term
    return ImageExpr(made)


CROPS = {
    "crop": lambda x: x.crop(3, 5, 90, 100),
    "a row": lambda x: x.crop(0, 0, 1, 203),
    "center": lambda x: x.center_crop(101),
    "random": lambda x: x.random_crop(40, 60),
    "resized": lambda x: x.random_resized_crop(50),
    "with more": lambda x: x.random_crop(60).random_flip().normalize(0.5, 0.5).to_chw(),
    "outside, below": lambda x: x.crop(250, 0, 90, 20),
    "outside, right": lambda x: x.crop(10, 200, 20, 20),
    "outside, both": lambda x: x.center_crop(302),
}


@pytest.mark.parametrize("crop", CROPS.values(), ids=CROPS.keys())
@pytest.mark.parametrize("mode", ["rgb", "gray"])
@pytest.mark.parametrize("name", [*IN_ONE_GO, *OTHERS])
def test_a_part_has_the_pixels_and_the_errors_of_the_whole(name: str, mode: Any, crop: Any):
    data = (IN_ONE_GO | OTHERS)[name]
    whole = crop(X.decode(mode, strict=False))
    assert outcome(in_part(whole), data) == outcome(whole, data)


@pytest.mark.parametrize("gray", [False, True])
@pytest.mark.parametrize("name", IN_ONE_GO)
def test_rows_below_are_not_decoded(name: str, gray: bool):
    data = IN_ONE_GO[name]
    header = read_header(data)
    assert header is not None
    made = upper_rows(data, gray, header, 77)
    assert made is not None
    assert made.shape == (77, 203, 1 if gray else 3)


@pytest.mark.parametrize("name", ["progressive", "CMYK", "restarts", "PNG"])
def test_what_is_not_coded_in_one_go_is_decoded_whole(name: str):
    header = read_header(OTHERS[name])
    assert header is not None
    assert header.height_at == 0


@given(
    size=st.tuples(st.integers(20, 90), st.integers(1, 60)),
    how=st.sampled_from(SUBSAMPLINGS),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=150)
def test_images_of_any_size_and_content(size: tuple[int, int], how: str, seed: int):
    rng = np.random.default_rng(seed)
    data = subsampled(rng.integers(0, 256, (*size, 3), np.uint8), how)
    bottom = int(rng.integers(1, size[0] + 1))
    top, left = int(rng.integers(0, bottom)), int(rng.integers(0, size[1]))
    box = (top, left, bottom - top, size[1] - left)
    whole = X.decode(strict=False).crop(*box)
    assert (
        outcome(in_part(whole), data)
        == outcome(whole, data)
        == outcome(X.decode().crop(*box), data)
    )


@given(data=st.data())
@settings(max_examples=300)
def test_damaged_data_gives_the_same_in_part_and_whole(data: st.DataObject):
    photo = IN_ONE_GO[data.draw(st.sampled_from(sorted(IN_ONE_GO)))]
    at = data.draw(st.integers(1, len(photo) - 1))
    gone = data.draw(st.integers(0, 600))
    put = data.draw(st.one_of(st.binary(max_size=40), st.sampled_from([b"\xff\xd9", bytes(512)])))
    damaged = photo[:at] + put + photo[at + gone :]
    whole = X.decode(strict=False).crop(0, 0, data.draw(st.integers(1, 280)), 90)
    assert outcome(in_part(whole), damaged) == outcome(whole, damaged)


@given(data=st.data())
@settings(max_examples=100)
def test_what_is_not_strict_reads_a_truncated_photo_as_far_as_it_goes(data: st.DataObject):
    photo = IN_ONE_GO[data.draw(st.sampled_from(sorted(IN_ONE_GO)))]
    start = photo.find(b"\xff\xda") + 20
    cut = photo[: data.draw(st.integers(start, len(photo) - 2))]
    [image, *_] = rows(X.decode(strict=False), cut)
    assert image.shape == PHOTO.shape
    assert "truncated or damaged" in outcome(X.decode(), cut)


def test_damage_below_the_crop_would_go_unnoticed_where_it_should_not():
    """The counter-example of the law: why it is not used for decode() as it is."""
    data = IN_ONE_GO["420"]
    damaged = data[:-2000] + data[-100:]  # a piece is missing, below the crop
    strict, lenient = (X.decode(strict=strict).crop(60, 0, 90, 90) for strict in (True, False))
    assert "truncated or damaged" in outcome(strict, damaged)
    assert outcome(in_part(lenient), damaged) == outcome(strict, data)


def test_a_part_can_be_decoded_at_a_smaller_scale():
    large = cv2.resize(PHOTO, None, fx=8, fy=8, interpolation=cv2.INTER_CUBIC)
    for how in ("444", "420"):
        data = subsampled(large, how)
        whole = X.decode(shrink=True, strict=False).random_resized_crop(
            64, (0.2, 0.4), interpolation="area"
        )
        assert outcome(in_part(whole), data) == outcome(whole, data)
    header = read_header(data)
    assert header is not None
    made = upper_rows(data, False, header, 1000, factor=4)
    assert made is not None
    assert made.shape == (250, 406, 3)


def views(*views: ImageExpr) -> sv.Pipeline:
    photos = sv.from_columns({"x": [IN_ONE_GO["420"], IN_ONE_GO["444"]] * 4})
    names = "abc"[: len(views)]
    return photos.derive(**dict(zip(names, views, strict=True))).select(*names).batch(4)


def test_a_plan_decodes_a_part_where_damage_is_let_pass():
    strict, lenient = (
        views(X.decode(strict=strict).random_resized_crop(32)) for strict in (True, False)
    )
    assert "decode_upper_rows" not in strict.explain()
    assert "decode_upper_rows" in lenient.explain()
    found = [[batch["a"] for batch in view.loader(backend="inline")] for view in (strict, lenient)]
    assert all(map(np.array_equal, *found))
    assert_same_stream(lenient, workers=(2,))


def test_a_photo_of_which_there_are_two_views_is_decoded_once_and_whole():
    view = X.decode(strict=False).random_resized_crop(32)
    explained = views(view, view).explain()
    assert "share" in explained
    assert "decode_upper_rows" not in explained


def test_a_photo_that_may_be_kept_between_epochs_is_decoded_whole():
    view = views(X.decode(strict=False).random_resized_crop(32))
    for epochs, memory, partly in ((1, "1GiB", True), (5, "1GiB", False), (5, "1MiB", True)):
        with view.loader(backend="inline", epochs=epochs, memory=memory) as loader:
            list(loader)
            assert ("decode(strict=False, partial=True)" in str(loader.explain())) == partly


def test_boxes_go_with_the_whole_photo():
    view = sv.image("x", boxes="boxes").decode(strict=False).crop(0, 0, 20, 20)
    assert isinstance(view.term, expr.Call)
    assert decode_upper_rows(view.term) is None
