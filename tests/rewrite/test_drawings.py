"""Each rule opens with its motive, the plan before and after, where it must not fire, and its law;
what it draws is what it does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import torchvision_here
from trained_tokenizers import byte_level

import silva as sv
from silva.plan.law import laws
from silva.plan.node import Node
from silva.plan.show import show_plan
from silva.rewrite import rules
from silva.rewrite.rules import (
    drop_unread,
    fast_tokenizer,
    filter_before_explode,
    filter_before_rename,
    filter_early,
    filter_into_concat,
    fold_constants,
    merge_derives,
    read_stored,
    recognise,
    share,
    shuffle_early,
    use_law,
)


def f(path: Any) -> Any:
    return path


def decode(bytes: Any) -> Any:
    return bytes


def split(bytes: Any) -> Any:
    return [bytes]


def click(dwell: int) -> bool:
    return dwell > 10


def files() -> sv.Pipeline:
    return sv.from_columns({"path": ["a", "b"], "bytes": [b"a", b"b"], "label": [0, 1]})


def stored(folder: Path) -> sv.Pipeline:
    table = sv.Table.create(str(folder / "t"), pa.table({"dwell": [1, 20]}))
    table.derive(clicked=click)
    table.materialize("clicked")
    return sv.read_table(str(folder / "t")).derive(clicked=click)


def transform() -> Any:
    v2 = torchvision_here.load()
    return v2.Compose([v2.ToImage(), v2.RandomCrop(224)])


def law(plan: Node) -> Any:
    return use_law.apply(next(law for law in laws() if law.name == "crop_before_pixels"), plan)


EXAMPLES: dict[ModuleType, Callable[[Path], sv.Pipeline]] = {
    fast_tokenizer: lambda _: sv.from_columns({"text": ["a"]}).derive(
        ids=sv.text("text").tokenize(byte_level(["green forest"], 400))
    ),
    drop_unread: lambda _: files().derive(label=f).derive(image=decode).batch(2).select("label"),
    filter_early: lambda _: files().derive(image=decode).filter(sv.col("label") >= 0),
    filter_before_explode: lambda _: (
        files().derive(path=split).explode("path").filter(sv.col("label") >= 0)
    ),
    filter_before_rename: lambda _: (
        files().derive(image=decode).rename(label="tag").filter(sv.col("tag") >= 0)
    ),
    filter_into_concat: lambda _: sv.concat([files().derive(image=decode)] * 2).filter(
        sv.col("label") >= 0
    ),
    fold_constants: lambda _: files().filter((sv.col("label") > 0) & True),
    merge_derives: lambda _: (
        files()
        .derive(raw=sv.image("bytes").decode())
        .derive(image=sv.image("raw").to_float())
        .select("image")
    ),
    read_stored: stored,
    recognise: lambda _: files().derive(image=transform(), reads="bytes"),
    share: lambda _: (
        sv.from_columns({"bytes": [b"a", b"b"]})
        .derive(large=sv.image("bytes").decode().to_chw())
        .derive(small=sv.image("bytes").decode().to_float())
    ),
    shuffle_early: lambda _: (
        files().filter(sv.col("label") >= 0).shuffle(seed=0, kind="global").derive(image=decode)
    ),
    use_law: lambda _: files().derive(
        image=sv.image("bytes").decode().grayscale().center_crop(224)
    ),
}


def test_every_rule_has_a_drawing() -> None:
    folder = Path(str(rules.__file__)).parent
    assert {Path(str(rule.__file__)) for rule in EXAMPLES} == set(folder.glob("[!_]*.py"))


@pytest.mark.parametrize("rule", EXAMPLES, ids=lambda rule: rule.__name__.rpartition(".")[2])
def test_a_rule_opens_with_its_motive_plans_limits_and_law(rule: ModuleType) -> None:
    parts = r"^\S.*\.\n\nMotive: .*\n\n    .*→.*\nMust not fire: .*\n\nLaw.*: "
    assert re.match(parts, str(rule.__doc__), re.DOTALL)


@pytest.mark.parametrize("rule", EXAMPLES, ids=lambda rule: rule.__name__.rpartition(".")[2])
def test_a_rule_does_what_it_draws(rule: ModuleType, tmp_path: Path) -> None:
    written = EXAMPLES[rule](tmp_path).plan
    made = law(written) if rule is use_law else rule.apply(written)
    assert (shown(written), shown(made.plan)) == drawing(str(rule.__doc__))


def shown(plan: Node) -> list[str]:
    """The plan as text, without what differs from machine to machine."""
    lines = [re.sub(r"  \[.*\]$", "", line) for line in show_plan(plan).split("\n")]
    return [re.sub(r"source .*", "source", line).strip() for line in lines]


def drawing(doc: str) -> tuple[list[str], list[str]]:
    """The plan on the left of the arrow and that on the right; or above and below it."""
    block = re.search(r"(?:^    .*\n)+", doc, re.MULTILINE)
    assert block is not None
    lines = block[0].rstrip().split("\n")
    bare = [i for i, line in enumerate(lines) if line.strip() == "→"]
    arrow = next(iter(bare), next(i for i, line in enumerate(lines) if "→" in line))
    if bare:
        halves = lines[:arrow], lines[arrow + 1 :]
    else:
        at = lines[arrow].index("→")
        halves = [line[:at] for line in lines], [line[at + 1 :] for line in lines]
    before, after = ([line.strip() for line in half if line.strip()] for half in halves)
    return before, after
