"""A cache folder of silva 0.1 is found and read by every later version."""

from __future__ import annotations

import shutil

import pytest
from test_pipelines import SAME_VERSIONS, VERSIONS
from write_cache import HERE, pipelines


@pytest.mark.parametrize("name", ["plain", "shuffled", "exploded"])
def test_rows_that_0_1_kept_are_not_computed_again(name, tmp_path):
    if not SAME_VERSIONS:
        pytest.skip(f"functions were written down with {VERSIONS}")
    folder = tmp_path / "cache"
    shutil.copytree(HERE, folder)
    with pipelines(folder)[name].loader(backend="inline") as loader:
        found = {int(x): int(y) for b in loader for x, y in zip(b["x"], b["y"], strict=True)}
    assert found
    assert all(y == x + 1000 for x, y in found.items())  # today it would be x itself
