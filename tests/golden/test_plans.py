"""A change that is not meant to change plans changes none."""

from __future__ import annotations

import json

import pytest
from golden_pipelines import PIPELINES
from write_plans import FILE, structure

GOLDEN = {line["name"]: line for line in map(json.loads, FILE.read_text().splitlines())}


@pytest.mark.parametrize("name", PIPELINES)
def test_rules_nodes_and_steps_are_those_written_down(name):
    assert {"name": name, **structure(PIPELINES[name]())} == GOLDEN[name]
