"""Fingerprints: equal meaning, equal hash, also in another process."""

from __future__ import annotations

import copy
import functools
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import silva as sv
from silva.plan.fingerprint import digest, fingerprint, opaque_parts

SCRIPT = """
import numpy as np, silva as sv
K = 3
def helper(v): return v * K
def make(c):
    table = {"a": np.arange(3), "b": (1, "x", frozenset({2, 1}))}
    rows = sv.from_columns({"x": range(5)})
    return rows.derive(y=lambda x, d=2: helper(x) + c + d + len(table)).batch(2)
print(make(%s).fingerprint)
"""


def in_new_process(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_fingerprints_are_the_same_in_every_process():
    assert in_new_process(SCRIPT % 1) == in_new_process(SCRIPT % 1)


def test_a_closure_constant_and_a_global_helper_count():
    one = in_new_process(SCRIPT % 1)
    assert in_new_process(SCRIPT % 2) != one
    assert in_new_process((SCRIPT % 1).replace("K = 3", "K = 4")) != one
    assert in_new_process((SCRIPT % 1).replace("v * K", "v + K")) != one
    assert in_new_process((SCRIPT % 1).replace("d=2", "d=3")) != one
    assert in_new_process((SCRIPT % 1).replace("range(5)", "range(6)")) != one


def test_comments_names_of_variables_elsewhere_and_line_numbers_do_not_count():
    one = in_new_process(SCRIPT % 1)
    assert in_new_process("\n\n# moved\nunused = 7\n" + SCRIPT % 1) == one


def test_options_that_say_how_do_not_count():
    rows = sv.from_columns({"x": range(5)})
    plain = rows.batch(2)
    assert rows.options(optimize=False).batch(2).fingerprint != ""
    assert fingerprint(rows.options(optimize=False).plan) == fingerprint(
        rows.options(optimize=True).plan
    )
    assert rows.options(shards=2).fingerprint == rows.options(shards=4).fingerprint
    assert plain.fingerprint != rows.batch(3).fingerprint


def test_what_cannot_be_hashed_is_named():
    import threading

    lock = threading.Lock()
    assert opaque_parts(lambda x: lock) == ["lock"]
    assert opaque_parts(lambda x: np.sin(x)) == []


def test_a_changed_pipeline_refuses_a_state_and_says_what_changed():
    import pytest

    def pipeline(k: int, size: int = 2) -> sv.Pipeline:
        return sv.from_columns({"x": range(9)}).derive(y=lambda x: x + k).batch(size)

    loader = pipeline(1).loader(backend="inline")
    next(iter(loader))
    state = loader.state_dict()
    pipeline(1).loader(backend="inline").load_state_dict(state)
    with pytest.raises(sv.StateError, match=r"code, constants or data of step 1, .derive y"):
        pipeline(2).loader(backend="inline").load_state_dict(state)
    with pytest.raises(sv.StateError, match=r"batch 2.*batch 3"):
        pipeline(1, 3).loader(backend="inline").load_state_dict(state)
    pipeline(2).loader(backend="inline").load_state_dict(state, allow_changed=True)


def test_a_state_loads_with_options_added_that_say_only_how():
    rows = sv.from_columns({"x": range(9)}).derive(y=lambda x: x)
    loader = rows.batch(2).loader(backend="inline")
    next(iter(loader))
    state = loader.state_dict()
    rows.options(optimize=False).batch(2).loader(backend="inline").load_state_dict(state)
    rows.batch(2).options(shards=4).loader(backend="inline").load_state_dict(state)


def test_text_within_a_comprehension_is_part_of_a_function():
    assert digest(lambda x: [v + "a" for v in x]) != digest(lambda x: [v + "b" for v in x])


def test_methods_of_a_dataclass_are_part_of_its_objects():
    def made(step):
        @dataclass(frozen=True)
        class Step:
            size: int

            def __call__(self, x):
                return step(x, self.size)

        return digest(Step(3))

    def plus(x, size):
        return x + size

    def times(x, size):
        return x * size

    assert made(plus) == made(plus)
    assert made(plus) != made(times)


def test_what_a_class_holds_is_part_of_its_methods():
    def made(value):
        class Step:
            HELD = value

            def __call__(self, x):
                return x + self.HELD

            @functools.cached_property
            def twice(self):
                return self.HELD * 2

        return digest(Step())

    held = [[1], {"a": 1}, {1, 2}, np.arange(3), np.float32(1), re.compile("a"), Path("a")]
    assert [made(value) for value in held] == [made(value) for value in copy.deepcopy(held)]
    assert (
        len({made(value) for value in [*held, [2], {"a": 2}, np.arange(4), re.compile("b")]}) == 11
    )


def test_a_cached_property_is_part_of_its_class():
    def made(function):
        return digest(type("Step", (), {"held": functools.cached_property(function)}))

    assert made(lambda self: 1) == made(lambda self: 1)
    assert made(lambda self: 1) != made(lambda self: 2)


def test_a_value_that_is_nested_too_deep_is_known_by_its_address() -> None:
    """Costs are kept under the sketch of a source whenever there is enough to keep."""
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    rows = sv.from_items([{"v": deep}])
    assert rows.fingerprint == rows.fingerprint
    assert opaque_parts(deep)
    assert not opaque_parts([[[[1, 2], 3]]])
