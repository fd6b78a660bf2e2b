"""Equal values have equal bytes, whatever stands in the padding of their type."""

from __future__ import annotations

import numpy as np
import pytest

import silva as sv
from silva.columns import Array, Values
from silva.columns.codes import codes
from silva.columns.padding import bytes_of, without_padding
from silva.planner.compare_blocks import same
from silva.testing import digest

ALIGNED = np.dtype([("a", "u1"), ("b", "f8"), ("c", "g", (2,))], align=True)


def twice(dtype, shape=(3,)):
    """The same values twice, with other bytes in the padding."""
    made = []
    for filling in (0, 255):
        array = np.frombuffer(bytearray([filling]) * (int(np.prod(shape)) * dtype.itemsize), dtype)
        array = array.reshape(shape)
        if dtype.names:
            for name in dtype.names:
                array[name] = 0.0  # of each item all bytes that count are written
                array[name] = 1
        else:
            array[...] = [0, 1, 2][: shape[0]]
        made.append(array)
    if np.dtype("g").itemsize > 10 and np.finfo("g").nmant == 63:  # where numpy copies 16 bytes
        for field in made[1:]:
            _spoil(field)
    return made


def _spoil(array):
    for view in [array] if not array.dtype.names else [array[n] for n in array.dtype.names]:
        if view.dtype.char in "gG":
            for place in np.ndindex(view.shape):
                row = view[place[:-1]] if view.ndim > 1 else view
                raw = row[place[-1] : place[-1] + 1].view("g").view(np.uint8).reshape(-1, 16)
                raw[:, 10:] = 7


DTYPES = [np.dtype("g"), np.dtype("G"), ALIGNED]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_arrays_have_equal_digests_and_fingerprints(dtype):
    one, other = twice(dtype)
    assert (one == other).all()
    assert bytes_of(one) == bytes_of(other)
    assert digest({"x": one}) == digest({"x": other})
    assert same(one, other)
    prints = {sv.from_columns({"x": array}).fingerprint for array in (one, other)}
    assert len(prints) == 1
    captured = {sv.from_columns({"x": [1]}).derive(y=adds(a[0])).fingerprint for a in (one, other)}
    assert len(captured) == 1


def adds(constant):
    return lambda x: (x, constant)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_rows_have_one_code(dtype):
    one, other = twice(dtype)
    assert codes(Array(np.concatenate([one, other])))[:3].tolist() == (
        codes(Array(np.concatenate([one, other])))[3:].tolist()
    )
    assert codes(Values([one, other, one[:2]])).tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", ["i4", "f8", "U3", "S2", "M8[s]", "?", "c16"])
def test_an_array_without_padding_is_left_as_it_is(dtype):
    array = np.zeros(3, dtype)
    assert without_padding(array) is array
