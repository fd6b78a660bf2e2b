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
from silva.operators._image.header import read_header
from silva.operators._image.partial import upper_rows
from silva.physical.evaluate import evaluate

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


def rows(chain: sv.ImageExpr, data: bytes) -> list[Any]:
    """Of six rows of the same image, whose random numbers differ."""
    ids = np.arange(6, dtype=np.uint64)
    return evaluate(chain.term, {"x": Values([data] * 6)}, ids, None, (0, 0, "y")).rows()


def outcome(chain: sv.ImageExpr, data: bytes) -> Any:
    try:
        return [image.tobytes() for image in rows(chain, data)]
    except ValueError as error:
        return str(error)


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
    whole, part = (crop(X.decode(mode, partial=partial)) for partial in (False, True))
    assert outcome(part, data) == outcome(whole, data)


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
    part, whole = (rows(X.decode(partial=partial).crop(*box), data)[0] for partial in (True, False))
    assert np.array_equal(part, whole)


@given(data=st.data())
@settings(max_examples=150)
def test_truncated_data_fails_as_ever(data: st.DataObject):
    whole = IN_ONE_GO[data.draw(st.sampled_from(sorted(IN_ONE_GO)))]
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    chains = [X.decode(partial=partial).crop(0, 0, 20, 20) for partial in (True, False)]
    assert outcome(chains[0], cut) == outcome(chains[1], cut)


def test_damage_that_is_not_truncation_may_go_unnoticed():
    """The counter-example of the law, and why it is not exact."""
    data = IN_ONE_GO["420"]
    damaged = data[:-2000] + data[-100:]  # a piece is missing, below the crop
    part, whole = (X.decode(partial=partial).crop(60, 0, 90, 90) for partial in (True, False))
    assert "truncated or damaged" in outcome(whole, damaged)
    assert outcome(part, damaged) == outcome(whole, data)


def test_a_part_can_be_decoded_at_a_smaller_scale():
    large = cv2.resize(PHOTO, None, fx=8, fy=8, interpolation=cv2.INTER_CUBIC)
    for how in ("444", "420"):
        data = subsampled(large, how)
        part, whole = (
            rows(
                X.decode(shrink=True, partial=partial).random_resized_crop(
                    64, (0.2, 0.4), interpolation="area"
                ),
                data,
            )
            for partial in (True, False)
        )
        assert all(map(np.array_equal, part, whole))
    header = read_header(data)
    assert header is not None
    made = upper_rows(data, False, header, 1000, factor=4)
    assert made is not None
    assert made.shape == (250, 406, 3)


def test_a_part_of_an_image_with_boxes_is_taken_of_the_whole():
    columns = {"x": Values([IN_ONE_GO["420"]]), "boxes": Values([[[1, 2, 30, 40]]])}
    made = [
        evaluate(
            sv.image("x", boxes="boxes").decode(partial=partial).crop(0, 0, 20, 20).term,
            columns, np.zeros(1, np.uint64), None, (0, 0, "y"),
        )
        for partial in (True, False)
    ]  # fmt: skip
    parts = [[column.rows()[0] for column in one.columns] for one in made]
    assert all(map(np.array_equal, *parts))


@pytest.mark.parametrize("fidelity", ["exact", "close"])
def test_a_part_is_decoded_where_it_is_asked_for_and_stays_with_its_crop(fidelity: str):
    photos = sv.from_columns({"x": [IN_ONE_GO["420"], IN_ONE_GO["444"]] * 4})
    whole, part = (X.decode(partial=partial).random_resized_crop(32) for partial in (False, True))
    views = [photos.derive(a=view, b=view).select("a", "b").batch(4) for view in (whole, part)]
    views = [pipeline.options(fidelity=fidelity) for pipeline in views]
    assert "partial" not in views[0].explain()
    assert "shared" not in views[1].explain()
    found = [[batch["a"] for batch in view.loader(backend="inline")] for view in views]
    assert all(map(np.array_equal, *found))
