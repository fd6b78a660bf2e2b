"""Drawn pipelines for tests of hypothesis."""

from __future__ import annotations

import warnings

from fuzz_case import Case
from fuzz_draw import draw
from hypothesis import note
from hypothesis import strategies as st

import silva as sv


@st.composite
def pipelines(draw_from, *without: str) -> sv.Pipeline:
    """Any pipeline whose rows do not fail; `without` are traits that it must not have."""
    case = any_case(draw_from(st.integers(0, 2**32)), "fails", "errors", *without)
    note(case.text)
    return case.build()


def any_case(seed: int, *without: str) -> Case:
    """The first case from `seed` on that has none of these traits, and that can be read."""
    while (case := draw(seed)).refused or case.traits & set(without) or not _can_be_read(case):
        seed += 1
    return case


def _can_be_read(case: Case) -> bool:
    """Whether it is no mistake: one that silva refuses is a case for the fuzzer alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for _ in case.build().loader(backend="inline"):
                pass
        except sv.SilvaError:
            return False
    return True
