"""Columns of a table of silva 0.1 keep their definitions and what is stored of them."""

from __future__ import annotations

import shutil

import pytest
from test_pipelines import SAME_VERSIONS, VERSIONS
from write_function_table import HERE, STEPS

import silva as sv


def test_columns_derived_again_are_the_same_and_what_is_stored_is_read(tmp_path):
    if not SAME_VERSIONS:
        pytest.skip(f"functions were written down with {VERSIONS}")
    shutil.copytree(HERE, tmp_path / "table")
    table = sv.Table.open(tmp_path / "table")
    before = table.version.number
    table = table.derive(**STEPS)
    assert table.version.number == before
    rows = table.read().head(9)
    assert [row["stored"] for row in rows] == [row["x"] + 1000 for row in rows]  # not today's
    assert [row["sum"] for row in rows] == [row["stored"] + min(row["x"], 5) for row in rows]
    assert all(row["x"] <= row["drawn"] < row["x"] + 1 for row in rows)
