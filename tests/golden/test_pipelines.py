"""Fingerprints and states that silva 0.1 wrote down hold in every later version."""

from __future__ import annotations

import json

import pytest
from golden_pipelines import FUNCTIONS, PIPELINES
from write_pipelines import FILE, digest, versions

VERSIONS, *GOLDEN = map(json.loads, FILE.read_text().splitlines())
BY_NAME = {golden["name"]: golden for golden in GOLDEN}
SAME_VERSIONS = versions() == VERSIONS


def built(name):
    if name in FUNCTIONS and not SAME_VERSIONS:
        pytest.skip(f"functions were written down with {VERSIONS}")
    return PIPELINES[name]()


def test_every_pipeline_was_written_down():
    assert len(BY_NAME) >= 80
    assert list(BY_NAME) == list(PIPELINES)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_fingerprint_is_that_of_0_1(name):
    assert built(name).fingerprint == BY_NAME[name]["fingerprint"]


@pytest.mark.parametrize("name", PIPELINES)
def test_a_state_of_0_1_goes_on_as_it_did_there(name):
    pipeline, golden = built(name), BY_NAME[name]
    for number, state in golden["states"].items():
        loader = pipeline.loader(backend="inline")
        loader.load_state_dict(state)
        rest = [digest(batch) for batch in loader]
        expected = golden["batches"][int(number) :]
        if name.startswith(("image", "audio", "close")):  # pixels depend on the processor
            assert len(rest) == len(expected)
        else:
            assert rest == expected
