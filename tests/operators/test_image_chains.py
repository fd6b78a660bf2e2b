"""Chains: a row at a time through all steps gives the very bits of one step after the other; and
decoding at a smaller scale stays within its bound."""

from __future__ import annotations

from functools import partial
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from examples import apply, examples_that
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_sample_image

import silva as sv
from silva.columns import Array, Values
from silva.operators import rows
from silva.operators.image import image
from silva.order.draws import Draw, stream_key
from silva.physical.stage.evaluate import evaluate
from silva.plan import expr
from silva.plan.operator import has_fact, operator

PHOTOS = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
X = image("x")
KEY = (0, 0, "image#0")


def step_by_step(term: expr.Term, column: Any, ids: np.ndarray) -> Any:
    """Every operator on the whole column before the next one, none of them fused."""
    for index, part in enumerate(expr.walk(term)):
        if isinstance(part, expr.Call):
            found = operator(part.op)
            draw = Draw(stream_key(*KEY, index), ids)
            column = rows.run_rows(column, [("", found.kernel.bind(dict(part.params), draw))])
    return column


def both(chain: Any, values: list[Any]) -> None:
    ids = np.arange(len(values), dtype=np.uint64)
    want = step_by_step(chain.term, Values(values), ids)
    made = evaluate(chain.term, {"x": Values(values)}, ids, None, KEY)
    assert type(made) is type(want)
    for a, b in zip(made.rows(), want.rows(), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)


def fits(call: expr.Call) -> bool:
    """Not those that need boxes, or an image of some size."""
    return call.op != "image.random_iou_crop" and not has_fact(call.op, "crops")


steps = st.sampled_from(
    [
        lambda x: x.random_resized_crop(17),
        lambda x: x.random_flip(),
        lambda x: x.color_jitter(0.5, 0.5, 0.5, 0.2),
        lambda x: x.gaussian_blur(3),
        lambda x: x.random_erasing(0.9),
        lambda x: x.pad(3, fill=7),
        lambda x: x.random_crop(9, 8),
        lambda x: x.rotate((-5, 5)),
        lambda x: x.resize(20, 21),
        lambda x: x.flip("vertical"),
        *(partial(apply, call) for call in examples_that("keeps_bytes", "image") if fits(call)),
    ]
)
ends = st.sampled_from(
    [
        lambda x: x,
        lambda x: x.grayscale(),
        lambda x: x.normalize(0.5, 0.2),
        lambda x: x.normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)).to_chw(),
        lambda x: x.to_float().to_chw(),
        lambda x: x.to_chw(),
        lambda x: x.grayscale().normalize(0.5, 0.2).to_chw(),
    ]
)


@given(st.lists(steps, max_size=4), ends, st.lists(st.booleans(), min_size=1, max_size=5))
def test_a_chain_is_its_steps(chosen: list[Any], end: Any, there: list[bool]) -> None:
    chain = X
    for step in chosen:
        chain = step(chain)
    chain = end(chain)
    if chain is X:
        return
    images = [
        np.ascontiguousarray(PHOTOS[i % 2][i : 40 + i, 5 : 60 - i]) if ok else None
        for i, ok in enumerate(there)
    ]
    both(chain, images)


def test_planes_of_floats_and_of_other_channels() -> None:
    rng = np.random.default_rng(0)
    for channels in (1, 2, 3, 4):
        for dtype in (np.uint8, np.float32):
            x = (rng.random((6, 7, channels)) * 255).astype(dtype)
            both(X.normalize(0.4, 0.3).to_chw(), [x, x])
            both(X.to_float().to_chw(), [x])


def test_the_result_lies_in_one_array_and_inputs_are_not_touched() -> None:
    data = np.stack([photo[:50, :60] for photo in PHOTOS])
    before = data.copy()
    made = evaluate(
        X.random_flip().to_chw().term, {"x": Array(data)}, np.arange(2, dtype=np.uint64), None, KEY
    )
    assert isinstance(made, Array)
    assert made.data.flags.c_contiguous
    assert np.array_equal(data, before)


def test_an_expression_used_twice_and_mixed_with_arithmetic() -> None:
    small = X.resize(4, 4).to_float()
    photo = PHOTOS[0][:20, :20]
    (made,) = (
        sv.from_items([{"x": photo}]).derive(y=sv.image("x").resize(4, 4).to_float() * 2).head(1)
    )
    ids = np.zeros(1, np.uint64)
    want = evaluate(small.term, {"x": Values([photo])}, ids, None, KEY).rows()[0]
    assert np.array_equal(made["y"], want * 2)


# Decoding at a smaller scale.


def large(photo: np.ndarray, times: int = 4) -> np.ndarray:
    return cv2.resize(photo, None, fx=times, fy=times, interpolation=cv2.INTER_CUBIC)


@pytest.mark.parametrize("photo", [0, 1])
@pytest.mark.parametrize("size", [64, 150, 300])
def test_a_shrunk_decode_is_close(photo: int, size: int) -> None:
    """Bound: a mean difference below 2.5 levels of 255, 99 % within 16."""
    data = simplejpeg.encode_jpeg(large(PHOTOS[photo]), 90)
    ids = np.arange(6, dtype=np.uint64)
    values = {"x": Values([data] * 6)}

    def made(shrink: bool, step: Any) -> np.ndarray:
        chain = step(X.decode(shrink=shrink))
        return evaluate(chain.term, values, ids, None, KEY).batch().astype(int)

    for step in (
        lambda x: x.resize(size, size, "area"),
        lambda x: x.random_resized_crop(size, interpolation="area"),
    ):
        apart = abs(made(True, step) - made(False, step))
        assert apart.mean() < 2.5
        assert np.quantile(apart, 0.99) <= 16


def test_only_an_area_resize_shrinks_and_only_as_far_as_it_may() -> None:
    data = simplejpeg.encode_jpeg(large(PHOTOS[0], 2), 90)
    for chain in (
        lambda x: x.resize(50, 50),  # bilinear: other pixels would be taken
        lambda x: x.crop(0, 0, 9, 9),
        lambda x: x.resize(800, 1000, "area"),  # nothing to gain
    ):
        both_ways = [
            evaluate(
                chain(X.decode(shrink=s)).term, {"x": Values([data])}, np.zeros(1, np.uint64),
                None, KEY,
            ).rows()[0]
            for s in (False, True)
        ]  # fmt: skip
        assert np.array_equal(*both_ways)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_shrunk_decode_turns_the_image_as_exif_says(orientation: int) -> None:
    import io

    from PIL import Image

    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(large(PHOTOS[1], 2)).save(buffer, "JPEG", quality=90, exif=exif)
    values = {"x": Values([buffer.getvalue()])}
    ids = np.zeros(1, np.uint64)
    a, b = (
        evaluate(
            X.decode(shrink=s).random_resized_crop((60, 90), interpolation="area").term,
            values, ids, None, KEY,
        ).rows()[0].astype(int)
        for s in (False, True)
    )  # fmt: skip
    assert abs(a - b).mean() < 2.5


def test_damaged_and_other_formats_go_the_plain_way() -> None:
    png = cv2.imencode(".png", large(PHOTOS[0], 2))[1].tobytes()
    chain = X.decode(shrink=True).resize(50, 50, "area")
    plain = X.decode().resize(50, 50, "area")
    ids = np.zeros(1, np.uint64)
    a, b = (
        evaluate(c.term, {"x": Values([png])}, ids, None, KEY).rows()[0] for c in (chain, plain)
    )
    assert np.array_equal(a, b)
    cut = simplejpeg.encode_jpeg(large(PHOTOS[0], 2), 90)[:5000]
    with pytest.raises(ValueError, match="truncated or damaged"):
        evaluate(chain.term, {"x": Values([cut])}, ids, None, KEY)
    bomb = bytearray(simplejpeg.encode_jpeg(PHOTOS[0], 50))
    at = bomb.find(b"\xff\xc0")
    bomb[at + 5 : at + 9] = b"\x75\x30\x75\x30"  # 30,000 × 30,000
    with pytest.raises(ValueError, match="max_pixels"):
        evaluate(chain.term, {"x": Values([bytes(bomb)])}, ids, None, KEY)
