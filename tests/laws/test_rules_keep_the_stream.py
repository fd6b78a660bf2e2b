"""Whatever rules and laws are used or left out, the stream stays byte for byte the same.

Pipelines of expressions are drawn at random: images, words, lists and numbers, derived, written
again, filtered and selected; some rows fail. Each is run as written and with a random part of all
rules and laws switched off.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import cv2
import numpy as np
from examples import apply, examples_that
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_sample_image

import silva as sv
from silva.rewrite.runner import batches, optimize
from silva.testing import assert_same_stream, stream

sv.laws()
NAMES = [rule.name for batch in batches() for rule in batch.rules]


def png(image: np.ndarray) -> bytes:
    return cv2.imencode(".png", image[..., ::-1])[1].tobytes()


rng = np.random.default_rng(3)
SIZES = rng.integers(6, 24, (16, 2))
COLUMNS = {
    "photo": [png(rng.integers(0, 256, (h, w, 3), np.uint8)) for h, w in SIZES] + [b"bad", b""],
    "line": ["a b  c", " forest green ", "İ ß", "", "a a b a", "one two three four five"] * 3,
    "n": np.arange(18, dtype=np.uint8),
    "w": np.linspace(-2, 2, 18, dtype=np.float32),
    "l": [[i % 3, 1, i % 5, i] for i in range(18)],
}
KINDS = {"photo": "bytes", "line": "text", "n": "int", "w": "num", "l": "list"}

STEPS: dict[str, list[tuple[str, Any]]] = {
    "bytes": [
        ("image", lambda x: sv.image(x).decode()),
        ("image", lambda x: sv.image(x).decode("gray")),
    ],
    "image": [
        ("image", lambda x: x.grayscale()),
        ("image", lambda x: x.center_crop(6)),
        ("image", lambda x: x.center_crop((5, 4))),
        ("image", lambda x: x.crop(1, 2, 7, 5)),
        ("image", lambda x: x.random_crop(6)),
        ("image", lambda x: x.resize(9, 8)),
        ("image", lambda x: x.resize(9, 8, "area")),
        ("image", lambda x: x.random_resized_crop(8)),
        ("image", lambda x: x.flip()),
        ("image", lambda x: x.flip("vertical")),
        ("image", lambda x: x.color_jitter(0.5, saturation=0.5, hue=0.2)),
        ("image", lambda x: x.color_jitter(contrast=0.5)),
        *(("image", partial(apply, call)) for call in examples_that("keeps_size", "image")),
    ],
    "text": [
        ("text", lambda x: x.lower()),
        ("text", lambda x: x.upper()),
        ("text", lambda x: x.strip()),
        ("text", lambda x: x.normalize("NFKC")),
        ("int", lambda x: x.length()),
        ("list", lambda x: x.split().hash(20)),
        ("list", lambda x: x.chunk(3, overlap=1, by="characters").hash(20)),
        ("list", lambda x: x.split().to_ids({"a": 1, "b": 2}, unknown=0)),
        ("list", lambda x: x.split().to_ids({"a": 1, "b": 2, "c": 3})),
    ],
    "list": [
        ("list", lambda x: x.truncate(3)),
        ("list", lambda x: x.truncate(2, "left")),
        ("list", lambda x: x.unique()),
        ("list", lambda x: x.hash(12)),
        ("list", lambda x: x.modulo(4)),
        ("list", lambda x: x.clip(1, 9)),
        ("int", lambda x: x.length()),
    ],
    "int": [
        ("int", lambda x: x.modulo(12)),
        ("int", lambda x: x.modulo(4)),
        ("int", lambda x: x.clip(0, 9)),
        ("num", lambda x: x),
    ],
    "num": [
        ("num", lambda x: x.clip(0, 9)),
        ("num", lambda x: x.clip(0.0, 1.5)),
        ("num", lambda x: x.clip(high=5)),
        ("num", lambda x: x.fill_null(0)),
        ("num", lambda x: sv.Expr(x.term) + 3),
        ("num", lambda x: sv.Expr(x.term).cast("f4")),
        ("num", lambda x: sv.Expr(x.term) * sv.Expr(x.term)),
    ],
}
OTHERS = ["filter", "select", "shuffle", "function", "join"]
PRICES = {
    "k": np.arange(0, 24, 2),
    "price": np.linspace(0, 3, 12, dtype=np.float32),
    "label": [f"Item {i}" for i in range(12)],
}
START = {"int": sv.num, "image": sv.image, "text": sv.text, "list": sv.list, "num": sv.num}


@st.composite
def chain(draw, name: str, kind: str) -> tuple[str, Any]:
    """An expression over a column, and the kind of what it makes."""
    value: Any = name if kind == "bytes" else START[kind](name)
    for _ in range(draw(st.integers(1, 5))):
        kind, step = draw(st.sampled_from(STEPS[kind]))
        value = step(value)
        if not isinstance(value, START[kind](name).__class__):
            value = START[kind](name).__class__(value.term)
    return kind, value


@st.composite
def pipelines(draw) -> sv.Pipeline:
    p, kinds = sv.from_columns(COLUMNS), dict(KINDS)
    for _ in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(sorted(kinds)))
        match draw(st.sampled_from(["derive"] * 5 + OTHERS)):
            case "derive":
                into = draw(st.sampled_from(["a", "b", name]))
                kinds[into], value = draw(chain(name, kinds[name]))
                p = p.derive(**{into: value})
            case "filter" if kinds[name] in ("int", "num"):
                condition = sv.col(name) < draw(st.integers(0, 20))
                p = p.filter(condition & True if draw(st.booleans()) else condition)
            case "select":
                keep = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, unique=True))
                p, kinds = p.select(*keep), {name: kinds[name] for name in keep}
            case "join" if kinds[name] in ("int", "num") and "price" not in kinds:
                how = draw(st.sampled_from(["left", "inner"]))
                p = p.join(PRICES, on={name: "k"}, how=how)
                kinds |= {"price": "num", "label": "text"}
            case "shuffle":
                p = p.shuffle(seed=draw(st.integers(0, 9)))
            case "function":
                p = p.derive(lambda value: str(value)[:9], into="f", reads=name)
                kinds["f"] = "text"
    return p


def run(pipeline: sv.Pipeline) -> list[str]:
    with np.errstate(all="ignore"):
        return stream(pipeline.loader(backend="inline", on_error=sv.Skip()))


@given(pipelines(), st.sets(st.sampled_from(NAMES)))
@settings(max_examples=40)
def test_any_part_of_the_rules_gives_the_stream_as_written(pipeline, disabled):
    """But for rows that fail in a step whose result nobody reads: such a step is not run and cannot
    fail, so plans are compared with one that drops the same steps."""
    written = run(pipeline.options(optimize=False))
    dropped = run(pipeline.options(disable=[name for name in NAMES if name != "drop_unread"]))
    assert run(pipeline.options(disable=["drop_unread"])) == written
    assert run(pipeline) == dropped
    expected = written if "drop_unread" in disabled else dropped
    assert run(pipeline.options(disable=sorted(disabled))) == expected


def test_the_pipelines_above_use_most_rules_and_laws():
    """So that the test before this one means something."""
    used: Counter[str] = Counter()

    @given(pipelines())
    @settings(max_examples=300, derandomize=True)
    def count(pipeline: sv.Pipeline) -> None:
        outcomes = optimize(pipeline.plan)[1]
        used.update({outcome.rule.name for outcome in outcomes if outcome.applied})

    count()
    wanted = {"merge_derives", "share", "drop_unread", "crop_before_pixels", "clip_twice"}
    assert wanted <= set(used)
    assert len(used) >= 12


SIMCLR = (
    sv.image("photo").decode().random_resized_crop(24).random_flip()
    .color_jitter(0.8, 0.8, 0.8, 0.2).grayscale(3).gaussian_blur(11)
    .normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)).to_chw()
)  # fmt: skip


def test_simclr_in_its_declared_order_is_the_same_to_the_bit_and_the_refused_laws_are_named():
    photos = [load_sample_image(name)[::4, ::4] for name in ("china.jpg", "flower.jpg")]
    rows = sv.from_columns({"photo": [png(photo[i:, i:]) for i in range(6) for photo in photos]})
    pipeline = rows.derive(image=SIMCLR).select("image").shuffle(seed=1).batch(4)
    assert_same_stream(pipeline, backends=("inline", "threads"), workers=(2,), epochs=1)
    said = " ".join(pipeline.explain().split())
    assert (
        "grayscale_before_jitter: grayscale(color_jitter(x)) = color_jitter(grayscale(x)) " in said
    )
    assert "normalize_before_jitter" in said
    assert said.count("(not used: refused: ") == 2


def test_boxes_go_along_to_the_bit():
    rows = sv.from_columns(
        {
            "photo": COLUMNS["photo"][:16],
            "boxes": [[[0.1, 0.2, 5.3, 4.7], [2.5, 1.1, 5.9, 5.9]]] * 16,
            "mask": [np.arange(h * w).reshape(h, w) % 7 for h, w in SIZES.astype(int).tolist()],
        }
    )
    scene = sv.image("photo", boxes="boxes", mask="mask").decode()
    chain = scene.flip().flip().grayscale(3).random_flip().to_float().center_crop(6).resize(6, 6)
    into = ("image", "boxes", "mask")
    pipeline = rows.derive(chain, into=into).select(*into)
    used = {outcome.rule.name for outcome in optimize(pipeline.plan)[1] if outcome.applied}
    assert used == {"crop_before_pixels"}  # flips of boxes are not undone to the bit
    assert_same_stream(pipeline, backends=("inline",), fresh_process=False, epochs=1)


def test_simclr_in_steps_of_their_own_is_one_chain_and_the_same_to_the_bit():
    photo = png(load_sample_image("flower.jpg")[::4, ::4])
    image = sv.image("image")
    pipeline = (
        sv.from_columns({"photo": [photo] * 9})
        .derive(image=sv.image("photo").decode())
        .derive(image=image.random_resized_crop(24))
        .derive(image=image.random_flip())
        .derive(image=image.color_jitter(0.8, 0.8, 0.8, 0.2))
        .derive(image=image.grayscale(3))
        .derive(image=image.gaussian_blur(11))
        .derive(image=image.normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        .select("image")
        .batch(4)
    )
    steps = [
        line for line in pipeline.explain().split("Plan as run")[1].splitlines() if "·" in line
    ]
    assert len(steps) == 2  # read, and one chain
    assert_same_stream(pipeline, backends=("inline", "threads"), workers=(2,), epochs=1)
