"""Every law of operators, both sides run: on random inputs and on real ones.

Exact laws give the same bits and fail on the same rows; close laws stay within their bound on
photos; laws that do not hold differ on their counter-example. A law without an example fails here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
import pytest
from examples import apply, examples_that
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes, load_sample_image

import silva as sv
from silva.columns import Array, Column, Lists, Values
from silva.operators.image import colour
from silva.physical.stage.evaluate import evaluate
from silva.plan import expr
from silva.plan.law import Law, laws
from silva.rewrite.runner import pin_draws
from silva.testing import digest

LAWS = {law.name: law for law in laws() if law.rewrite.__module__.startswith("silva.")}
EXACT = [law for law in LAWS.values() if law.kind == "exact"]
CLOSE = [law for law in LAWS.values() if law.kind == "close"]
NEVER = [law for law in LAWS.values() if law.kind == "never"]


def name(law: Law) -> str:
    return law.name


# Inputs.


def jpeg(image: np.ndarray, quality: int = 90) -> bytes:
    return cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def png(image: np.ndarray) -> bytes:
    return cv2.imencode(".png", image[..., ::-1])[1].tobytes()


PHOTOS = [load_sample_image(file) for file in ("china.jpg", "flower.jpg")]
REAL_IMAGES = [jpeg(PHOTOS[0]), jpeg(PHOTOS[1], 60), jpeg(PHOTOS[0][:90, 200:333]), png(PHOTOS[1])]
REAL_LINES = Path(__file__).parents[2].joinpath("docs/text.md").read_text().splitlines()[:60]
REAL_NUMBERS = load_diabetes().data


@st.composite
def images(draw) -> Column:
    """Encoded without loss, so that decode gives any bytes; sizes from 1 to 70."""
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    sizes = draw(
        st.lists(st.tuples(st.integers(1, 70), st.integers(1, 70)), min_size=1, max_size=3)
    )
    made: list[Any] = [png(rng.integers(0, 256, (*size, 3), np.uint8)) for size in sizes]
    if draw(st.booleans()):
        made.append(None)
    return Values(made)


real_images = st.permutations(REAL_IMAGES).map(lambda some: Values(list(some[:2])))
damaged_images = st.builds(
    lambda data, at, gone: Values([data[: at % len(data)] + data[at % len(data) + gone :]]),
    st.sampled_from(REAL_IMAGES[:3]), st.integers(1, 10**6), st.integers(1, 2000),
)  # fmt: skip
unusual = st.text(st.sampled_from("İıßΣσς¨ϒKﬁÅé́ \t\u3000\x1fabA"), max_size=8)
lines = st.lists(st.none() | st.text(max_size=12) | unusual, min_size=1, max_size=6)
texts = (lines | st.just(REAL_LINES)).map(Values)
DTYPES = ("bool", "uint8", "int8", "int64", "uint64", "float16", "float32", "float64")


@st.composite
def arrays(draw, rows: int | None = None) -> Array:
    """Numbers of any type, infinities, NaN and both zeros among the floats."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    count = draw(st.integers(1, 40)) if rows is None else rows
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    if dtype.kind == "f":
        special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 0.5], dtype)
        data = np.where(rng.random(count) < 0.5, rng.choice(special, count), rng.normal(size=count))
    else:
        data = rng.integers(0, 1 << 16, count).astype(dtype)
    valid = rng.random(count) < 0.8 if draw(st.booleans()) else None
    return Array(data.astype(dtype), valid)


python_numbers = st.lists(
    st.none() | st.booleans() | st.integers(-(1 << 40), 1 << 40) | st.floats(),
    min_size=1,
    max_size=9,
).map(Values)
real_numbers = st.integers(0, REAL_NUMBERS.shape[1] - 1).map(lambda i: Array(REAL_NUMBERS[:, i]))
numbers = arrays() | python_numbers | real_numbers


@st.composite
def lists(draw) -> Column:
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    valid = None
    if draw(st.booleans()):
        valid = np.array(
            draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
        )
    return Lists(draw(arrays(rows=int(offsets[-1]))), offsets, valid)


python_lists = st.lists(
    st.none() | st.lists(st.integers(0, 5) | st.none(), max_size=6), min_size=1, max_size=6
).map(Values)
dense = st.integers(1, 5).map(lambda n: Array(np.arange(12 * n).reshape(4, 3 * n) % 5))
all_lists = lists() | python_lists | dense


# Left sides.

I = sv.image("x").decode()  # noqa: E741
GRAY = sv.image("x").decode("gray")
T = sv.text("x")
WORDS = T.split()
side = st.sampled_from(["left", "right"])
direction = st.sampled_from(["horizontal", "vertical"])
small = st.integers(1, 40)
few = st.integers(0, 5)
pixels = st.sampled_from(
    [
        *(partial(apply, call) for call in examples_that("pixelwise", "image")),
        lambda x: x.grayscale(),
        lambda x: x.color_jitter(0.9, saturation=0.9, hue=0.5),
        lambda x: x.color_jitter(saturation=(3, 5)),
        lambda x: x.normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)),
    ]
)
fixed_crops = st.one_of(
    st.builds(lambda top, left, h, w: lambda x: x.crop(top, left, h, w), few, few, small, small),
    st.builds(lambda h, w: lambda x: x.center_crop((h, w)), small, small),
)
crops = fixed_crops | st.builds(lambda h, w: lambda x: x.random_crop(h, w), small, small)
flips = st.builds(lambda d: lambda x: x.flip(d), direction) | st.builds(
    lambda d: lambda x: x.random_flip(0.5, d), direction
)
bytes_images = st.sampled_from([I, GRAY, I.random_flip(), I.gaussian_blur(3), I.grayscale(3)])
bounds = st.integers(-300, 300) | st.floats(-2, 2)
ids = st.sampled_from(
    [
        lambda x: x.hash(50),
        lambda x: x.hash(50).modulo(7),
        lambda x: x.hash(50).bucketize([3, 9, 20]),
        lambda x: x.to_ids(["a", "the", "silva"], unknown=9),
    ]
)
tokens = st.lists(st.integers(0, 9), max_size=3)
some_words = st.lists(st.sampled_from(["a", "b", "É"]), max_size=3)


def clips(kind: Any) -> st.SearchStrategy[Any]:
    def both(a: Any, b: Any, c: Any, d: Any, one: str) -> Any:
        first, second = sorted([a, b]), sorted([c, d])
        given = {"both": lambda p: p, "low": lambda p: (p[0], None), "high": lambda p: (None, p[1])}
        return kind("x").clip(*given[one](first)).clip(*given[one](second))

    return st.builds(both, bounds, bounds, bounds, bounds, st.sampled_from(["both", "low", "high"]))


LEFT: dict[str, tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    "crop_before_pixels": (
        st.builds(lambda x, f, crop: crop(f(x)), bytes_images, pixels, crops),
        images() | real_images,
    ),
    "crop_before_flip": (
        st.one_of(
            st.builds(
                lambda h, w, flip, a, b: flip(I.resize(h + a, w + b)).center_crop((h, w)),
                small, small, flips, few, few,
            ),
            st.builds(
                lambda h, w, y, x, a, b, d: I.resize(h + y + a, w + x + b).flip(d).crop(y, x, h, w),
                small, small, few, few, few, few, direction,
            ),
            st.builds(
                lambda h, x, d: I.random_resized_crop((h, h + 2 * x)).random_flip(0.5, d)
                .crop(0, x, h, h),
                small, few, direction,
            ),
        ),
        images() | real_images,
    ),
    "crop_twice": (
        st.builds(
            lambda x, some: reduce(lambda made, crop: crop(made), some, x),
            st.sampled_from([I, GRAY, I.to_float(), I.random_resized_crop(20)]),
            st.lists(fixed_crops, min_size=2, max_size=3),
        ),
        images() | real_images,
    ),
    "decode_upper_rows": (
        st.builds(
            lambda mode, crop: crop(sv.image("x").decode(mode, strict=False)),
            st.sampled_from(["rgb", "gray"]),
            crops | st.builds(lambda h: lambda x: x.random_resized_crop(h), small),
        ),
        images() | real_images | damaged_images,
    ),
    "gray_before_flip": (
        st.builds(lambda x, f: f(x).grayscale(), st.sampled_from([I, I.center_crop(1)]), flips),
        images() | real_images,
    ),
    "flip_before_float": (
        st.builds(
            lambda x, f, flip: flip(f(x)),
            bytes_images,
            st.sampled_from([lambda x: x.to_float(), lambda x: x.normalize(0.4, 0.3)]),
            flips,
        ),
        images() | real_images,
    ),
    "flip_twice": (
        st.builds(lambda x, d: x.flip(d).flip(d), bytes_images, direction),
        images() | real_images,
    ),
    "resize_to_its_size": (
        st.builds(
            lambda h, w, how, flip: flip(I.resize(h, w)).resize(h, w, how),
            small, small, st.sampled_from(["nearest", "bilinear", "area", "lanczos"]), flips,
        ),
        images() | real_images,
    ),
    "grayscale_twice": (
        st.builds(
            lambda x, c, d: x.grayscale(c).grayscale(d),
            st.sampled_from([I, GRAY]), st.sampled_from([1, 3]), st.sampled_from([1, 3]),
        ),
        images() | real_images,
    ),
    "grayscale_of_gray": (
        st.sampled_from([GRAY.grayscale(), GRAY.random_flip().grayscale()]),
        images() | real_images,
    ),
    "normalize_of_float": (
        st.builds(
            lambda x, mean, std: x.to_float().normalize(mean, std),
            bytes_images, st.floats(0, 1), st.floats(0.01, 2),
        ),
        images() | real_images,
    ),
    "to_float_twice": (
        st.builds(lambda x: x.to_float().to_float(), bytes_images), images() | real_images
    ),
    "letters_twice": (
        st.sampled_from([T.lower().lower(), T.upper().upper(), T.strip().strip()]), texts
    ),
    "normalize_text_twice": (
        st.builds(
            lambda g, f: T.normalize(g).normalize(f),
            st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]),
            st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]),
        ),
        texts,
    ),
    "strip_before_split": (st.just(T.strip().split()), texts),
    "add_tokens_twice": (
        st.builds(
            lambda c, d, b, a: WORDS.hash(9).add_tokens(c, d).add_tokens(b, a),
            tokens, tokens, tokens, tokens,
        )
        | st.builds(
            lambda c, d, b, a: WORDS.add_tokens(c, d).add_tokens(b, a),
            some_words, some_words, some_words, some_words,
        ),
        texts,
    ),
    "clip_twice": (clips(sv.num), numbers),
    "modulo_twice": (
        st.builds(lambda n, m: sv.num("x").modulo(n * m).modulo(n), small, small), numbers
    ),
    "fill_null_twice": (
        st.builds(
            lambda value, nan: sv.num("x").fill_null(value, nan).fill_null(value, nan),
            st.sampled_from([0, 7, 1.5, -0.0, 300, True]), st.booleans(),
        ),
        numbers,
    ),
    "cast_twice": (
        st.builds(lambda t: sv.col("x").cast(t).cast(t), st.sampled_from(["f4", "f8", "i8", "?"])),
        arrays() | real_numbers,
    ),
    "truncate_twice": (
        st.builds(lambda n, m, s: sv.list("x").truncate(n, s).truncate(m, s), few, few, side),
        all_lists,
    ),
    "truncate_before_items": (
        st.builds(lambda f, n, s: f(WORDS).truncate(n, s), ids, few, side), texts
    ),
    "unique_twice": (st.just(sv.list("x").unique().unique()), lists() | python_lists),
    "length_of_items": (st.builds(lambda f: f(WORDS).length(), ids), texts),
    "length_of_truncated": (
        st.builds(lambda n, s: sv.list("x").truncate(n, s).length(), few, side), all_lists
    ),
}  # fmt: skip


# Both sides.


def pinned(term: expr.Term) -> expr.Term:
    return pin_draws(term, "step")


def run(term: expr.Term, column: Column, ids: np.ndarray) -> Any:
    with np.errstate(all="ignore"):
        made = evaluate(term, {"x": column}, ids, None, (0, 0, "step"))
        made = made.settled()  # as on its way to a batch
        found = made.rows() if isinstance(made, Values) else made.batch()
        return digest({"type": type(made).__name__, "rows": found})


def results(term: expr.Term, column: Column) -> list[str]:
    """What comes of each row, or that it fails; and of all together, if none does."""
    ids = np.arange(len(column), dtype=np.uint64)
    found = []
    for i in range(len(column)):
        try:
            found.append(run(term, column.slice(i, i + 1), ids[i : i + 1]))
        except (ValueError, TypeError, OverflowError):
            found.append("fails")
    return found if "fails" in found else [*found, run(term, column, ids)]


def right_side(law: Law, left: expr.Term) -> expr.Term:
    """The law used wherever it can be, until there is no such place."""
    right = left
    for _ in range(9):
        right = expr.rebuild(
            right, lambda t: (law.rewrite(t) or t) if isinstance(t, expr.Call) else t
        )
    return right


E = TypeVar("E")


def example(of: str, table: str, examples: dict[str, E]) -> E:
    assert of in examples, f"add an example of {of} to {table} in this file"
    return examples[of]


def test_every_example_is_of_a_law():
    unknown = (set(LEFT) | set(NEAR) | set(COUNTER)) - set(LAWS)
    assert not unknown, f"there is no law {', '.join(sorted(unknown))}: remove its example"


@pytest.mark.parametrize("law", EXACT, ids=name)
@given(data=st.data())
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.filter_too_much],  # laws have conditions: few crops nest
)
def test_exact_laws_keep_every_bit_and_every_failure(law: Law, data: st.DataObject):
    lefts, inputs = example(law.name, "LEFT", LEFT)
    left = pinned(data.draw(lefts).term)
    right = right_side(law, left)
    assume(right != left)
    column = data.draw(inputs)
    assert results(left, column) == results(right, column)


@pytest.mark.parametrize("law", EXACT, ids=name)
def test_the_right_side_is_no_left_side_again(law: Law):
    """So that laws come to an end."""

    @given(example(law.name, "LEFT", LEFT)[0])
    @settings(max_examples=20)
    def check(left: Any) -> None:
        right = right_side(law, pinned(left.term))
        calls = [part for part in expr.walk(right) if isinstance(part, expr.Call)]
        assert all(law.rewrite(call) is None for call in calls)

    check()


def values(term: expr.Term, column: Column) -> list[Any]:
    ids = np.arange(len(column), dtype=np.uint64)
    return evaluate(pinned(term), {"x": column}, ids, None, (0, 0, "step")).rows()


def differences(law: Law, left: Any, images: list[bytes]) -> np.ndarray:
    term = pinned(left.term)
    sides = (values(side, Values(images)) for side in (term, right_side(law, term)))
    pairs = zip(*sides, strict=True)
    return np.concatenate([abs(a.astype(int) - b.astype(int)).ravel() for a, b in pairs])


def stripes() -> bytes:
    image = np.zeros((96, 96, 3), np.uint8)
    image[:, ::2, 0] = 255
    return jpeg(image)


def noise() -> bytes:
    return jpeg(np.random.default_rng(0).integers(0, 256, (512, 512, 3), np.uint8))


NEAR: dict[str, tuple[list[Any], float, int, bytes]] = {
    "gray_decode": (
        [I.grayscale(), I.grayscale(3), I.center_crop(60).grayscale()], 1.5, 16, stripes()
    ),
    "shrink_decode": (
        [I.resize(60, 80, "area"), I.random_resized_crop(48, scale=(0.9, 1), interpolation="area")],
        2.5, 16, noise(),
    ),
}  # fmt: skip
"""By name: left sides, the mean difference at most, that of 99 % at most, and a bad image."""


@pytest.mark.parametrize("law", CLOSE, ids=name)
def test_close_laws_stay_within_their_bound_on_photos_and_not_on_their_counter_example(law: Law):
    lefts, mean, most, bad = example(law.name, "NEAR", NEAR)
    assert law.bound is not None
    assert f"{mean} levels" in law.bound
    assert f"within {most}" in law.bound
    for left in lefts:
        off = differences(law, left, REAL_IMAGES[:2])
        assert off.mean() <= mean
        assert np.percentile(off, 99) <= most
    assert differences(law, lefts[0], [bad]).mean() > mean


def pixel(*levels: int) -> np.ndarray:
    return np.full((4, 4, 3), levels, np.uint8)


ramp = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
COUNTER: dict[str, tuple[Any, Column]] = {
    "grayscale_before_jitter": (
        I.color_jitter(hue=(1 / 3, 1 / 3)).grayscale(), Values([png(pixel(255, 0, 0))])
    ),
    "normalize_before_jitter": (
        I.color_jitter(brightness=(2, 2)).normalize(0.485, 0.22), Values([png(pixel(200, 0, 0))])
    ),
    "grayscale_without_saturation": (
        I.color_jitter(saturation=(2, 2)).grayscale(), Values([png(pixel(200, 0, 0))])
    ),
    "crop_before_blur": (I.gaussian_blur(3, 1.0).crop(0, 0, 4, 4), Values([png(ramp)])),
    "crop_before_resize": (I.resize(9, 9).crop(0, 0, 4, 4), Values([png(ramp)])),
    "crop_before_contrast": (
        I.color_jitter(contrast=(0.5, 0.5)).crop(0, 0, 4, 4), Values([png(ramp)])
    ),
    "resize_before_erasing": (
        I.random_erasing(1.0, value=255).resize(7, 7), Values([png(ramp)])
    ),
    "truncate_before_unique": (sv.list("x").unique().truncate(2), Values([[1, 1, 2]])),
    "upper_of_lower": (T.lower().upper(), Values(["İ"])),
    "length_of_letters": (T.lower().length(), Values(["İ"])),
}  # fmt: skip


@pytest.mark.parametrize("law", NEVER, ids=name)
def test_what_is_no_law_differs_on_its_counter_example(law: Law):
    left, column = example(law.name, "COUNTER", COUNTER)
    term = pinned(left.term)
    right = right_side(law, term)
    assert right != term
    before = results(term, column)
    assert "fails" not in before
    assert results(right, column) != before


# What the laws rest on.


def all_colours() -> np.ndarray:
    levels = np.arange(256, dtype=np.uint8)
    return np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(-1, 3)


@pytest.mark.parametrize(
    "work",
    [
        lambda x: cv2.cvtColor(x, cv2.COLOR_RGB2GRAY),
        lambda x: colour.brightness(x, 1.63),
        lambda x: colour.saturation(x, 1.63),
        lambda x: colour.hue(x, 0.1),
    ],
    ids=["grayscale", "brightness", "saturation", "hue"],
)
def test_a_pixel_of_any_colour_does_not_depend_on_where_it_stands(work: Callable[[Any], Any]):
    """Wide lines go through OpenCV's vector loops, narrow ones through the scalar rest."""
    colours = all_colours()
    wide = work(colours.reshape(4096, 4096, 3)).reshape(len(colours), -1)
    narrow = work(colours.reshape(-1, 4, 3)).reshape(len(colours), -1)
    assert np.array_equal(wide, narrow)


def test_letters_twice_holds_for_every_character():
    """Only a Σ looks at its neighbours, and lower leaves none."""
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        assert letter.lower().lower() == letter.lower()
        assert letter.upper().upper() == letter.upper()
        assert "Σ" not in letter.lower()


def test_terms_compare_by_value_and_by_draw():
    term = I.random_flip().term
    assert term == I.random_flip().term
    assert hash(term) == hash(I.random_flip().term)
    assert pinned(term) != term
    assert pinned(term) == pinned(pinned(term))
    assert repr(sv.Expr(pinned(term))) == repr(sv.Expr(term))
    assert "draw" not in repr(pinned(term))
