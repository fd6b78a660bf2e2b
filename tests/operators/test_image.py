"""The image operators against plain, slow references."""

from __future__ import annotations

import io
import math
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_sample_image

from silva.columns import Array, Column, Values
from silva.errors import PlanError
from silva.operators.image import ImageExpr, image
from silva.operators.image.crops import random_box
from silva.operators.image.header import read_header
from silva.plan.expr import Call, Expr, walk
from silva.plan.operator import operator

PHOTOS = [np.ascontiguousarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]
X = image("x")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Draws:
    """Stands in for the row-keyed draws: row i owns line i of a table."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    def uniform(self, k: int) -> np.ndarray:
        return self.table[:, :k]


def draws(rows: int, seed: int = 0) -> Draws:
    return Draws(np.random.default_rng(seed).random((rows, 32)))


def run(expr: Expr, column: Column, draw: Draws | None = None) -> Column:
    """The kernels of `expr`, one after the other."""
    for term in walk(expr.term):
        if isinstance(term, Call):
            column = operator(term.op).kernel([column], dict(term.params), draw)
    return column


def one(expr: Expr, value: Any) -> Any:
    """The result for a column of one row."""
    (result,) = run(expr, Values([value]), draws(1)).rows()
    return result


def noise(seed: int, *shape: int, dtype: Any = np.uint8) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.random(shape).astype(dtype)
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def same(a: Any, b: Any) -> None:
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    assert np.array_equal(a, b)


shapes = st.tuples(st.integers(1, 20), st.integers(1, 20), st.sampled_from([1, 3, 4]))
dtypes = st.sampled_from(["uint8", "uint16", "int16", "float32", "float64"])
seeds = st.integers(0, 2**32 - 1)
pictures = st.builds(
    lambda seed, shape, dtype: noise(seed, *shape, dtype=dtype), seeds, shapes, dtypes
)


# What holds for every operator: nulls, shapes, read-only inputs, block borders.

EVERY: dict[str, Expr] = {
    "resize": X.resize(5, 6),
    "crop": X.crop(1, 2, 3, 4),
    "center_crop": X.center_crop((4, 3)),
    "random_crop": X.random_crop(4, 5),
    "random_resized_crop": X.random_resized_crop(6),
    "flip": X.flip(),
    "random_flip": X.random_flip(),
    "grayscale": X.grayscale(),
    "grayscale3": X.grayscale(3),
    "normalize": X.normalize(0.5, 0.25),
    "to_float": X.to_float(),
    "to_chw": X.to_chw(),
}
FIXED = ("resize", "crop", "center_crop", "random_crop", "random_resized_crop")


@pytest.mark.parametrize("name", EVERY)
def test_rows_of_one_shape_become_one_contiguous_array(name: str) -> None:
    out = run(EVERY[name], Array(noise(0, 7, 12, 13, 3)), draws(7))
    assert isinstance(out, Array)
    assert out.data.flags.c_contiguous
    assert len(out) == 7


@pytest.mark.parametrize("name", EVERY)
def test_an_array_and_a_list_of_the_same_rows_give_the_same(name: str) -> None:
    data = noise(0, 5, 12, 13, 3)
    dense = run(EVERY[name], Array(data), draws(5))
    listed = run(EVERY[name], Values(list(data)), draws(5))
    strided = np.repeat(data, 2, axis=2)[:, :, ::2]
    for a, b, c in zip(
        dense.rows(), listed.rows(), run(EVERY[name], Array(strided), draws(5)).rows(), strict=True
    ):
        same(a, b)
        same(a, c)


@pytest.mark.parametrize("name", EVERY)
def test_varying_shapes_are_listed_unless_the_result_has_one_shape(name: str) -> None:
    images = [noise(i, 10 + i, 14 - i, 3) for i in range(4)]
    out = run(EVERY[name], Values(images), draws(4))
    assert isinstance(out, Array if name in FIXED else Values)
    assert all(x.flags.c_contiguous for x in out.rows())


@pytest.mark.parametrize("name", EVERY)
def test_unlike_channels_and_types_are_kept_apart(name: str) -> None:
    images = [noise(0, 9, 9, 3), noise(1, 9, 9, 1), noise(2, 9, 9, 3)]
    if not name.startswith("grayscale"):
        images.append(noise(3, 9, 9, 3, dtype=np.float32))
    table = draws(len(images)).table
    out = run(EVERY[name], Values(images), Draws(table)).rows()
    for i, picture in enumerate(images):
        alone = run(EVERY[name], Values([picture]), Draws(table[i : i + 1]))
        same(out[i], alone.rows()[0])


@pytest.mark.parametrize("name", [*EVERY, "decode"])
def test_nulls_stay_nulls(name: str) -> None:
    data = [noise(i, 9, 9, 3) for i in range(3)]
    column: Column = Array(np.stack(data), np.array([True, False, True]))
    if name == "decode":
        column = Values([png(data[0]), None, png(data[2])])
    out = run(EVERY.get(name, X.decode()), column, draws(3))
    assert isinstance(out, Values)
    assert [x is None for x in out.items] == [False, True, False]
    nothing = run(EVERY.get(name, X.decode()), Values([None]), draws(1))
    assert nothing.rows() == [None]


@pytest.mark.parametrize("name", [*EVERY, "decode"])
def test_no_rows_give_no_rows(name: str) -> None:
    assert len(run(EVERY.get(name, X.decode()), Values([]), draws(0))) == 0


@pytest.mark.parametrize("name", EVERY)
def test_inputs_are_never_written(name: str) -> None:
    data = noise(0, 3, 9, 9, 3)
    before = data.copy()
    data.flags.writeable = False
    out = run(EVERY[name], Array(data), draws(3))
    assert isinstance(out, Array)
    assert not np.shares_memory(out.data, data)
    same(data, before)


@pytest.mark.parametrize("name", EVERY)
def test_a_rows_result_does_not_depend_on_block_borders(name: str) -> None:
    images = Values([noise(i, 8 + i % 3, 9, 3) for i in range(9)])
    table = draws(9).table
    whole = run(EVERY[name], images, Draws(table)).rows()
    for cut in range(10):
        parts = [
            run(EVERY[name], images.slice(a, b), Draws(table[a:b])).rows()
            for a, b in ((0, cut), (cut, 9))
        ]
        for x, y in zip(whole, parts[0] + parts[1], strict=True):
            same(x, y)


def test_traits() -> None:
    random = {name for name, expr in EVERY.items() if operator(_op(expr)).random}
    assert random == {"random_crop", "random_resized_crop", "random_flip"}
    assert all(operator(_op(expr)).releases_gil for expr in EVERY.values())


def _op(expr: Expr) -> str:
    assert isinstance(expr.term, Call)
    return expr.term.op


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\xff\xd8", "decode\\(\\) comes first"),
        (np.zeros((4, 4), np.uint8), "adds the channels"),
        (np.zeros((0, 4, 3), np.uint8), "height, width, channels"),
        (np.zeros((4, 4, 3), ">u2"), "native"),
    ],
)
def test_what_is_no_image_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        one(X.flip(), value)


def test_writing_an_expression_loads_no_native_library() -> None:
    code = (
        "import sys, silva.operators.image as e; e.image('x').decode().resize(2, 2);"
        "assert not {'cv2', 'simplejpeg'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Geometry: exact.


@pytest.mark.operators("image.crop", "image.center_crop", "image.random_crop")
@given(pictures, st.data())
def test_crops(x: np.ndarray, data: st.DataObject) -> None:
    height = data.draw(st.integers(1, x.shape[0]))
    width = data.draw(st.integers(1, x.shape[1]))
    top = data.draw(st.integers(0, x.shape[0] - height))
    left = data.draw(st.integers(0, x.shape[1] - width))
    same(one(X.crop(top, left, height, width), x), x[top : top + height, left : left + width])
    top, left = (x.shape[0] - height) // 2, (x.shape[1] - width) // 2
    same(one(X.center_crop((height, width)), x), x[top : top + height, left : left + width])
    u = draws(1).table[0]
    top, left = int(u[0] * (x.shape[0] - height + 1)), int(u[1] * (x.shape[1] - width + 1))
    same(one(X.random_crop(height, width), x), x[top : top + height, left : left + width])


@pytest.mark.parametrize("expr", [X.center_crop(9), X.random_crop(9, 2), X.crop(3, 0, 6, 2)])
def test_a_crop_that_does_not_fit_is_an_error(expr: Expr) -> None:
    with pytest.raises(ValueError, match="does not lie inside an image of 8 × 20"):
        one(expr, noise(0, 8, 20, 3))


@pytest.mark.operators("image.random_crop")
def test_every_place_of_a_random_crop_occurs_and_none_outside() -> None:
    x = np.arange(12, dtype=np.uint8).reshape(3, 4, 1)
    edge = np.nextafter(1.0, 0.0)
    table = np.concatenate([draws(200).table, np.full((1, 32), edge), np.zeros((1, 32))])
    out = run(X.random_crop(2, 2), Values([x] * 202), Draws(table)).rows()
    assert {int(c[0, 0, 0]) for c in out} == {0, 1, 2, 4, 5, 6}
    assert int(out[200][0, 0, 0]) == 6


@pytest.mark.operators("image.flip")
@given(pictures)
def test_flips(x: np.ndarray) -> None:
    same(one(X.flip(), x), x[:, ::-1])
    same(one(X.flip("vertical"), x), x[::-1])
    same(one(X.flip().flip(), x), x)
    same(one(X.random_flip(1.0), x), x[:, ::-1])
    same(one(X.random_flip(0.0), x), x)


@pytest.mark.operators("image.random_flip")
def test_random_flip_flips_the_rows_that_drew_below_the_probability() -> None:
    data, drawn = noise(0, 50, 4, 5, 3), draws(50)
    out = run(X.random_flip(0.3, "vertical"), Array(data), drawn).rows()
    for x, y, u in zip(data, out, drawn.table[:, 0], strict=True):
        same(y, x[::-1] if u < 0.3 else x)


@given(pictures, st.data())
def test_laws_of_crop_and_flip(x: np.ndarray, data: st.DataObject) -> None:
    rows, cols = x.shape[:2]
    h, w = data.draw(st.integers(1, rows)), data.draw(st.integers(1, cols))
    top, left = data.draw(st.integers(0, rows - h)), data.draw(st.integers(0, cols - w))
    crop = X.crop(top, left, h, w)
    same(one(X.flip().crop(top, left, h, w), x), one(X.crop(top, cols - left - w, h, w).flip(), x))
    same(one(crop.crop(h - 1, w - 1, 1, 1), x), one(X.crop(top + h - 1, left + w - 1, 1, 1), x))


@given(shapes, seeds, st.sampled_from([np.uint8, np.float32]), st.data())
def test_pixel_operators_commute_with_crop_and_flip(
    shape: Any, seed: int, dtype: Any, data: st.DataObject
) -> None:
    x = noise(seed, shape[0], shape[1], 3, dtype=dtype)
    h, w = data.draw(st.integers(1, shape[0])), data.draw(st.integers(1, shape[1]))
    top, left = data.draw(st.integers(0, shape[0] - h)), data.draw(st.integers(0, shape[1] - w))
    crop = X.crop(top, left, h, w)
    for name in ("to_float", "normalize", "grayscale"):
        if name == "grayscale" and dtype != np.uint8:
            continue
        args = (MEAN, STD) if name == "normalize" else ()
        first, after_crop, after_flip = (getattr(e, name)(*args) for e in (X, crop, X.flip()))
        same(one(first.crop(top, left, h, w), x), one(after_crop, x))
        same(one(first.flip(), x), one(after_flip, x))


@pytest.mark.operators("image.to_chw")
@given(pictures)
def test_channels_first(x: np.ndarray) -> None:
    same(one(X.to_chw(), x), np.ascontiguousarray(x.transpose(2, 0, 1)))


# Resize: nearest exact; the others within 1 for uint8 (OpenCV's fixed point), 1e-4 for floats.


def _cubic(d: np.ndarray) -> np.ndarray:
    a, d = -0.75, abs(d)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    return np.where(d <= 1, near, np.where(d < 2, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a, 0))


KERNELS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "bilinear": (1, lambda d: np.maximum(1 - abs(d), 0)),
    "bicubic": (2, _cubic),
    "lanczos": (4, lambda d: np.sinc(d) * np.sinc(d / 4) * (abs(d) < 4)),
}


def weights(size: int, new: int, how: str) -> np.ndarray:
    """(new, size): how much of each old pixel is in each new one."""
    out = np.zeros((new, size))
    for i in range(new):
        if how == "area":
            low, high = i * size / new, (i + 1) * size / new
            share = np.minimum(np.arange(1, size + 1), high) - np.maximum(np.arange(size), low)
            out[i] = np.maximum(share, 0)
        else:
            reach, kernel = KERNELS[how]
            center = (i + 0.5) * size / new - 0.5
            taps = np.arange(math.floor(center) - reach + 1, math.floor(center) + reach + 1)
            np.add.at(out[i], taps.clip(0, size - 1), kernel(taps - center))
    return np.asarray(out / out.sum(axis=1, keepdims=True))


def resized(x: np.ndarray, height: int, width: int, how: str) -> np.ndarray:
    if how == "nearest":
        rows = (np.arange(height) * (x.shape[0] / height)).astype(int)
        cols = (np.arange(width) * (x.shape[1] / width)).astype(int)
        return np.asarray(x[rows][:, cols])
    tall, wide = weights(x.shape[0], height, how), weights(x.shape[1], width, how)
    return np.asarray(np.einsum("ij,jkc,lk->ilc", tall, x.astype(float), wide, optimize=True))


def close(out: np.ndarray, expected: np.ndarray, how: str = "") -> None:
    assert out.shape == expected.shape
    if how == "nearest":
        assert np.array_equal(out, expected)
    elif out.dtype == np.uint8:
        assert abs(out - expected.clip(0, 255)).max() <= 1
    else:
        assert abs(out - expected).max() <= 1e-4


@pytest.mark.parametrize("how", ["nearest", "bilinear", "bicubic", "area", "lanczos"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_resize(how: Any, dtype: Any, channels: int) -> None:
    for height, width in [(24, 18), (12, 9), (7, 5), (1, 1), (24, 5), (17, 18)]:
        x = noise(height, 24, 18, channels, dtype=dtype)
        close(one(X.resize(height, width, how), x), resized(x, height, width, how), how)
    if how != "area":  # OpenCV's area is another bilinear when it enlarges
        close(one(X.resize(40, 31, how), x), resized(x, 40, 31, how), how)


@pytest.mark.parametrize("how", ["nearest", "bilinear", "bicubic", "area", "lanczos"])
def test_resize_of_photos(how: Any) -> None:
    for photo in PHOTOS:
        close(one(X.resize(100, 160, how), photo), resized(photo, 100, 160, how), how)


def test_resize_takes_a_size_or_a_pair_as_one_step() -> None:
    assert X.resize(9).term == X.resize((9, 9)).term == X.resize(9, 9).term
    assert X.resize((9, 5)).term == X.resize(9, 5).term
    with pytest.raises(PlanError, match="number of pixels or"):
        X.resize((9, 5, 3))


@pytest.mark.operators("image.resize_shorter")
@pytest.mark.parametrize(("height", "width"), [(37, 91), (91, 37), (40, 40), (3, 400)])
def test_resize_shorter_keeps_the_proportions(height: int, width: int) -> None:
    x = np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)
    made = one(X.resize_shorter(20, "area"), x)
    assert min(made.shape[:2]) == 20
    longer = 20 * max(height, width) // min(height, width)
    assert made.shape == ((20, longer, 3) if height <= width else (longer, 20, 3))
    same(made, one(X.resize(*made.shape[:2], "area"), x))


@pytest.mark.operators("image.resize")
@given(pictures, st.sampled_from(["nearest", "bilinear", "bicubic", "area", "lanczos"]))
def test_resize_to_its_own_size_changes_nothing(x: np.ndarray, how: Any) -> None:
    same(one(X.resize(x.shape[0], x.shape[1], how), x), x)


def test_a_type_that_opencv_cannot_resize_is_named() -> None:
    with pytest.raises(ValueError, match=r"\(4, 4, 3\) and type int64"):
        one(X.resize(2, 2), np.zeros((4, 4, 3), np.int64))


# Random resized crop.


def torchvision_box(
    height: int, width: int, u: np.ndarray, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int]:
    """torchvision's `RandomResizedCrop.get_params`, with the same numbers drawn."""
    for k in range(10):
        area = height * width * (scale[0] + (scale[1] - scale[0]) * u[k])
        low, high = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(low + (high - low) * u[10 + k])
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(u[20] * (height - h + 1)), int(u[21] * (width - w + 1)), h, w
    if width / height < ratio[0]:
        w, h = width, round(width / ratio[0])
    elif width / height > ratio[1]:
        w, h = round(height * ratio[1]), height
    else:
        w, h = width, height
    h, w = max(h, 1), max(w, 1)
    return (height - h) // 2, (width - w) // 2, h, w


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), min_size=1, max_size=8),
    seeds,
    st.sampled_from([(0.08, 1.0), (0.9, 1.0), (1.0, 1.0), (0.001, 0.01)]),
    st.sampled_from([(3 / 4, 4 / 3), (1.0, 1.0), (0.1, 0.2), (5.0, 9.0)]),
)
def test_boxes_are_those_of_torchvision(
    sizes: list[tuple[int, int]],
    seed: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> None:
    drawn = draws(len(sizes), seed).table[:, :22]
    for (height, width), u in zip(sizes, drawn, strict=True):
        part = random_box(height, width, u.tolist(), scale, ratio)
        box = (part.top, part.left, part.height, part.width)
        assert box == torchvision_box(height, width, u, scale, ratio)
        assert 0 <= box[0] <= box[0] + box[2] <= height
        assert 0 <= box[1] <= box[1] + box[3] <= width


@pytest.mark.operators("image.random_resized_crop")
def test_random_resized_crop_resizes_its_boxes() -> None:
    drawn = draws(20)
    images = [PHOTOS[i % 2][: 100 + i, : 150 - i] for i in range(20)]
    out = run(X.random_resized_crop((32, 40)), Values(images), drawn)
    assert isinstance(out, Array)
    for x, y, u in zip(images, out.data, drawn.table, strict=True):
        top, left, h, w = torchvision_box(x.shape[0], x.shape[1], u, (0.08, 1.0), (3 / 4, 4 / 3))
        close(y, resized(x[top : top + h, left : left + w], 32, 40, "bilinear"))


# Pixels.


@pytest.mark.operators("image.grayscale")
@given(st.tuples(st.integers(1, 9), st.integers(1, 9)), seeds)
def test_grayscale(size: tuple[int, int], seed: int) -> None:
    x = noise(seed, *size, 3)
    expected = (x.astype(int) @ np.array([9798, 19235, 3735]) + (1 << 14)) >> 15  # exact
    gray = expected.astype(np.uint8)[:, :, None]
    same(one(X.grayscale(), x), gray)
    same(one(X.grayscale(3), x), gray.repeat(3, axis=2))
    same(one(X.grayscale(), gray), gray)
    same(one(X.grayscale(3), gray), gray.repeat(3, axis=2))


def test_grayscale_of_a_photo_is_within_one_of_its_weights() -> None:
    for photo in PHOTOS:
        expected = photo @ np.array([0.299, 0.587, 0.114])
        assert abs(one(X.grayscale(), photo)[:, :, 0] - expected).max() <= 1


@pytest.mark.parametrize("x", [noise(0, 3, 3, 4), noise(0, 3, 3, 3, dtype=np.float32)])
def test_grayscale_needs_uint8_of_one_or_three_channels(x: np.ndarray) -> None:
    with pytest.raises(ValueError, match="needs uint8 of 1 or 3 channels"):
        one(X.grayscale(), x)


def normalized(x: np.ndarray, mean: Any, std: Any) -> np.ndarray:
    """The formula, each operation in float32."""
    f = x.astype(np.float32)
    if x.dtype == np.uint8:
        f = f / np.float32(255)
    return (f - np.float32(mean)) / np.float32(std)


@pytest.mark.operators("image.normalize", "image.to_float")
def test_normalize_is_bit_equal_to_the_formula() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, axis=2)
    for x in (levels, *PHOTOS):
        expected = normalized(x, MEAN, STD)
        same(one(X.normalize(MEAN, STD), x), expected)
        same(one(X.to_float().normalize(MEAN, STD), x), expected)
        same(one(X.normalize(0.5, 0.25), x), normalized(x, 0.5, 0.25))
        same(one(X.to_float(), x), x.astype(np.float32) / np.float32(255))


@given(shapes, seeds, st.sampled_from([np.uint8, np.float16, np.float32, np.float64]))
def test_normalize_of_any_channels_and_floats(shape: Any, seed: int, dtype: Any) -> None:
    x = noise(seed, *shape, dtype=dtype)
    rng = np.random.default_rng(seed)
    for n in {1, shape[2]}:
        mean, std = rng.random(n), rng.random(n) + 0.1
        same(one(X.normalize(list(mean), list(std)), x), normalized(x, mean, std))


def test_integers_of_unknown_scale_are_refused() -> None:
    for expr in (X.to_float(), X.normalize(0, 1)):
        with pytest.raises(ValueError, match="int16 has no known scale"):
            one(expr, np.zeros((2, 2, 1), np.int16))


def test_means_must_fit_the_channels() -> None:
    with pytest.raises(ValueError, match="3 means for an image of 1 channels"):
        one(X.normalize(MEAN, STD), noise(0, 2, 2, 1))


# Decode.


def png(x: np.ndarray) -> bytes:
    return encoded(".png", x)


def encoded(form: str, x: np.ndarray) -> bytes:
    order = [2, 1, 0, 3][: x.shape[2]] if x.shape[2] > 1 else [0]
    return bytes(cv2.imencode(form, np.ascontiguousarray(x[:, :, order]))[1])


def jpeg(x: np.ndarray, subsampling: str = "420") -> bytes:
    colours = "GRAY" if x.shape[2] == 1 else "RGB"
    x = np.ascontiguousarray(x)
    return bytes(simplejpeg.encode_jpeg(x, 90, colours, "Gray" if x.shape[2] == 1 else subsampling))


def with_pil(x: np.ndarray, form: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    pil = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    pil.fromarray(x).convert(mode).save(buffer, form, **options)
    return buffer.getvalue()


@pytest.mark.operators("image.decode")
def test_decode_of_lossless_formats_is_exact() -> None:
    x = noise(0, 33, 21, 3)
    for form in (".png", ".bmp"):
        same(one(X.decode(), encoded(form, x)), x)
    gray = noise(0, 33, 21, 1)
    same(one(X.decode("gray"), png(gray)), gray)
    same(one(X.decode(), png(gray)), gray.repeat(3, axis=2))
    params = [cv2.IMWRITE_WEBP_QUALITY, 101]  # lossless
    webp = bytes(cv2.imencode(".webp", np.ascontiguousarray(x[:, :, ::-1]), params)[1])
    same(one(X.decode(), webp), x)


def test_decode_of_photos_is_near_the_photo() -> None:
    for photo in PHOTOS:
        for form in (".jpg", ".webp"):
            out = one(X.decode(), encoded(form, photo))
            assert out.dtype == np.uint8
            assert abs(out.astype(int) - photo).mean() < 6
            gray = one(X.decode("gray"), encoded(form, photo))
            assert gray.shape == (*photo.shape[:2], 1)
            assert abs(gray.astype(int) - one(X.grayscale(), out)).mean() < 1


@pytest.mark.parametrize("subsampling", ["444", "422", "420", "440", "411"])
def test_every_subsampling_is_decoded(subsampling: str) -> None:
    photo = PHOTOS[0][:64, :64]
    assert abs(one(X.decode(), jpeg(photo, subsampling)).astype(int) - photo).mean() < 8


@pytest.mark.parametrize("mode", ["rgb", "gray"])
def test_one_pixel_and_gray_jpegs(mode: Any) -> None:
    channels = 3 if mode == "rgb" else 1
    for data in (jpeg(noise(0, 1, 1, 3)), png(noise(0, 1, 1, 3)), jpeg(noise(0, 1, 1, 1))):
        assert one(X.decode(mode), data).shape == (1, 1, channels)


def test_alpha_is_dropped_and_16_bits_keep_the_upper_8() -> None:
    x = noise(0, 9, 8, 4)
    same(one(X.decode(), png(x)), np.ascontiguousarray(x[:, :, :3]))
    deep = noise(0, 9, 8, 3, dtype=np.uint16)
    same(one(X.decode(), png(deep)), (deep >> 8).astype(np.uint8))
    deep = deep[:, :, :1]
    same(one(X.decode("gray"), png(deep)), (deep >> 8).astype(np.uint8))


def test_cmyk_jpeg() -> None:
    photo = PHOTOS[0][:80, :90]
    data = with_pil(photo, mode="CMYK", quality=95)
    assert abs(one(X.decode(), data).astype(int) - photo).mean() < 3
    assert one(X.decode("gray"), data).shape == (80, 90, 1)


def test_a_subsampling_that_simplejpeg_refuses_goes_to_opencv() -> None:
    # 30 blocks with one set of tables: 10 units of 1 + 1 + 1, or 3 units of 4 × 2 + 1 + 1
    data = bytearray(with_pil(noise(0, 8, 80, 3), keep_rgb=True, subsampling=0))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 16, 96)
    data[at + 11] = 0x42
    with pytest.raises(ValueError, match="subsampling"):
        simplejpeg.decode_jpeg(bytes(data))
    assert one(X.decode(), bytes(data)).shape == (16, 96, 3)
    data[at + 5 : at + 9] = struct.pack(">HH", 32, 40)  # 5 units of 1 × 4 + 1 + 1
    data[at + 11] = 0x14
    assert one(X.decode(), bytes(data)).shape == (32, 40, 3)


def test_bytes_in_any_container() -> None:
    data = png(noise(0, 3, 4, 3))
    for value in (data, bytearray(data), memoryview(data)):
        same(one(X.decode(), value), noise(0, 3, 4, 3))


@pytest.mark.parametrize("mode", ["rgb", "gray"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(10))
def test_exif_orientation_is_applied(orientation: int, order: str, mode: Any) -> None:
    photo = PHOTOS[0][:32, :48]
    plain = jpeg(photo)
    tiff = b"II*\0" if order == "<" else b"MM\0*"
    tiff += struct.pack(order + "IH", 8, 2)
    tiff += struct.pack(order + "HHIHH", 0x0100, 3, 1, 7, 0)
    tiff += struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0) + bytes(4)
    body = b"Exif\0\0" + tiff
    data = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + plain[2:]
    x = one(X.decode(mode), plain)
    upright = {
        2: x[:, ::-1],
        3: x[::-1, ::-1],
        4: x[::-1],
        5: x.transpose(1, 0, 2),
        6: np.rot90(x, -1),
        7: x[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(x),
    }.get(orientation, x)
    out = one(X.decode(mode), data)
    same(out, upright)
    assert out.flags.c_contiguous
    if mode == "rgb":  # OpenCV's own reader of the tag agrees
        same(out, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB))


def test_damaged_exif_is_ignored() -> None:
    plain = jpeg(PHOTOS[0][:16, :16])
    for body in (b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff"):
        data = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + plain[2:]
        same(one(X.decode(), data), one(X.decode(), plain))


@pytest.mark.parametrize("form", ["baseline", "progressive", "restarts", "gray"])
def test_a_jpeg_cut_anywhere_is_an_error(form: str) -> None:
    photo = PHOTOS[0][:40, :48]
    options: dict[str, dict[str, Any]] = {
        "progressive": {"progressive": True},
        "restarts": {"restart_marker_blocks": 2},
        "gray": {"mode": "L"},
    }
    data = with_pil(photo, **options.get(form, {}))
    cuts = range(1, len(data), 3) if form == "progressive" else range(1, len(data), 7)
    for cut in [*cuts, len(data) - 2, len(data) - 1]:
        with pytest.raises(ValueError, match=r"truncated|no frame|cannot be decoded"):
            one(X.decode(), data[:cut])


def test_a_jpeg_with_a_part_missing_is_an_error_but_padding_is_not() -> None:
    data = jpeg(PHOTOS[0])
    with pytest.raises(ValueError, match="damaged"):
        one(X.decode(), data[: len(data) // 2] + data[-2:])
    same(one(X.decode(), data[:-2] + b"\0\0\0abc" + data[-2:]), one(X.decode(), data))
    same(one(X.decode(), data + b"trailing"), one(X.decode(), data))


@pytest.mark.parametrize("form", [".png", ".webp", ".bmp", ".gif"])
def test_other_formats_cut_anywhere_are_errors(form: str) -> None:
    data = encoded(form, PHOTOS[0][:40, :48])
    for cut in (1, 9, 20, 30, len(data) // 2, len(data) - 1):
        with pytest.raises(ValueError, match=r"truncated|cannot be decoded"):
            one(X.decode(), data[:cut])


@pytest.mark.parametrize(
    ("value", "message"),
    [(b"", "0 bytes"), (b"hello, world", "begins with b'hello, w'"), ("text", "not str")],
)
def test_what_is_no_encoded_image_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        one(X.decode(), value)


@given(st.binary(max_size=64), st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM"]))
def test_garbage_raises_nothing_but_value_errors(tail: bytes, head: bytes) -> None:
    with pytest.raises(ValueError, match=r"image|JPEG|PNG|BMP"):
        one(X.decode(max_pixels=10**6), head + tail)


@pytest.mark.parametrize("form", [".jpg", ".png", ".webp", ".bmp", ".gif"])
def test_headers_tell_the_size(form: str) -> None:
    data = encoded(form, PHOTOS[0][:37, :53])
    header = read_header(data)
    assert header is not None
    assert (header.height, header.width) == (37, 53)
    assert one(X.decode(max_pixels=37 * 53), data).shape == (37, 53, 3)
    with pytest.raises(ValueError, match="37 × 53, more than max_pixels=1960"):
        one(X.decode(max_pixels=37 * 53 - 1), data)


def test_webp_headers_of_each_kind_tell_the_size() -> None:
    photo = PHOTOS[0][:37, :53]
    for options in ({}, {"lossless": True}, {"exif": b"Exif\0\0"}):
        header = read_header(with_pil(photo, "WEBP", **options))
        assert header is not None
        assert (header.height, header.width) == (37, 53)


def test_a_header_that_announces_too_much_is_refused_before_decoding() -> None:
    small = png(noise(0, 2, 2, 3))
    bomb = small[:16] + struct.pack(">II", 60000, 60000) + small[24:]
    with pytest.raises(ValueError, match="60000 × 60000"):
        one(X.decode(), bomb)
    plain = jpeg(noise(0, 8, 8, 3))
    at = plain.index(b"\xff\xc0") + 5
    bomb = plain[:at] + struct.pack(">HH", 65000, 65000) + plain[at + 4 :]
    with pytest.raises(ValueError, match="65000 × 65000"):
        one(X.decode(), bomb)


# Writing expressions.


def test_a_chain_reads_as_one_sentence() -> None:
    expr = image("bytes").decode().random_resized_crop(224).random_flip().normalize(MEAN, STD)
    assert isinstance(expr, ImageExpr)
    ops = [term.op for term in walk(expr.term) if isinstance(term, Call)]
    assert ops == [
        f"image.{op}" for op in ("decode", "random_resized_crop", "random_flip", "normalize")
    ]
    hash(expr.term)
    assert not hasattr(expr.to_chw(), "resize")


def test_numpy_numbers_become_plain_ones() -> None:
    numbers: list[Any] = [np.int64(3), np.uint8(4), np.float32(0.5), np.array([0.25])]
    expr = X.resize(*numbers[:2]).normalize(*numbers[2:])
    assert expr.term == X.resize(3, 4).normalize(0.5, 0.25).term
    assert hash(expr.term) == hash(X.resize(3, 4).normalize([0.5], (0.25,)).term)


@pytest.mark.parametrize(
    "write",
    [
        lambda: image(3),  # type: ignore[arg-type]
        lambda: X.decode("bgr"),  # type: ignore[arg-type]
        lambda: X.decode(max_pixels=0),
        lambda: X.resize(0, 3),
        lambda: X.resize(2.5, 3),  # type: ignore[arg-type]
        lambda: X.resize(True, 3),
        lambda: X.resize(3, 3, "cubic"),  # type: ignore[arg-type]
        lambda: X.crop(-1, 0, 2, 2),
        lambda: X.center_crop((1, 2, 3)),  # type: ignore[arg-type]
        lambda: X.random_crop(3, 0),
        lambda: X.random_resized_crop(0),
        lambda: X.random_resized_crop(9, scale=(0.5, 0.1)),
        lambda: X.random_resized_crop(9, scale=(0.5, 1.5)),
        lambda: X.random_resized_crop(9, ratio=(0, 1)),
        lambda: X.random_resized_crop(9, ratio=1.0),  # type: ignore[arg-type]
        lambda: X.flip("diagonal"),  # type: ignore[arg-type]
        lambda: X.random_flip(1.5),
        lambda: X.random_flip(float("nan")),
        lambda: X.grayscale(2),  # type: ignore[arg-type]
        lambda: X.grayscale(True),  # type: ignore[arg-type]
        lambda: X.normalize((0, 0, 0), (1, 1)),
        lambda: X.normalize(0, 0),
        lambda: X.normalize((), ()),
        lambda: X.normalize("0", "x"),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_are_refused_when_they_are_written(write: Callable[[], object]) -> None:
    with pytest.raises(PlanError):
        write()
