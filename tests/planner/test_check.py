"""Rewrites that rest on numbers are tried on rows of the run; what is wrong is left out."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_sample_image

import silva as sv
from silva.plan import expr
from silva.plan.show import show_plan
from silva.testing import digest, stream

pytestmark = pytest.mark.usefixtures("forget_rules")


def _renamed(op: str, changed: str) -> sv.Law:
    """Claims that two operators are the same."""

    def rewrite(call: expr.Call) -> expr.Term | None:
        return replace(call, op=changed) if call.op == op else None

    name = f"{op}_is_{changed}"
    return sv.Law(name, f"{op} = {changed}", rewrite, "exact", "almost everywhere")


def _pipeline(rows: int = 400) -> sv.Pipeline:
    numbers = {"x": np.arange(rows), "z": np.arange(rows) % 7 + 1.5}
    return (
        sv.from_columns(numbers)
        .derive(a=sv.col("x") + sv.col("z"))
        .derive(b=sv.col("x") * sv.col("z"))
        .derive(c=sv.col("a") - sv.col("b"))
        .batch(8)
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_law_that_is_wrong_is_found_on_the_first_rows(workers: int) -> None:
    expected = stream(_pipeline().loader(workers=0))
    wrong = sv.register_law(_renamed("multiply", "divide"))
    with _pipeline(4000).loader(workers=workers) as loader:
        _read_until_checked(loader)
        outcome = next(o for o in loader.outcomes if o.rule.name == wrong.name)
        assert not outcome.applied
        assert "b: " in (outcome.why or "")
        assert "differ" in (outcome.why or "")
        assert wrong.name in str(loader.explain())
    assert stream(_pipeline().loader(workers=0)) == expected


def _read_until_checked(loader: sv.Loader, use: Callable[[Any], Any] = digest) -> None:
    """Reads an epoch, and waits for the check that runs beside it."""
    for batch in loader:
        use(batch)
        for thread in threading.enumerate():
            if thread.name == "silva-check":
                thread.join(60)
    assert not any(decision.pending for decision in loader.facts().decisions)


def test_the_one_that_is_wrong_is_found_among_others() -> None:
    def swapped(call: expr.Call) -> expr.Term | None:
        first, second = call.args if call.op == "add" else (None, None)
        later = isinstance(first, expr.Col) and isinstance(second, expr.Col)
        if not later or first.name < second.name:  # type: ignore[union-attr]
            return None
        return replace(call, args=(second, first))

    right = sv.register_law(sv.Law("sorted_sum", "x + y = y + x", swapped, "exact", "nowhere"))
    wrong = sv.register_law(_renamed("subtract", "add"))
    pipeline = (
        sv.from_columns({"x": np.arange(800), "z": np.arange(800) * 2})
        .derive(a=sv.col("z") + sv.col("x"), b=sv.col("z") - sv.col("x"))
        .batch(8)
    )
    expected = stream(pipeline.options(optimize=False).loader(workers=0))
    with pipeline.loader(workers=0) as loader:
        assert stream(loader) == expected
        applied = {o.rule.name: o.applied for o in loader.outcomes}
        assert applied[right.name]
        assert not applied[wrong.name]
        repeated = show_plan(loader._planner._plain)  # by which a block that fails is run again
        assert "b = z - x" in repeated


def test_the_trainer_may_change_its_batches_meanwhile() -> None:
    pipeline = (
        sv.from_columns({"x": np.arange(800)})
        .derive(y=sv.num("x").clip(0, 900).clip(0, 700))
        .batch(4)
    )

    def change(batch: Any) -> None:
        batch["y"] += 1

    with pipeline.loader(workers=2) as loader:
        _read_until_checked(loader, change)
        assert "clip_twice" in {d.name for d in loader.facts().decisions if d.applied}


def test_how_far_close_laws_are_is_measured() -> None:
    photo = load_sample_image("flower.jpg")[:256, :256]
    images = np.stack([np.roll(photo, i * 7, axis=0) for i in range(24)])
    (jpegs,) = (
        sv.from_columns({"image": images})
        .derive(bytes=sv.image("image").encode("jpeg", quality=95))
        .select("bytes")
        .batch(24)
    )
    pipeline = (
        sv.from_items([{"bytes": data} for data in jpegs["bytes"]])
        .derive(image=sv.image("bytes").decode().grayscale())
        .select("image")
        .options(fidelity="close")
        .batch(4)
    )
    with pipeline.loader(workers=0) as loader:
        stream(loader)
        state = loader.state_dict()
        assert "gray_decode" in state["close"]
        (checked,) = [d for d in loader.facts().decisions if d.kind == "check"]
        (note,) = checked.notes
        found = re.fullmatch(r"image: 4 of 4 rows differ, by at most (\d+), on average .*", note)
        assert found is not None, note
        assert 0 < int(found[1]) <= 16
    other = pipeline.options(fidelity="close", disable=["gray_decode"])
    with pytest.raises(sv.StateError, match="gray_decode"):
        other.loader(workers=0).load_state_dict(state)


def test_a_rewrite_that_cannot_be_run_is_left_out(monkeypatch) -> None:
    from silva.planner import check_rewrites as check

    sv.register_law(_renamed("multiply", "divide"))

    def breaks(*given: object) -> None:
        raise RuntimeError("cannot be compared")

    monkeypatch.setattr(check, "differences_of_plans", breaks)
    expected = stream(_pipeline().options(optimize=False).loader(workers=0))
    with _pipeline().loader(workers=2) as loader:
        assert stream(loader) == expected
        _read_until_checked(loader)
        (refused,) = [d for d in loader.facts().decisions if d.name == "multiply_is_divide"]
        assert "cannot be compared" in (refused.why_not or "")
