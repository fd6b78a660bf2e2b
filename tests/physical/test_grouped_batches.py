"""Grouped batches of a block are those that are made one by one."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.columns import Array, Block, Column, Lists, Values
from silva.columns.dictionary import Dictionary
from silva.columns.number_runs import appearance, appearance_in_each
from silva.errors import ColumnError
from silva.physical.stage.batch_value import batch_value
from silva.physical.stage.grouped_batches import grouped_batches
from silva.testing import digest

ROWS = 60


def _columns(rng: np.random.Generator) -> dict[str, Column]:
    few = rng.integers(0, 5, ROWS)
    lists = Lists(Array(rng.integers(0, 9, 30)), np.array([0, 3, 3, 10, 20, 30]))
    missing = np.arange(ROWS) % 7 > 0
    return {
        "ints": Array(few - 2),
        "nulls": Array(few.astype(np.float32), missing),
        "matrix": Array(rng.random((5, 2, 3))[few]),
        "text": Dictionary(Values(list("abcde")), few, True),
        "lists": Dictionary(lists, few, True),
        "again": Dictionary(Array(np.array([1, 2, 1, 2, 1])), few),
        "mixed": Values([[1, "1", 1.0, None, (1,)][i] for i in few]),
        "plain lists": lists.take(few),
        "each": Array(np.arange(ROWS)),
        "read-only": _read_only(np.arange(ROWS)),
    }


def _read_only(data: np.ndarray) -> Array:
    data.flags.writeable = False
    return Array(data)


def _block(columns: dict[str, Column], places: bool = True) -> Block:
    return Block(columns, np.arange(ROWS) + 100, np.arange(ROWS) * 2 if places else None)


GROUPS: list[tuple[tuple[str, ...], ...]] = [
    *((((name,),)) for name in _columns(np.random.default_rng(0))),
    (("text", "lists"), ("ints",)),
    (("text", "again"), ("matrix", "nulls")),
    (("each", "lists"),),
]


@pytest.mark.parametrize("grouped", GROUPS, ids=str)
@pytest.mark.parametrize("size", [1, 7, 20, 60])
@pytest.mark.parametrize("pad", [None, 0])
def test_batches_made_together_are_those_made_one_by_one(grouped, size, pad):
    block = _block(_columns(np.random.default_rng(size)), places=pad is None)
    whole = block.slice(0, ROWS // size * size)
    found = list(grouped_batches(whole, size, pad, grouped))
    one_by_one = [
        batch_value(block.slice(at, at + size), pad, grouped) for at in range(0, len(whole), size)
    ]
    assert len(found) == len(one_by_one)
    for ours, expected in zip(found, one_by_one, strict=True):
        assert digest(ours) == digest(expected.values)
        assert list(ours) == list(expected.values)


def test_columns_of_a_group_share_one_index_and_batches_share_no_values():
    block = _block(_columns(np.random.default_rng(0)))
    first, second, *_ = grouped_batches(block, 20, None, (("matrix", "text"),))
    assert first["matrix"].inverse is first["text"].inverse
    before = digest(second)
    for value in first.values():
        data: Any = getattr(value, "values", value)
        if isinstance(data, np.ndarray) and data.dtype != object:
            data[...] = 0
    assert digest(second) == before


def _numbers(*columns: str) -> dict[str, Any]:
    """The first batch of a block of arrays, in which no group has been read."""
    data = np.array([7, 7, 3, 7, 0, 0, 0, 0])
    block = Block({"x": Array(data), "y": Array(data * 2)}, np.arange(8), None)
    return next(grouped_batches(block, 4, None, (columns,)))


def test_numbers_are_expanded_without_their_groups_and_have_them_when_they_are_read():
    x = _numbers("x")["x"]
    assert isinstance(x, sv.Grouped)
    assert (len(x), x.expand().tolist()) == (4, [7, 7, 3, 7])
    x.expand()[:] = 0
    assert (x.values.tolist(), x.offsets, x.inverse.tolist()) == ([7, 3], None, [0, 0, 1, 0])
    assert (type(x), len(x), x.expand().tolist()) == (sv.Grouped, 4, [7, 7, 3, 7])


@pytest.mark.parametrize("use", [repr, list, lambda x: x[2], lambda x: x.factor, digest])
def test_groups_of_numbers_may_be_read_in_any_way(use):
    read = sv.Grouped(np.array([7, 3]), None, np.array([0, 0, 1, 0]))
    assert use(_numbers("x")["x"]) == use(read)


def test_groups_of_numbers_are_copied_before_they_are_read():
    for other in (
        copy.copy(_numbers("x")["x"]),
        copy.deepcopy(_numbers("x")["x"]),
        dataclasses.replace(_numbers("x")["x"], offsets=None),
    ):
        assert type(other) is sv.Grouped
        assert (other.values.tolist(), other.inverse.tolist()) == ([7, 3], [0, 0, 1, 0])


def test_groups_of_numbers_cannot_be_assigned():
    x = _numbers("x")["x"]
    with pytest.raises(AttributeError):
        x.values = np.zeros(1)
    assert x.values.tolist() == [7, 3]
    with pytest.raises(AttributeError):
        x.values = np.zeros(1)


def test_numbers_of_one_group_share_their_index():
    batch = _numbers("x", "y")
    assert batch["x"].inverse is batch["y"].inverse


def test_groups_are_those_of_the_rows_before_the_consumer_changed_another_column():
    rows = sv.from_columns({"x": [1, 1, 2, 2]}).derive(y=sv.col("x"))
    (batch,) = rows.batch(4, grouped="y").head(1)
    batch["x"][:] = 5
    assert batch["y"].values.tolist() == [1, 2]


def test_batches_before_one_that_cannot_be_grouped_come_first():
    rows = [[i] for i in range(40)] + [{1}] * 20
    block = _block({"x": Values(rows)})
    batches = grouped_batches(block, 20, None, (("x",),))
    assert [len(next(batches)["x"]), len(next(batches)["x"])] == [20, 20]
    with pytest.raises(ColumnError, match="column 'x'"):
        next(batches)


def test_a_state_within_a_block_continues_with_the_same_grouped_batches():
    rows = sv.from_columns({"user": [i // 3 for i in range(100)], "x": range(100)})
    made = rows.batch(8, grouped="user")
    all_of_them = [digest(batch) for batch in made.loader(workers=0)]
    loader = made.loader(workers=0)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    state = loader.state_dict()
    loader.close()
    again = made.loader(workers=0)
    again.load_state_dict(state)
    assert [digest(batch) for batch in again] == all_of_them[5:]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "u4", "i8", "u8", "?"])
@pytest.mark.parametrize("wide", [3, 100, None])
def test_first_appearances_are_those_of_a_loop(dtype, wide):
    rng = np.random.default_rng(0)
    for size in (1, 2, 50, 1000):
        if dtype == "?":
            keys = rng.random(size) < 0.5
        else:
            least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
            keys = rng.integers(least, min(most, least + (wide or most)), size, dtype, True)
            keys = keys if size % 2 else most - (keys - least) if wide else keys
            keys = np.asarray(keys, dtype)
        first, number = appearance(keys)
        known: dict[int, int] = {}
        expected = [known.setdefault(key, len(known)) for key in keys.tolist()]
        assert number.tolist() == expected
        assert first.tolist() == [expected.index(i) for i in range(len(known))]
        assert first.dtype == number.dtype == np.int64


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "u8"])
@pytest.mark.parametrize("most", [3, 100, None])
@pytest.mark.parametrize("longest", [1, 2, 9])
def test_first_appearances_in_each_batch_are_those_of_the_batch_alone(dtype, most, longest):
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    for size in (1, 2, 7, 50):
        count = 20 * size
        least = 0 if most else int(info.min)
        keys = rng.integers(least, most or int(info.max), count, dtype, True)
        keys = np.repeat(keys, rng.integers(1, longest + 1, count))[:count]
        for given in (keys, np.sort(keys)):
            first, number, bounds = appearance_in_each(given, size)
            alone = [appearance(given[at : at + size]) for at in range(0, count, size)]
            assert number.tolist() == [n for _, found in alone for n in found.tolist()]
            assert first.tolist() == [
                i * size + n for i, (found, _) in enumerate(alone) for n in found.tolist()
            ]
            assert np.diff(bounds).tolist() == [len(found) for found, _ in alone]


def test_rows_are_distinct_as_they_are_before_padding():
    rows = sv.from_items([{"t": t} for t in ([], [0], [0, 0], [0])])
    (batch,) = rows.batch(4, pad=0, grouped="t").head(1)
    assert batch["t"].inverse.tolist() == [0, 1, 2, 1]
    assert batch["t"].values.tolist() == [[0, 0]] * 3


def test_reading_one_batch_finds_the_groups_of_its_neighbours_only():
    """The others of a block are grouped when one of them is read."""
    size, count = 1024, 32
    rows = Array(np.arange(size * count) // 3)
    made = grouped_batches(Block({"x": rows}, np.arange(len(rows))), size, None, (("x",),))
    first, second = (next(made)["x"] for _ in range(2))
    assert len(first.values) == 342
    third, *others = (batch["x"] for batch in made)

    def is_found(batch: sv.Grouped) -> bool:
        return "values" in vars(batch)

    assert is_found(first)
    assert is_found(third), "it was made after the groups were found"
    assert not is_found(second), "it was made before"
    assert not any(map(is_found, others[5:]))
    alone = [appearance(rows.data[at : at + size]) for at in range(0, len(rows), size)]
    for batch, (_, number) in zip([first, second, third, *others], alone, strict=True):
        assert isinstance(batch, sv.Grouped)
        assert batch.inverse.tolist() == number.tolist()
        assert batch.offsets is None
