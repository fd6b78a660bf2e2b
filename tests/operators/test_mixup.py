"""Mixup and cutmix against plain references, and torchvision's formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.errors import PlanError
from silva.operators.batch_mixing import cutmix, mixup
from silva.plan.fingerprint import fingerprint, opaque_parts
from silva.testing import assert_same_stream

INTO = ("image", "label")


def pixels(rows: int, *shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == np.uint8:
        return rng.integers(0, 256, (rows, *shape), dtype=np.uint8)
    return rng.normal(size=(rows, *shape)).astype(dtype)


def one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    return np.eye(classes, dtype=np.float32)[labels]


def torchvision_mixup(
    images: np.ndarray, labels: np.ndarray, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """`MixUp._transform` of torchvision v2, with the share given."""
    x, y = torch.tensor(images), torch.tensor(labels)
    x = x.roll(1, 0).mul_(1.0 - share).add_(x.mul(share))
    y = y.roll(1, 0).mul_(1.0 - share).add_(y.mul(share))
    return x.numpy(), y.numpy()


def torchvision_cutmix(
    images: np.ndarray, labels: np.ndarray, share: float, x: int, y: int
) -> tuple[np.ndarray, np.ndarray]:
    """`CutMix` of torchvision v2 on (rows, channels, height, width), with the draws given."""
    height, width = images.shape[2:]
    half = 0.5 * math.sqrt(1.0 - share)
    w, h = int(half * width), int(half * height)
    x1, y1, x2, y2 = max(x - w, 0), max(y - h, 0), min(x + w, width), min(y + h, height)
    out = torch.tensor(images)
    rolled = out.roll(1, 0)
    out[..., y1:y2, x1:x2] = rolled[..., y1:y2, x1:x2]
    adjusted = 1.0 - (x2 - x1) * (y2 - y1) / (width * height)
    targets = torch.tensor(labels)
    targets = targets.roll(1, 0).mul_(1.0 - adjusted).add_(targets.mul(adjusted))
    return out.numpy(), targets.numpy()


sizes = st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9))


@given(sizes, st.integers(0, 99), st.floats(0.1, 5))
def test_mixup_equals_torchvision(size: tuple[int, int, int], seed: int, alpha: float) -> None:
    """Within 1e-6: a fused multiply-add of torch may round once where we round twice."""
    rows, height, width = size
    images, labels = pixels(rows, 3, height, width, seed=seed), np.arange(rows) % 4
    step = mixup("image", "label", classes=4, alpha=alpha)
    made, targets = step(images, labels, rng=np.random.default_rng(seed))
    share = np.random.default_rng(seed).beta(alpha, alpha)
    expected = torchvision_mixup(images, one_hot(labels, 4), share)
    assert made.dtype == targets.dtype == np.float32
    assert np.allclose(made, expected[0], rtol=0, atol=1e-6)
    assert np.allclose(targets, expected[1], rtol=0, atol=1e-6)
    assert np.allclose(targets.sum(axis=1), 1, atol=1e-6)


@given(sizes, st.integers(0, 99), st.floats(0.1, 5), st.sampled_from(["hwc", "chw"]))
def test_cutmix_equals_torchvision(
    size: tuple[int, int, int], seed: int, alpha: float, layout: Any
) -> None:
    """Pixels exactly, labels within 1e-6."""
    rows, height, width = size
    images, labels = pixels(rows, 3, height, width, seed=seed), np.arange(rows) % 4
    step = cutmix("image", "label", classes=4, alpha=alpha, layout=layout)
    given_ = images if layout == "chw" else np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    made, targets = step(given_, labels, rng=np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    share = rng.beta(alpha, alpha)
    x, y = int(rng.integers(width)), int(rng.integers(height))
    expected = torchvision_cutmix(images, one_hot(labels, 4), share, x, y)
    assert np.array_equal(made if layout == "chw" else made.transpose(0, 3, 1, 2), expected[0])
    assert np.allclose(targets, expected[1], rtol=0, atol=1e-6)


@given(st.integers(0, 999))
def test_mixup_of_uint8_rounds_to_nearest(seed: int) -> None:
    """Within half a level, and a little for float32."""
    images = pixels(4, 5, 6, 3, dtype=np.uint8, seed=seed)
    made, _ = mixup("i", "l", classes=2)(images, np.zeros(4, int), rng=np.random.default_rng(seed))
    share = np.random.default_rng(seed).beta(1, 1)
    exact = images * share + np.roll(images, 1, axis=0) * (1 - share)
    assert made.dtype == np.uint8
    assert abs(made - exact).max() <= 0.5001


def test_other_float_types_stay_as_they_are() -> None:
    for dtype in (np.float16, np.float64):
        images = pixels(3, 4, 4, 1, dtype=dtype)
        for step in (mixup("i", "l", classes=2), cutmix("i", "l", classes=2)):
            made, targets = step(images, np.zeros(3, int), rng=np.random.default_rng(0))
            assert made.dtype == dtype
            assert targets.dtype == np.float32


def test_labels_may_be_distributions_already() -> None:
    labels = np.array([[0.5, 0.5], [1, 0]], np.float64)
    rng = np.random.default_rng(3)
    _, targets = mixup("i", "l", classes=2)(pixels(2, 2, 2, 1), labels, rng=rng)
    share = np.random.default_rng(3).beta(1, 1)
    expected = labels * share + labels[::-1] * (1 - share)
    assert np.allclose(targets, expected, atol=1e-6)


def test_cutmix_commutes_with_normalisation_and_changes_no_pixel() -> None:
    images = pixels(4, 8, 8, 3, dtype=np.uint8)
    labels = np.zeros(4, int)
    step = cutmix("i", "l", classes=2)
    made, _ = step(images, labels, rng=np.random.default_rng(5))
    scaled, _ = step(images / np.float32(255), labels, rng=np.random.default_rng(5))
    assert np.array_equal(made / np.float32(255), scaled)
    before = np.roll(images, 1, axis=0)
    assert ((made == images) | (made == before)).all()


def test_inputs_are_never_modified() -> None:
    images, labels = pixels(3, 4, 4, 3), np.array([0, 1, 1])
    before = images.copy()
    images.flags.writeable = labels.flags.writeable = False
    for step in (mixup("i", "l", classes=2), cutmix("i", "l", classes=2)):
        made, _ = step(images, labels, rng=np.random.default_rng(1))
        assert not np.shares_memory(made, images)
    assert np.array_equal(images, before)


def rows(count: int = 10, dtype: Any = np.float32) -> sv.Pipeline:
    images = pixels(count, 6, 6, 3, dtype=dtype)
    return sv.from_columns({"image": images, "label": np.arange(count) % 3})


@pytest.mark.parametrize(
    "step", [mixup("image", "label", classes=3), cutmix("image", "label", classes=3)]
)
def test_the_stream_is_the_same_however_it_is_run(step: Any) -> None:
    pipeline = rows(dtype=np.uint8).shuffle(seed=0).batch(4).derive(step, into=INTO)
    assert_same_stream(pipeline, workers=(2,), backends=("inline", "threads", "processes"))


def test_batches_and_epochs_are_mixed_differently() -> None:
    step = mixup("image", "label", classes=3)
    loader = rows().batch(5).derive(step, into=INTO).loader(workers=0)
    labels = [batch["label"] for _ in range(2) for batch in loader]
    shares = {float(x.max(axis=1)[0].round(4)) for x in labels}
    assert len(shares) == 4


def test_columns_may_have_any_name_and_be_new() -> None:
    renamed = rows(4).rename(image="photo", label="kind")
    step = cutmix("photo", "kind", classes=3)
    batch = renamed.batch(4).derive(step, into=("mixed", "target")).head(1)[0]
    assert set(batch) == {"photo", "kind", "mixed", "target"}
    assert batch["kind"].shape == (4,)


def test_steps_are_identified_by_their_arguments() -> None:
    def identity(step: Any) -> str:
        return fingerprint(rows().batch(5).derive(step, into=INTO).plan)

    assert opaque_parts(mixup("image", "label", classes=3)) == []
    assert identity(mixup("image", "label", classes=3)) == identity(
        mixup("image", "label", classes=3)
    )
    assert identity(mixup("image", "label", classes=3)) != identity(
        mixup("image", "label", classes=3, alpha=0.2)
    )


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (pixels(2, 4, 4, 3), np.array([0, 3]), "label 3 is not one of the 3"),
        (pixels(2, 4, 4, 3), np.array([0, -1]), "label -1"),
        (pixels(2, 4, 4, 3), np.array([0.5, 1]), "class numbers or arrays of 3"),
        (pixels(2, 4, 4, 3), np.zeros((2, 2)), "class numbers or arrays of 3"),
        (pixels(2, 4, 4, 3), np.zeros(3, int), "2 images and 3 labels"),
        (np.zeros((2, 4, 4, 3), np.int32), np.zeros(2, int), "uint8 or floats, not int32"),
        (pixels(2, 4, 4, 3), np.ma.MaskedArray([0, 1], [0, 1]), "nulls"),
        (np.zeros(3), 1, "after batch"),
        ([1, 2], [1, 2], "after batch"),
    ],
)
def test_bad_batches_are_refused(images: Any, labels: Any, message: str) -> None:
    for step in (mixup("i", "l", classes=3), cutmix("i", "l", classes=3)):
        with pytest.raises(ValueError, match=message):
            step(images, labels, rng=np.random.default_rng(0))


def test_before_batch_is_an_error_that_says_so() -> None:
    early = rows().derive(mixup("image", "label", classes=3), into=INTO).batch(5)
    with pytest.raises(sv.RowError, match="after batch"):
        early.head(1)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: mixup("a.b", "label", classes=3), "rename"),
        (lambda: mixup("image", 3, classes=3), "rename"),
        (lambda: mixup("rng", "label", classes=3), "rename"),
        (lambda: mixup("x", "x", classes=3), "two columns"),
        (lambda: mixup("x", "y", classes=0), "at least 1"),
        (lambda: cutmix("x", "y", classes=3, alpha=0), "positive"),
        (lambda: cutmix("x", "y", classes=3, alpha="a"), "finite number"),
        (lambda: cutmix("x", "y", classes=3, layout="nhwc"), "'hwc' or 'chw'"),
    ],
)
def test_arguments_are_checked_when_the_step_is_written(
    write: Callable[[], Any], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        write()
