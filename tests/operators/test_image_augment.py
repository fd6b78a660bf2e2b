"""Levels, sharpness, affine maps and policies of augmentations, against torchvision.

Tables of levels are equal to the byte. Sharpness is off by one level in at most 0.2 % of values.
`affine` takes another pixel than torchvision only where the map falls halfway between two pixels
("nearest", at most 3 % of values on the shears below) and is off by one level otherwise
("bilinear", at most 0.1 %); brightness, saturation and contrast are within two levels.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
import torchvision_here
from drawn import Table
from sklearn.datasets import load_sample_image

import silva as sv
from silva.columns import Values
from silva.operators.image import augment
from silva.plan.operator import operator
from silva.testing import assert_same_stream

v2 = torchvision_here.load()
F = v2.functional
X = sv.image("x")
PHOTOS = [load_sample_image(name)[:240, 100:400].copy() for name in ("china.jpg", "flower.jpg")]
RNG = np.random.default_rng(0)
IMAGES = [
    *PHOTOS,
    PHOTOS[0] // 4 + 30,
    RNG.integers(0, 256, (9, 13, 3), np.uint8),
    RNG.integers(100, 140, (50, 40, 1), np.uint8),
    RNG.integers(0, 256, (2, 5, 3), np.uint8),
    np.full((4, 4, 3), 7, np.uint8),
    np.array([0, 255] * 300, np.uint8).reshape(20, 10, 3),
]


def run(expr: Any, images: list[Any], table: Table | None = None) -> list[Any]:
    term = expr.term
    return operator(term.op).kernel([Values(images)], dict(term.params), table).rows()


def tensor(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x.transpose(2, 0, 1).copy())


def array(x: torch.Tensor) -> np.ndarray:
    return x.numpy().transpose(1, 2, 0)


def off(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return abs(a.astype(int) - b.astype(int))


@pytest.mark.operators("image.solarize")
@pytest.mark.parametrize("threshold", [0, 1, 100.5, 128, 255])
def test_solarize_is_torchvisions(threshold: float) -> None:
    for x, made in zip(IMAGES, run(X.solarize(threshold), IMAGES), strict=True):
        assert np.array_equal(made, array(F.solarize(tensor(x), threshold)))


@pytest.mark.operators("image.invert")
def test_invert_is_torchvisions() -> None:
    for x, made in zip(IMAGES, run(X.invert(), IMAGES), strict=True):
        assert np.array_equal(made, array(F.invert(tensor(x))))


@pytest.mark.operators("image.posterize")
@pytest.mark.parametrize("bits", range(9))
def test_posterize_is_torchvisions(bits: int) -> None:
    for x, made in zip(IMAGES, run(X.posterize(bits), IMAGES), strict=True):
        assert np.array_equal(made, array(F.posterize(tensor(x), bits)))


@pytest.mark.operators("image.equalize")
def test_equalize_is_torchvisions() -> None:
    for x, made in zip(IMAGES, run(X.equalize(), IMAGES), strict=True):
        assert np.array_equal(made, array(F.equalize(tensor(x))))


@pytest.mark.operators("image.autocontrast")
def test_autocontrast_is_torchvisions() -> None:
    for x, made in zip(IMAGES, run(X.autocontrast(), IMAGES), strict=True):
        assert np.array_equal(made, array(F.autocontrast(tensor(x))))


def test_equalize_counts_exactly_in_images_beyond_the_range_of_float32(monkeypatch) -> None:
    from silva.operators.image import levels

    expected = run(X.equalize(), PHOTOS)
    monkeypatch.setattr(levels, "_EXACT_COUNT", 1)
    for made, want in zip(run(X.equalize(), PHOTOS), expected, strict=True):
        assert np.array_equal(made, want)


@pytest.mark.operators("image.sharpness")
@pytest.mark.parametrize("factor", [0, 0.3, 1, 1.1, 1.9, 3.0])
def test_sharpness_is_torchvisions(factor: float) -> None:
    for x, made in zip(IMAGES, run(X.sharpness(factor), IMAGES), strict=True):
        difference = off(made, array(F.adjust_sharpness(tensor(x), factor)))
        assert difference.max() <= 1
        assert (difference > 0).mean() <= 0.002


SOMETIMES = {
    "random_solarize": lambda p: X.solarize(50, p),
    "random_invert": lambda p: X.invert(p),
    "random_posterize": lambda p: X.posterize(3, p),
    "random_equalize": lambda p: X.equalize(p),
    "random_autocontrast": lambda p: X.autocontrast(p),
    "random_sharpness": lambda p: X.sharpness(2, p),
}


@pytest.mark.operators(
    "image.random_solarize",
    "image.random_invert",
    "image.random_posterize",
    "image.random_equalize",
    "image.random_autocontrast",
    "image.random_sharpness",
)
@pytest.mark.parametrize("name", SOMETIMES)
def test_an_operator_with_a_probability_changes_some_rows(name: str) -> None:
    changed = run(SOMETIMES[name](1.0), [IMAGES[2]])[0]
    some = SOMETIMES[name](0.25)
    assert some.term.op == f"image.{name}"
    made = run(some, [IMAGES[2]] * 3, Table([[0.0], [0.24], [0.25]]))
    assert not np.array_equal(changed, IMAGES[2])
    assert [np.array_equal(x, changed) for x in made] == [True, True, False]
    assert np.array_equal(made[2], IMAGES[2])
    with pytest.raises(ValueError, match="an image is an array"):
        run(some, [b"bytes"], Table([[0.9]]))


@pytest.mark.parametrize(
    "method", [lambda x: x.solarize(), lambda x: x.equalize(), lambda x: x.trivial_augment()]
)
def test_floats_are_refused_with_what_to_do(method: Any) -> None:
    with pytest.raises(ValueError, match=r"uint8 of 1 or 3 channels, not float32 .* to_float\(\)"):
        run(method(X), [np.zeros((4, 4, 3), np.float32)], Table([[0.99] * 3]))


@pytest.mark.parametrize(
    "write",
    [
        lambda: X.solarize(256),
        lambda: X.posterize(9),
        lambda: X.equalize(1.5),
        lambda: X.sharpness(-1),
        lambda: X.affine(scale=0),
        lambda: X.affine(translate=(1, 2, 3)),
        lambda: X.affine(interpolation="bicubic"),
        lambda: X.trivial_augment(1),
        lambda: X.rand_augment(magnitude=31),
        lambda: X.rand_augment(0),
        lambda: X.rand_augment(10**30),
        lambda: X.rand_augment(num_magnitude_bins=10**30),
        lambda: X.trivial_augment(10**30),
        lambda: X.affine(fill=b"x"),
        lambda: X.affine(fill={1}),
        lambda: X.affine(fill={1: 2}),
        lambda: X.pad(1, fill=b"1"),
        lambda: X.affine(10**400),
    ],
)
def test_arguments_are_checked_as_they_are_written(write: Any) -> None:
    with pytest.raises(sv.PlanError):
        write()


MAPS = [
    {"degrees": 10.0, "translate": (4, 0), "shear": (5.0, 0.0)},
    {"translate": (7, -3)},
    {"degrees": -123.0, "translate": (3.5, 1.2), "scale": 1.7, "shear": (10.0, -20.0)},
    {"degrees": 33.0, "scale": 0.6, "center": (20.0, 30.0)},
]


@pytest.mark.operators("image.affine")
@pytest.mark.parametrize("given", MAPS)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("photo", [0, 1])
def test_affine_is_torchvisions(given: dict[str, Any], interpolation: Any, photo: int) -> None:
    usual: dict[str, Any] = {"degrees": 0.0, "translate": (0, 0), "scale": 1.0, "shear": (0.0, 0.0)}
    theirs = {k: list(v) if isinstance(v, tuple) else v for k, v in (usual | given).items()}
    want = F.affine(
        tensor(PHOTOS[photo]),
        theirs.pop("degrees"),
        interpolation=v2.InterpolationMode(interpolation),
        **theirs,
    )
    made = run(X.affine(**given, interpolation=interpolation), [PHOTOS[photo]])[0]
    difference = off(made, array(want))
    assert (difference > 0).mean() <= 0.001
    assert interpolation == "nearest" or difference.max() <= 1


def test_affine_fills_what_comes_from_outside_and_moves_boxes_and_masks_along() -> None:
    row = {
        "x": PHOTOS[0],
        "boxes": [[10, 20, 50, 60], [290, 0, 299, 9]],
        "mask": PHOTOS[0][:, :, 0],
    }
    chain = sv.image("x", boxes="boxes", mask="mask").affine(translate=(20, -5), fill=(1, 2, 3))
    into = ("image", "boxes", "mask")
    (made,) = sv.from_items([row]).derive(chain, into=into).head(1)
    assert np.array_equal(made["image"][:-5, 20:], PHOTOS[0][5:, :-20])
    assert (made["image"][:, :20] == (1, 2, 3)).all()
    assert np.asarray(made["boxes"]).tolist() == [[30, 15, 70, 55]]
    assert np.array_equal(made["mask"][:-5, 20:], row["mask"][5:, :-20])


THEIRS = {
    "identity": "Identity", "shear_x": "ShearX", "shear_y": "ShearY", "translate_x": "TranslateX",
    "translate_y": "TranslateY", "rotate": "Rotate", "brightness": "Brightness",
    "saturation": "Color", "contrast": "Contrast", "sharpness": "Sharpness",
    "posterize": "Posterize", "solarize": "Solarize", "autocontrast": "AutoContrast",
    "equalize": "Equalize",
}  # fmt: skip
BINS = 31
LEVELS_OFF = {"brightness": 1, "saturation": 2, "contrast": 2, "sharpness": 1}


def drawn(name: str, bin: int, negative: bool) -> list[float]:
    """The random numbers with which TrivialAugment chooses this."""
    which = (augment.NAMES.index(name) + 0.5) / len(augment.NAMES)
    return [which, (bin + 0.5) / BINS, 0.25 if negative else 0.75]


def theirs(policy: Any, x: np.ndarray, name: str, bin: int, negative: bool) -> np.ndarray:
    magnitudes, signed = policy._AUGMENTATION_SPACE[THEIRS[name]]
    table = magnitudes(BINS, *x.shape[:2])
    magnitude = 0.0 if table is None else float(table[bin])
    magnitude = -magnitude if signed and negative else magnitude
    made = policy._apply_image_or_video_transform(
        tensor(x), THEIRS[name], magnitude, policy.interpolation, policy._fill
    )
    return array(made)


def check_policy(name: str, made: np.ndarray, want: np.ndarray) -> None:
    difference = off(made, want)
    if name in ("shear_x", "shear_y", "rotate"):
        assert (difference > 0).mean() <= 0.03
    else:
        assert difference.max() <= LEVELS_OFF.get(name, 0)


@pytest.mark.operators("image.trivial_augment")
@pytest.mark.parametrize("name", THEIRS)
def test_trivial_augment_is_torchvisions_for_every_augmentation_and_magnitude(name: str) -> None:
    policy = v2.TrivialAugmentWide()
    assert list(policy._AUGMENTATION_SPACE) == [THEIRS[name] for name in augment.NAMES]
    cases = [(bin, negative) for bin in range(BINS) for negative in (False, True)]
    small = PHOTOS[0][60:160, 50:178].copy()
    made = run(X.trivial_augment(), [small] * len(cases), Table([drawn(name, *c) for c in cases]))
    for case, image in zip(cases, made, strict=True):
        check_policy(name, image, theirs(policy, small, name, *case))


@pytest.mark.operators("image.rand_augment")
@pytest.mark.parametrize("magnitude", [0, 9, 15, 30])
@pytest.mark.parametrize("name", THEIRS)
def test_rand_augment_is_torchvisions_for_every_augmentation(name: str, magnitude: int) -> None:
    policy = v2.RandAugment(1, magnitude)
    assert list(policy._AUGMENTATION_SPACE) == [THEIRS[name] for name in augment.NAMES]
    small = PHOTOS[1][60:160, 50:178].copy()
    table = Table([[drawn(name, 0, sign)[0], 0.25 if sign else 0.75] for sign in (False, True)])
    made = run(X.rand_augment(1, magnitude), [small] * 2, table)
    for negative, image in zip((False, True), made, strict=True):
        check_policy(name, image, theirs(policy, small, name, magnitude, negative))


def test_rand_augment_applies_one_augmentation_after_the_other() -> None:
    small = PHOTOS[0][:80, :90].copy()
    numbers = [drawn(name, 0, False)[0] for name in ("posterize", "solarize")]
    made = run(X.rand_augment(2, 30), [small], Table([[numbers[0], 0.9, numbers[1], 0.9]]))[0]
    assert np.array_equal(made, run(X.solarize(0), run(X.posterize(4), [small]))[0])


def test_augmentations_and_magnitudes_are_uniform_and_independent(monkeypatch) -> None:
    seen: Counter[Any] = Counter()

    def collect(table: Any, chosen: Any, params: Any) -> Any:
        for row in chosen:
            seen.update(("name", one.name) for one in row)
            seen.update(("bin", one.bin) for one in row)
            seen.update(("negative", one.negative) for one in row)
        return lambda row, value, out: value

    monkeypatch.setattr(augment, "augmenting", collect)
    count = 20_000
    images = sv.from_columns({"x": np.zeros((count, 1, 1, 3), np.uint8)})
    list(images.derive(y=X.trivial_augment()).select("y").batch(4096).loader(backend="inline"))
    assert sum(seen[key] for key in seen if key[0] == "name") == count
    for kind, values in (("name", augment.NAMES), ("bin", range(BINS)), ("negative", (0, 1))):
        expected = count / len(values)
        chi = sum((seen[kind, value] - expected) ** 2 / expected for value in values)
        assert chi < len(values) - 1 + 5 * np.sqrt(2 * (len(values) - 1))


def test_policies_give_the_same_stream_however_they_are_run() -> None:
    images = [PHOTOS[i % 2][i : i + 40, i : i + 50].copy() for i in range(12)]
    policies = X.trivial_augment().rand_augment(3, interpolation="bilinear", fill=128)
    pipeline = sv.from_items([{"x": image} for image in images]).derive(y=policies).select("y")
    assert_same_stream(pipeline.batch(4), workers=(2,), epochs=1)


@pytest.mark.operators("image.affine")
def test_affine_refuses_numbers_and_fills_that_it_would_change():
    turned = sv.image("x").affine(degrees=10)
    with pytest.raises(ValueError, match="take uint8, uint16, int16, float32, float64, not int64"):
        run(turned, [np.full((5, 5, 3), 2**40, np.int64)])
    with pytest.raises(ValueError, match="fill has 2 values, but the image has 3 channels"):
        run(sv.image("x").affine(degrees=10, fill=(1, 2)), [IMAGES[2]])


ODD = RNG.integers(1, 256, (9, 11, 3), np.uint8)


@pytest.mark.operators("image.affine")
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize(
    "given", [{"shear": (90, 90)}, {"scale": 1e-320}, {"scale": 1e-200}, {"scale": 1e-7}]
)
def test_an_affine_map_that_leaves_nothing_of_an_image_fills_it(given, interpolation) -> None:
    made = run(X.affine(**given, interpolation=interpolation, fill=7), [ODD])[0]
    assert (np.delete(made.reshape(-1, 3), 49, axis=0) == 7).all()  # all but the middle
    row = {"x": ODD, "boxes": [[1, 1, 5, 5]], "mask": ODD[:, :, 0]}
    chain = sv.image("x", boxes="boxes", mask="mask").affine(**given)
    (moved,) = sv.from_items([row]).derive(chain, into=("image", "boxes", "mask")).head(1)
    assert len(moved["boxes"]) == 0 or given == {"scale": 1e-7}
    assert not np.delete(moved["mask"].ravel(), 49).any()


@pytest.mark.operators("image.affine")
def test_an_affine_map_of_any_scale_takes_the_pixels_that_it_names() -> None:
    """Also where places are beyond the fixed point numbers of OpenCV's `warpAffine`."""
    for scale in (1e6, 1e7, 1e100, 1e200):
        assert (run(X.affine(scale=scale, fill=7), [ODD])[0] == ODD[4, 5]).all()
    for far in (1e5, 1e7, 1e300):
        assert (run(X.affine(translate=(far, -far), fill=7), [ODD])[0] == 7).all()
    line = run(X.affine(shear=(89.99999, 0), fill=7), [ODD])[0]
    assert np.array_equal(line[4], ODD[4])
    assert (np.delete(line, 4, axis=0) == 7).all()


@pytest.mark.operators("image.affine", "image.pad", "image.random_erasing")
@pytest.mark.parametrize(("fill", "level"), [(300, 255), (1e308, 255), (-5, 0), (-1e308, 0)])
def test_a_fill_beyond_the_levels_is_the_nearest_level(fill: float, level: int) -> None:
    for how in ("nearest", "bilinear"):
        made = run(X.affine(translate=(3, 0), interpolation=how, fill=fill), [ODD])[0]
        assert (made[:, :3] == level).all()
        assert np.array_equal(made[:, 3:], ODD[:, :-3])
    assert (run(X.pad(1, fill=fill), [ODD])[0][0] == level).all()
    wide = run(X.pad(1, fill=fill), [ODD.astype(np.int64)])[0][0, 0, 0]
    assert wide == pytest.approx(min(max(fill, -(2.0**63)), 2.0**63))
    erase = X.random_erasing(1.0, (0.2, 0.2), (1.0, 1.0), value=fill)
    erased = run(erase, [ODD], Table([[0.5] * 23]))[0]
    assert (erased[erased != ODD] == level).all()
