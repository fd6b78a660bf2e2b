"""Boxes, labels and masks go where the pixels go; also pads, rotation, sizes and encoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
import torchvision_here
from drawn import Table
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_sample_image

import silva as sv
from silva.columns import Values
from silva.errors import PlanError
from silva.operators.image import image
from silva.plan.operator import operator
from silva.testing import assert_same_stream

v2 = torchvision_here.load()
PHOTO = load_sample_image("flower.jpg")[:120, :160].copy()
X = image("x")


def one(expr: Any, x: Any, line: Any = 0.0) -> Any:
    term = expr.term
    (row,) = operator(term.op).kernel([Values([x])], dict(term.params), Table(line)).rows()
    return row


def scenes(rows: list[dict[str, Any]], chain: Any, **more: str) -> list[dict[str, Any]]:
    """The rows after a chain that begins with the image and everything in `more`."""
    expr = chain(image("image", **more))
    return sv.from_items(rows).derive(expr, into=("image", *more)).head(len(rows))


boxes_in = st.lists(
    st.tuples(st.floats(0, 60), st.floats(0, 40), st.floats(1, 60), st.floats(1, 40)), max_size=5
).map(lambda found: [[x, y, x + w, y + h] for x, y, w, h in found])


def theirs(name: str, boxes: Any, *args: Any) -> np.ndarray:
    from torchvision import tv_tensors

    given = tv_tensors.BoundingBoxes(
        torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        format="XYXY",
        canvas_size=(80, 120),
    )
    moved = getattr(v2.functional, name)(given, *args)
    moved = v2.functional.clamp_bounding_boxes(moved).numpy()
    return moved[(moved[:, 2] > moved[:, 0]) & (moved[:, 3] > moved[:, 1])]


@given(boxes_in)
def test_boxes_move_as_in_torchvision(boxes: list[list[float]]) -> None:
    """To 1e-3 of a pixel (float32)."""
    row = {"image": np.zeros((80, 120, 3), np.uint8), "boxes": boxes}
    for chain, name, args in (
        (lambda x: x.flip(), "horizontal_flip", ()),
        (lambda x: x.flip("vertical"), "vertical_flip", ()),
        (lambda x: x.resize(40, 90), "resize", ([40, 90],)),
        (lambda x: x.crop(10, 20, 50, 60), "crop", (10, 20, 50, 60)),
        (lambda x: x.center_crop((40, 30)), "center_crop", ([40, 30],)),
        (lambda x: x.pad((1, 2, 3, 4)), "pad", ([2, 1, 4, 3],)),
    ):
        (made,) = scenes([row], chain, boxes="boxes")
        want = theirs(name, boxes, *args)
        assert np.shape(made["boxes"]) == want.shape
        assert np.allclose(made["boxes"], want, atol=1e-3)


@pytest.mark.operators("image.random_zoom_out")
def test_a_marked_pixel_stays_in_its_box_and_under_its_mask() -> None:
    """Whatever the random steps do: where the mark is visible, its box and mask hold it."""
    rows = []
    for i in range(40):
        x = np.zeros((60, 90, 3), np.uint8)
        mask = np.zeros((60, 90), np.uint8)
        top, left = 5 + i, 4 + 2 * i % 80
        x[top : top + 6, left : left + 6] = 255
        mask[top : top + 6, left : left + 6] = 1
        box = [[left, top, left + 6, top + 6]]
        rows.append({"image": x, "boxes": box, "labels": [7], "mask": mask})
    made = scenes(
        rows,
        lambda x: (
            x.random_zoom_out((1, 2)).rotate((-20, 20)).random_resized_crop((40, 50), (0.3, 1))
            .random_flip().random_flip(0.5, "vertical").pad_to(64).color_jitter(0.0)
        ),
        boxes="boxes", labels="labels", mask="mask",
    )  # fmt: skip
    seen = 0
    for row in made:
        assert row["image"].shape == (64, 64, 3)
        assert row["mask"].shape == (64, 64)
        bright = np.argwhere(row["image"][..., 0] > 200)
        if not len(bright):
            continue
        seen += 1
        ((left, top, right, bottom),) = row["boxes"]
        assert list(row["labels"]) == [7]
        assert top - 1 <= bright[:, 0].min() <= bright[:, 0].max() <= bottom
        assert left - 1 <= bright[:, 1].min() <= bright[:, 1].max() <= right
        under = row["mask"][bright[:, 0], bright[:, 1]]
        assert under.mean() > 0.7  # its border is nearest, the image's is bilinear
    assert seen > 15


@pytest.mark.operators("image.scene")
def test_boxes_that_are_cut_off_go_with_their_labels() -> None:
    row = {
        "image": PHOTO,
        "boxes": [[0, 0, 10, 10], [30, 30, 60, 60], [100, 90, 120, 110]],
        "labels": ["a", "b", "c"],
    }
    (made,) = scenes([row], lambda x: x.crop(20, 20, 50, 30), boxes="boxes", labels="labels")
    assert np.array_equal(made["boxes"], np.array([[10, 10, 30, 40]], np.float32))
    assert list(made["labels"]) == ["b"]


def test_no_boxes_null_boxes_and_wrong_ones() -> None:
    for empty in ([], None, np.empty((0, 4))):
        (made,) = scenes([{"image": PHOTO, "boxes": empty}], lambda x: x.flip(), boxes="boxes")
        assert np.shape(made["boxes"]) == (0, 4)
    with pytest.raises(Exception, match="2 labels for 1 boxes"):
        scenes(
            [{"image": PHOTO, "boxes": [[0, 0, 1, 1]], "labels": [1, 2]}],
            lambda x: x.flip(),
            boxes="boxes",
            labels="labels",
        )
    row = {"image": PHOTO, "mask": np.zeros((3, 3), np.uint8)}
    with pytest.raises(Exception, match="the mask is 3 × 3"):
        scenes([row], lambda x: x.flip(), mask="mask")


@pytest.mark.operators("image.random_iou_crop")
def test_iou_crops_keep_what_they_promise() -> None:
    boxes = np.array([[20, 20, 70, 60], [90, 10, 130, 50], [10, 80, 40, 110]], np.float32)
    rows = [{"image": PHOTO, "boxes": boxes, "labels": [0, 1, 2]}] * 60
    options = {"overlaps": (0.3,), "scale": (0.3, 0.9)}
    chain = lambda x: x.random_iou_crop(**options)  # noqa: E731
    made = scenes(rows, chain, boxes="boxes", labels="labels")
    sizes = {row["image"].shape for row in made}
    assert len(sizes) > 20
    for row in made:
        tall, wide = row["image"].shape[:2]
        assert 0.5 <= wide / tall <= 2
        assert len(row["boxes"]) == len(row["labels"]) >= 1
        assert (row["boxes"] >= 0).all()
        assert (row["boxes"][:, 2] <= wide).all()
        assert (row["boxes"][:, 3] <= tall).all()
        if (tall, wide) != PHOTO.shape[:2]:
            areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)[np.array(row["labels"])]
            left = np.prod(row["boxes"][:, 2:] - row["boxes"][:, :2], axis=1)
            assert (left / (areas + tall * wide - left)).max() >= 0.3


def test_an_iou_crop_without_boxes_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="needs boxes"):
        one(X.random_iou_crop(), PHOTO, np.zeros(161))


def test_an_expression_of_several_columns_is_named_so() -> None:
    pipeline = sv.from_items([{"image": PHOTO, "boxes": []}])
    with pytest.raises(PlanError, match="makes 2 column"):
        pipeline.derive(image=image("image", boxes="boxes").flip())
    with pytest.raises(PlanError, match="makes 1 column"):
        pipeline.derive(image("image").flip(), into=("image", "boxes"))
    with pytest.raises(PlanError, match="labels= belong to boxes="):
        image("image", labels="labels")


def test_a_detection_pipeline_is_one_stream(tmp_path: Path) -> None:
    for i in range(9):
        part = np.ascontiguousarray(PHOTO[: 60 + 5 * i, : 100 + i])
        cv2.imwrite(str(tmp_path / f"{i}.png"), part)
    pipeline = (
        sv.read_files(str(tmp_path / "*.png"))
        .derive(boxes=lambda path: [[2.0, 3.0, 30.0, 40.0], [10, 10, 50 + len(path) % 3, 50]])
        .derive(labels=lambda boxes: list(range(len(boxes))))
        .derive(
            sv.image("bytes", boxes="boxes", labels="labels")
            .decode()
            .color_jitter(0.4, 0.4, 0.4, 0.1)
            .random_zoom_out((1, 2))
            .random_iou_crop()
            .random_flip()
            .resize(48, 48)
            .normalize(0.5, 0.25)
            .to_chw(),
            into=("image", "boxes", "labels"),
        )
        .select("image", "boxes", "labels")
        .shuffle(seed=3)
        .batch(4, pad={"boxes": 0, "labels": -1})
    )
    assert_same_stream(pipeline, workers=(2,))
    batch = next(iter(pipeline.loader()))
    assert batch["image"].shape == (4, 3, 48, 48)


# Pads and rotation.


@pytest.mark.operators("image.pad")
@given(st.tuples(*[st.integers(0, 5)] * 4), st.sampled_from([1, 3]))
def test_pad(sides: tuple[int, int, int, int], channels: int) -> None:
    x = PHOTO[:9, :7, :channels]
    top, left, bottom, right = sides
    want = np.pad(x, ((top, bottom), (left, right), (0, 0)), constant_values=9)
    assert np.array_equal(one(X.pad(sides, fill=9), x), want)


@pytest.mark.operators("image.pad_to")
def test_pad_to_and_what_is_too_large() -> None:
    made = one(X.pad_to((130, 170), fill=(1, 2, 3)), PHOTO)
    assert made.shape == (130, 170, 3)
    assert np.array_equal(made[:120, :160], PHOTO)
    assert (made[120:] == (1, 2, 3)).all()
    with pytest.raises(ValueError, match=r"120 × 160 does not fit into pad_to\(100, 200\)"):
        one(X.pad_to((100, 200)), PHOTO)


@pytest.mark.operators("image.rotate")
@pytest.mark.parametrize("degrees", [-90, -33, 10, 45, 180])
def test_rotation_is_torchvisions(degrees: float) -> None:
    """Nearest, exactly but for pixels on the border of two (below 1 %)."""
    made = one(X.rotate(degrees, "nearest"), PHOTO)
    tensor = torch.from_numpy(PHOTO.transpose(2, 0, 1).copy())
    want = v2.functional.rotate(tensor, degrees).numpy().transpose(1, 2, 0)
    assert made.shape == PHOTO.shape
    assert (made != want).any(axis=2).mean() < 0.01


@pytest.mark.operators("image.random_rotate")
def test_a_random_angle_is_drawn_for_each_row() -> None:
    assert np.array_equal(one(X.rotate((-10, 30)), PHOTO, 0.5), one(X.rotate(10), PHOTO))


# Sizes and encoding.


@pytest.mark.operators("image.info")
def test_info_reads_sizes_without_decoding() -> None:
    png = cv2.imencode(".png", PHOTO)[1].tobytes()
    assert one(X.info(), png[:40]).tolist() == [120, 160]  # the pixels are not even there
    assert one(X.info(), PHOTO).tolist() == [120, 160]
    with pytest.raises(ValueError, match="the format of the image is unknown"):
        one(X.info(), b"hello, world")


@pytest.mark.operators("image.encode")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("form", ["jpeg", "png", "webp"])
def test_encode_and_decode_again(form: Any, channels: int) -> None:
    x = PHOTO[..., :channels]
    data = one(X.encode(form, quality=95), x)
    back = one(X.decode("gray" if channels == 1 else "rgb"), data)
    assert back.shape == x.shape
    if form == "png":
        assert np.array_equal(back, x)
    else:
        assert abs(back.astype(int) - x).mean() < 3
        assert len(one(X.encode(form, quality=10), x)) < len(data)


def test_encode_refuses_floats() -> None:
    with pytest.raises(ValueError, match="takes uint8"):
        one(X.encode(), PHOTO.astype(np.float32))
    with pytest.raises(PlanError, match="from 1 to 100"):
        X.encode(quality=101)
