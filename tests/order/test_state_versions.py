"""States that an earlier silva has written load today, and go on with the same batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from state_shapes import fine, fragile, shapes

import silva as sv
from silva.testing import stream

FILES = sorted((Path(__file__).parents[1] / "golden" / "states").glob("*/*.json"))
POLICIES = {"raise": "raise", "skip": sv.Skip(at_most=50)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_state_of_an_earlier_version_goes_on_with_the_same_batches(file, folder):
    golden = json.loads(file.read_text())
    policy = golden["policy"]
    pipeline = shapes(folder, fine if policy == "raise" else fragile)[golden["shape"]]()
    for saved in golden["states"]:
        loader = pipeline.loader(backend="inline", on_error=POLICIES[policy])
        # The fingerprint covers versions of libraries, which are others elsewhere.
        loader.load_state_dict(saved["state"], allow_changed=True)
        assert stream(loader) == saved["rest"], saved["state"]["cursors"]


def test_there_are_golden_states_of_every_shape(folder):
    found = {json.loads(file.read_text())["shape"] for file in FILES}
    assert found == shapes(folder).keys()


def test_counts_in_cursors_of_the_first_version_go_on_counting(folder):
    file = next(file for file in FILES if file.stem == "plain-skip")
    saved = json.loads(file.read_text())["states"][2]["state"]
    loader = shapes(folder, fragile)["plain"]().loader(backend="inline", on_error=sv.Skip())
    loader.load_state_dict(saved, allow_changed=True)
    state = loader.state_dict()
    assert state["silva"] == 2
    assert state["failures"]["0"] == saved["cursors"]["0"]["failed"]


def test_a_state_of_a_later_version_is_refused():
    loader = sv.from_columns({"x": range(9)}).batch(2).loader(backend="inline")
    with pytest.raises(sv.StateError, match="version 3"):
        loader.load_state_dict({**loader.state_dict(), "silva": 3})
