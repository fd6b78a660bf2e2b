"""What `silva.testing.digest` tells apart: all that a batch may differ in."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch

import silva as sv
from silva.testing import digest


def of_objects(*items):
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made


UNLIKE = {
    "a Python int": 1,
    "a numpy int": np.int64(1),
    "a small one": np.int32(1),
    "a bool": True,
    "a float": 1.0,
    "text": "1",
    "bytes": b"1",
    "a list": [1],
    "a tuple": (1,),
    "an array": np.array([1]),
    "of one more dimension": np.array([[1]]),
    "of another width": np.array([1], dtype=np.int32),
    "of another byte order": np.array([1], dtype=">i8"),
    "of objects": of_objects(1),
    "of numpy objects": of_objects(np.int64(1)),
    "of lists": of_objects([1]),
    "of tuples": of_objects((1,)),
    "of objects in two dimensions": np.array([[1]], dtype=object),
    "with a mask": np.ma.array([1], mask=[False]),
    "with another mask": np.ma.array([1], mask=[True]),
    "small, with a mask": np.ma.array([1], mask=[False], dtype=np.int32),
    "of moments": np.array([1], dtype="datetime64[s]"),
    "of other moments": np.array([1], dtype="datetime64[ms]"),
    "of fields": np.array([(1,)], dtype=[("a", np.int64)]),
    "of other fields": np.array([(1,)], dtype=[("b", np.int64)]),
    "ragged": sv.Ragged(np.array([1]), np.array([0, 1])),
    "ragged, small": sv.Ragged(np.array([1], dtype=np.int8), np.array([0, 1])),
    "ragged, with a mask": sv.Ragged(np.ma.array([1]), np.array([0, 1])),
    "grouped": sv.Grouped(np.array([1]), None, np.array([0])),
    "grouped lists": sv.Grouped(np.array([1]), np.array([0, 1]), np.array([0])),
    "a tensor": torch.ones(1, dtype=torch.int64),
    "a small tensor": torch.ones(1, dtype=torch.int32),
    "nested": [[1], 2],
    "nested otherwise": [[1, 2]],
    "a dict": {"a": 1, "b": 2},
    "in another order": {"b": 2, "a": 1},
    "with other keys": {1: 1, "b": 2},
    "nothing": None,
    "no array": np.array([], dtype=np.int64),
    "no array of floats": np.array([], dtype=np.float64),
    "no rows": np.zeros((0, 2), dtype=np.int64),
    "no columns": np.zeros((2, 0), dtype=np.int64),
}


def test_whatever_differs_in_a_type_a_shape_or_a_byte_has_another_digest():
    found = {name: digest({"x": value}) for name, value in UNLIKE.items()}
    alike = [pair for pair in combinations(found, 2) if found[pair[0]] == found[pair[1]]]
    assert alike == []


def test_equal_values_have_one_digest():
    rows = np.arange(6).reshape(2, 3)
    assert digest(rows.T) == digest(np.ascontiguousarray(rows.T))
    assert digest({"x": of_objects([1], None)}) == digest({"x": of_objects([1], None)})
    assert digest(np.ma.array([1, 2], mask=[0, 1])) == digest(np.ma.array([1, 9], mask=[0, 1]))
    assert digest(torch.arange(2000)) != digest(torch.arange(2000).flip(0))
