"""Costs are remembered without reading all rows of a source first."""

from __future__ import annotations

import numpy as np

import silva as sv
from silva.io.arrays.memory import from_columns


def test_columns_in_memory_are_not_read_through_to_plan_them():
    """Its fingerprint reads every byte; before the first batch, nobody needs it."""
    rows = sv.from_columns({"x": np.zeros((64, 1000))}).derive(y=lambda x: x.sum()).batch(8)
    with rows.loader(epochs=2) as loader:
        for _ in range(2):
            list(loader)
        source = rows.plan.inputs[0].inputs[0].source
    assert "_fingerprint" not in vars(source)
    loader.state_dict()
    assert "_fingerprint" in vars(source)


def test_a_sketch_tells_sources_apart_by_size_type_and_first_rows():
    columns = {"x": np.arange(100)}
    first = from_columns(columns).sketch()
    assert from_columns({"x": np.arange(100)}).sketch() == first
    others = [
        {"y": columns["x"]},
        {"x": np.arange(101)},
        {"x": np.arange(100.0)},
        {"x": -columns["x"]},
    ]
    assert first not in [from_columns(other).sketch() for other in others]
