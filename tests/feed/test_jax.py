"""Jax arrays: constant, so never in memory that the trainer may change."""

from __future__ import annotations

import numpy as np
import pytest

import silva as sv

jax = pytest.importorskip("jax")


def test_batches_are_jax_arrays_and_text_a_list() -> None:
    rows = sv.from_columns({"x": np.arange(4, dtype=np.float32), "s": list("abcd")}).batch(2)
    found = list(rows.loader(workers=0).to_jax())
    assert all(isinstance(batch["x"], jax.Array) for batch in found)
    assert [batch["x"].tolist() for batch in found] == [[0, 1], [2, 3]]
    assert found[0]["s"] == ["a", "b"]


def test_a_jax_array_does_not_change_with_the_batch() -> None:
    data = np.arange(4, dtype=np.float32)

    from silva.feed.jax import jax_batches

    (batch,) = jax_batches([{"x": data}])
    data += 1
    assert batch["x"].tolist() == [0, 1, 2, 3]


def test_ragged_rows_keep_their_offsets_on_the_device() -> None:
    rows = sv.from_items([{"t": [1, 2]}, {"t": [3]}]).batch(2)
    (batch,) = rows.loader(workers=0).to_jax(jax.devices()[0])
    assert batch["t"].values.tolist() == [1, 2, 3]
    assert batch["t"].offsets.tolist() == [0, 2, 3]


def test_missing_values_and_dates_are_refused_by_column() -> None:
    holes = sv.from_items([{"x": 1}, {"x": None}]).batch(2)
    with pytest.raises(sv.ColumnError, match="'x' has missing values"):
        list(holes.loader(workers=0).to_jax())
    dates = sv.from_columns({"d": np.array(["2026-01-01"], "M8[D]")}).batch(1)
    with pytest.raises(sv.ColumnError, match="column 'd' is"):
        list(dates.loader(workers=0).to_jax())
