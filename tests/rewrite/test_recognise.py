"""Transforms of other libraries: as they are by default, silva's operators when asked."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import tiktoken
import torch
import torchvision_here
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.datasets import load_sample_image
from tokenizers import Tokenizer, models, pre_tokenizers

import silva as sv
from silva.plan.expr import Call, walk
from silva.plan.function import Function, read_function
from silva.rewrite.rules.recognise import recognised

v2 = torchvision_here.load()
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PHOTOS = [load_sample_image(n)[:200, :300].copy() for n in ("china.jpg", "flower.jpg")]
FIDELITIES: Any = ("exact", "close")

_number = st.one_of(
    st.sampled_from([0, 1, -1, 0.5, 2, 300, 1e-320, 1e300, 10**30, float("inf"), float("nan")]),
    st.integers(-300, 300),
    st.floats(-3, 3),
)
_pair = st.tuples(_number, _number)
_whole = st.one_of(st.integers(-1, 12), st.sampled_from([10**30, 31, 255]))
_size = st.one_of(_whole, st.lists(_whole, min_size=1, max_size=2))
_share = st.floats(0, 1)
_spread = st.one_of(_number, _pair)
_fill = st.one_of(_number, st.none(), st.lists(_number, max_size=4), st.just("random"))
_how = st.sampled_from(list(v2.InterpolationMode))
TRANSFORMS = st.one_of(
    st.builds(partial, st.just(v2.RandomSolarize), _number, _share),
    st.builds(partial, st.just(v2.RandomPosterize), _whole, _share),
    st.builds(partial, st.just(v2.RandomAdjustSharpness), _number, _share),
    st.builds(partial, st.just(v2.RandomEqualize), _share),
    st.builds(partial, st.just(v2.RandomHorizontalFlip), _share),
    st.builds(partial, st.just(v2.RandomErasing), _share, _pair, _pair, _fill),
    st.builds(partial, st.just(v2.RandomResizedCrop), _size, _pair, _pair, _how),
    st.builds(partial, st.just(v2.Resize), _size, _how, max_size=st.none() | _whole),
    st.builds(partial, st.just(v2.CenterCrop), _size),
    st.builds(partial, st.just(v2.RandomCrop), _size, st.none() | _size, st.booleans()),
    st.builds(partial, st.just(v2.ColorJitter), _spread, _spread, _spread, _spread),
    st.builds(partial, st.just(v2.GaussianBlur), _size, _spread),
    st.builds(partial, st.just(v2.Grayscale), _whole),
    st.builds(
        partial, st.just(v2.Normalize), st.lists(_number, max_size=3), st.lists(_number, max_size=3)
    ),
    st.builds(partial, st.just(v2.RandAugment), _whole, _whole, _whole, _how, fill=_fill),
    st.builds(partial, st.just(v2.TrivialAugmentWide), _whole, _how, fill=_fill),
)
"""Transforms of torchvision that silva knows, with arguments that are legal more or less."""


class Resize(v2.Transform):  # type: ignore[misc, name-defined]
    """A transform with the name of one of torchvision's."""

    size = (4, 4)


def photos() -> Any:
    return sv.from_items([{"image": PHOTOS[i % 2]} for i in range(6)])


def images(transform: Any, fidelity: Any) -> np.ndarray:
    pipeline = photos().derive(image=transform, reads="image").options(fidelity=fidelity).batch(6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch, about arrays that are read-only
        (batch,) = list(pipeline.loader(backend="inline"))
    return batch["image"]


def operators(function: Any, reads: str = "image") -> list[str]:
    step = recognised(read_function(function, (reads,), reads))
    assert isinstance(step, Call)
    return [part.op for part in walk(step) if isinstance(part, Call)]


def test_an_evaluation_pipeline_is_the_same_within_rounding() -> None:
    """Within 2 % of a unit of contrast on average: torchvision's antialiasing has wider weights."""
    transform = v2.Compose(
        [
            v2.ToImage(),
            v2.Resize(96),
            v2.CenterCrop(80),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    theirs, mine = images(transform, "exact"), images(transform, "close")
    assert theirs.shape == mine.shape == (6, 3, 80, 80)
    assert theirs.dtype == mine.dtype == np.float32
    assert abs(theirs - mine).mean() < 0.1
    exactly = v2.Compose(
        [v2.ToImage(), v2.RandomVerticalFlip(1), v2.ToDtype(torch.float32, scale=True)]
    )
    assert np.allclose(images(exactly, "exact"), images(exactly, "close"), atol=1e-6)


def test_a_training_pipeline_is_planned_with_silvas_operators() -> None:
    transform = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(64, antialias=True),
            v2.RandomHorizontalFlip(0.3),
            v2.ColorJitter(0.8, 0.8, 0.8, 0.2),
            v2.Compose([v2.Grayscale(), v2.GaussianBlur(11)]),
            v2.ToDtype(torch.float32, scale=True),
            v2.RandomErasing(0.2),
            v2.Normalize([0.5], [0.25]),
        ]
    )
    assert operators(transform) == [
        "image.random_resized_crop", "image.random_flip", "image.color_jitter", "image.grayscale",
        "image.random_gaussian_blur", "image.to_float", "image.random_erasing", "image.normalize",
        "image.to_chw",
    ]  # fmt: skip
    assert images(transform, "close").shape == (6, 1, 64, 64)


def test_augmentations_are_planned_with_silvas_operators() -> None:
    transform = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(64, antialias=True),
            v2.TrivialAugmentWide(fill=[1.0, 2.0, 3.0]),
            v2.RandAugment(3, 5, interpolation=v2.InterpolationMode.BILINEAR),
            v2.RandomSolarize(100, 0.2),
            v2.RandomInvert(0.3),
            v2.RandomPosterize(3),
            v2.RandomEqualize(),
            v2.RandomAutocontrast(1.0),
            v2.RandomAdjustSharpness(2),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    assert operators(transform) == [
        "image.random_resized_crop", "image.trivial_augment", "image.rand_augment",
        "image.random_solarize", "image.random_invert", "image.random_posterize",
        "image.random_equalize", "image.autocontrast", "image.random_sharpness", "image.to_float",
        "image.to_chw",
    ]  # fmt: skip
    assert images(transform, "close").shape == (6, 3, 64, 64)


def test_the_older_transforms_are_known_too() -> None:
    from torchvision import transforms as v1

    transform = v1.Compose(
        [v1.ToTensor(), v1.RandomCrop(32), v1.RandomVerticalFlip(), v1.Normalize(MEAN, STD)]
    )
    assert operators(transform) == [
        "image.to_float", "image.random_crop", "image.random_flip", "image.normalize",
        "image.to_chw",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "transform",
    [
        v2.Compose([v2.ToImage(), v2.RandomAffine(10)]),
        v2.Compose([v2.Resize(10)]),
        v2.Compose([v2.ToTensor(), v2.RandomSolarize(0.5)]),
        v2.Compose([v2.ToImage(), v2.TrivialAugmentWide(interpolation="bicubic")]),
        v2.Compose([v2.ToImage(), v2.RandAugment(fill={torch.Tensor: 0})]),
        v2.Compose([v2.ToImage(), v2.RandomCrop(8, padding=4)]),
        v2.Compose([v2.ToImage(), v2.ToDtype(torch.float64, scale=True)]),
        v2.Compose([v2.ToImage(), v2.Resize(9, interpolation=v2.InterpolationMode.BICUBIC)]),
        v2.Compose([v2.ToTensor(), v2.ColorJitter(0.4)]),
        v2.Compose([v2.ToTensor(), v2.Grayscale()]),
        v2.Compose([v2.ToTensor(), v2.ToDtype(torch.uint8, scale=True)]),
        v2.Compose([v2.ToImage(), Resize()]),
    ],
)
def test_what_has_no_counterpart_runs_as_it_is(transform: Any) -> None:
    assert isinstance(recognised(read_function(transform, ("image",), "image")), str)


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        (v2.RandomSolarize(300, p=0.0), "RandomSolarize: threshold is a level from 0 to 255"),
        (v2.RandomSolarize(-1, p=1.0), "RandomSolarize: threshold is a level from 0 to 255"),
        (v2.RandomErasing(scale=(0, 0)), "RandomErasing: scale is (least, most), both positive"),
        (v2.RandAugment(0), "RandAugment: num_ops is a whole number of at least 1"),
        (v2.RandomResizedCrop(8, scale=(1.5, 2)), "RandomResizedCrop: scale is a share of the"),
        (v2.RandomAdjustSharpness(-1, p=0), "RandomAdjustSharpness: factor is a number of at"),
        (
            v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.5,), (-1.0,))]),
            "Normalize: std must be positive",
        ),
    ],
)
@pytest.mark.parametrize("fidelity", ["exact", "close"])
def test_what_silvas_operators_refuse_runs_as_torchvision(
    transform: Any, why: str, fidelity: Any
) -> None:
    """torchvision checks fewer arguments. `explain` gives the reason to who asked for `close`."""
    whole = v2.Compose([v2.ToImage(), transform])
    torch.manual_seed(0)
    assert images(whole, fidelity).shape[:2] == (6, 3)
    pipeline = photos().derive(image=whole, reads="image").options(fidelity=fidelity)
    assert (why in " ".join(str(pipeline.explain()).split())) == (fidelity == "close")


@given(TRANSFORMS, st.sampled_from(["exact", "close"]))
def test_planning_takes_all_arguments_that_torchvision_takes(make: Any, fidelity: Any) -> None:
    try:
        transform = make()
    except Exception:  # noqa: BLE001  not legal
        assume(False)
    for first in (v2.ToImage(), v2.ToTensor()):
        whole = v2.Compose([first, transform])
        photos().derive(image=whole, reads="image").options(fidelity=fidelity).explain()


@pytest.mark.parametrize("size", [(40, 10), (10, 40), 40, 9])
def test_a_crop_that_may_be_larger_than_its_image_pads_it_as_torchvision_does(size: Any) -> None:
    rows = sv.from_items([{"image": PHOTOS[0][:20, :24]}])
    alone = v2.Compose([v2.ToImage(), v2.CenterCrop(size)])
    resized = v2.Compose([v2.ToImage(), v2.Resize(16), v2.CenterCrop(size)])
    for transform in (alone, resized):
        pipeline = rows.derive(image=transform, reads="image")
        theirs, mine = (
            pipeline.options(fidelity=fidelity).head(1)[0]["image"] for fidelity in FIDELITIES
        )
        assert tuple(theirs.shape) == tuple(mine.shape)
        if transform is alone:
            assert np.array_equal(theirs, mine)


@pytest.mark.parametrize("kind", ["brightness", "contrast", "saturation", "grayscale"])
@pytest.mark.parametrize("factor", [0.1, 0.5, 0.95, 1.5])
def test_colours_are_brighter_than_torchvisions_by_one_level_at_most(
    kind: str, factor: float
) -> None:
    """On average: silva rounds to the nearest level, and torchvision cuts off."""
    change = v2.Grayscale() if kind == "grayscale" else v2.ColorJitter(**{kind: (factor, factor)})
    theirs, mine = (
        images(v2.Compose([v2.ToImage(), change]), fidelity).astype(float)
        for fidelity in FIDELITIES
    )
    assert -0.1 < (mine - theirs).mean() <= 1
    assert abs(mine - theirs).max() <= 2


def test_a_crop_that_fits_is_recognised() -> None:
    for before in (v2.Resize(16), v2.Resize((9, 30)), v2.RandomCrop(9), v2.RandomResizedCrop(12)):
        transform = v2.Compose([v2.ToImage(), before, v2.Grayscale(), v2.CenterCrop(9)])
        assert "image.center_crop" in operators(transform)


def test_explain_says_what_was_done_and_what_could_be() -> None:
    transform = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip()])
    pipeline = photos().derive(image=transform, reads="image").batch(2)
    said = pipeline.explain()
    assert "recognise: silva has operators that do the same (not used: needs" in said
    assert "Compose → image.random_flip()" in said
    said = pipeline.options(fidelity="close").explain()
    assert "recognise: silva has operators that do the same\n" in said
    said = pipeline.options(disable=["recognise"]).explain()
    assert "recognise: silva has operators that do the same (not used: switched off" in said


def test_functions_of_numpy_run_a_block_at_a_time() -> None:
    numbers = sv.from_columns({"x": np.linspace(0, 9, 50), "z": np.arange(50)})
    pipeline = numbers.derive(y=np.log1p, reads="x").derive(w=np.hypot, reads=("x", "z")).batch(50)
    (exact,) = list(pipeline.loader())
    (close,) = list(pipeline.options(fidelity="close").loader())
    for name in ("y", "w"):
        assert np.allclose(exact[name], close[name], rtol=1e-15)
    step = recognised(read_function(np.log1p, ("x",), "x"))
    assert isinstance(step, Function)
    assert step.marks.batched
    assert recognised(read_function(np.sort, ("x",), "x")) is None
    assert recognised(read_function(lambda x: x, ("x",), "x")) is None


def test_tokenizers_are_planned_as_text_operators() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="c"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    lines = sv.from_columns({"line": ["a b", "b", "", "a z b"]})
    pipeline = lines.derive(ids=tokenizer, reads="line").select("ids").batch(4, pad=-1)
    (exact,) = list(pipeline.loader())
    (close,) = list(pipeline.options(fidelity="close").loader())
    assert exact["ids"].tolist() == close["ids"].tolist()
    assert exact["ids"].tolist()[3] == [0, 2, 1]
    encoding = tiktoken.Encoding(
        "letters", pat_str=r"\S+|\s+", special_tokens={},
        mergeable_ranks={bytes([i]): i for i in range(256)},
    )  # fmt: skip
    assert operators(encoding.encode_ordinary, "line") == ["text.tokenize"]


def test_the_state_of_a_close_plan_is_not_that_of_an_exact_one() -> None:
    pipeline = sv.from_columns({"x": np.arange(9.0)}).derive(y=np.exp, reads="x").batch(2)
    loader = pipeline.options(fidelity="close").loader()
    next(iter(loader))
    with pytest.raises(sv.StateError):
        pipeline.loader().load_state_dict(loader.state_dict())
    pipeline.options(fidelity="close").loader().load_state_dict(loader.state_dict())
