"""Batches as bytes and back: equal in kind, type, shape and bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from silva.columns.ragged import Grouped, Ragged
from silva.columns.serial.batch_codec import decode_batch, encode_batch
from silva.errors import ColumnError
from silva.testing import digest

kinds = st.sampled_from(["u1", "i8", "<f4", "f8", "?", "c8", "U3", "M8[s]"])
arrays = kinds.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, min_side=0)))
lists = st.lists(st.integers(0, 4), max_size=5).map(lambda lengths: np.cumsum([0, *lengths]))
ragged = lists.map(lambda offsets: Ragged(np.arange(offsets[-1], dtype="f4"), offsets))
plain = st.none() | st.text() | st.integers() | st.floats(allow_nan=False) | st.binary()
values = arrays | ragged | plain | st.lists(plain) | st.dictionaries(st.text(), plain)


@given(st.dictionaries(st.text(), values))
def test_any_batch_comes_back(batch):
    again = decode_batch(bytearray(encode_batch(batch)))
    assert list(again) == list(batch)
    assert digest(again) == digest(batch)
    for name, value in batch.items():
        if isinstance(value, np.ndarray):
            assert again[name].dtype == value.dtype
            assert again[name].flags.writeable


def test_nested_lists_objects_and_tensors_come_back():
    inner = Ragged(np.arange(4), np.array([0, 1, 1, 4]))
    objects = np.array(["a", None, "c"], dtype=object)
    batch = {"r": Ragged(inner, np.array([0, 2, 3])), "o": objects, "t": torch.ones(2, 3)}
    again = decode_batch(bytearray(encode_batch(batch)))
    assert [[x.tolist() for x in row] for row in again["r"]] == [[[0], []], [[1, 2, 3]]]
    assert again["o"].tolist() == ["a", None, "c"]
    assert torch.equal(again["t"], batch["t"])


def test_columns_that_share_an_index_share_it_again():
    index = np.array([0, 0, 1])
    one = Grouped(np.array([5, 6, 7]), np.array([0, 2, 3]), index)
    other = Grouped(np.array([1.0, 2.0]), None, index)
    again = decode_batch(bytearray(encode_batch({"one": one, "other": other})))
    assert again["one"].inverse is again["other"].inverse
    assert [row.tolist() for row in again["one"]] == [[5, 6], [5, 6], [7]]
    assert again["other"].expand().tolist() == [1.0, 1.0, 2.0]


@pytest.mark.parametrize("value", [object(), torch.ones(2, dtype=torch.bfloat16), {1, 2}])
def test_what_cannot_be_sent_is_named(value):
    with pytest.raises(ColumnError, match="column 'x'"):
        encode_batch({"x": value})


def test_masks_and_lists_of_any_depth_come_back():
    hidden = np.ma.MaskedArray([1, 2, 3], mask=[0, 1, 0])
    inner = Ragged(np.arange(4), np.array([0, 1, 1, 4]))
    middle = Ragged(inner, np.array([0, 2, 3]))
    batch = {"x": hidden, "deep": Ragged(middle, np.array([0, 1, 2]))}
    again = decode_batch(bytearray(encode_batch(batch)))
    assert again["x"].tolist() == [1, None, 3]
    lists = [[[row.tolist() for row in rows] for rows in deep] for deep in again["deep"]]
    assert lists == [[[[0], []]], [[[1, 2, 3]]]]
