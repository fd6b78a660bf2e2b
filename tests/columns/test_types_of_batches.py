"""A column's type in a batch is decided by the rows of the batch alone: whatever the blocks, and
whatever the rows before and after them are."""

from __future__ import annotations

import datetime
import decimal
import enum
import pickle
import random

import numpy as np
import pyarrow as pa
import pytest

from silva.columns import Column, Ragged, Values, concat, from_arrow
from silva.columns.owned import owned
from silva.columns.serial.column_codec import decode_columns, encode_columns
from silva.errors import ColumnError
from silva.physical.stage.batch_value import column_batch
from silva.testing import digest


class Colour(enum.IntEnum):
    RED = 1


def _masked(n: int) -> np.ma.MaskedArray:
    return np.ma.MaskedArray(np.arange(n), mask=np.arange(n) % 2 == 0)


PYTHON = [
    [True, False],
    [1, 2, -3],
    [1.5, -0.0, float("nan")],
    [2j],
    [2**70, 2**63, -(2**63)],
    [None],
    ["a", "", "é"],
    [b"x", b""],
    [[1, 2], [3, 4], [5], []],
    [[1.5, 2.0], [0.5, 1.0]],
    [[], []],
    [["a"], ["b", "c"]],
    [[1, None], [None, 2]],
    [[None]],
    [[[1], [2, 3]], [[], [4]]],
    [[np.int16(1), np.int16(2)]],
    [(1, 2), (3,), ()],
    [{"k": 1}, {}],
    [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 2, 3)],
    [decimal.Decimal("1.50")],
    [Colour.RED],
    [np.int64(4), np.int64(5)],
    [np.float64(0.5), np.bool_(True)],
    [np.float32(0.5), np.float32(1)],
    [np.uint8(3), np.int8(-1), np.uint64(2**63)],
    [np.datetime64("2020-01-01"), np.datetime64("2020-01-01T00", "s")],
    [np.timedelta64(3, "s"), np.timedelta64(3, "D")],
    [np.str_("ab"), np.bytes_(b"ab")],
    [np.array(3), np.array(4, np.int32), np.array(0.5)],
    [np.array("abc"), np.array("ab")],
    [np.array("2020-01-01", "M8[D]")],
    [np.arange(2), np.arange(2), np.arange(3)],
    [np.arange(2, dtype=np.float32), np.zeros(0, np.int16)],
    [np.arange(3, dtype=">i4")],
    [np.zeros((2, 3), np.uint8), np.ones((2, 3), np.uint8)],
    [np.asfortranarray(np.arange(6.0).reshape(2, 3))],
    [np.zeros((1, 2))],
    [np.array([1, "a", None], dtype=object)],
    [np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])],
    [_masked(3), _masked(3)],
]
ARROW = [
    pa.array([1, 2, None, 4], pa.int64()),
    pa.array([1, None], pa.int8()),
    pa.array([0.5, None, 2.0], pa.float32()),
    pa.array([True, None]),
    pa.array([None, None], pa.float64()),
    pa.nulls(2),
    pa.array(["a", None, "b"]),
    pa.array(["a", "b", "a", "b"]).dictionary_encode(),
    pa.array([1, 2, 1, 1], pa.int16()).dictionary_encode(),
    pa.array([b"a", None], pa.large_binary()),
    pa.array([b"ab", b"cd"], pa.binary(2)),
    *(pa.array([[1, 2], [3, 4], [], None, [5]], pa.list_(inner)) for inner in
      (pa.int64(), pa.int32(), pa.float32(), pa.float64(), pa.uint8())),
    pa.array([[1, 2], [3, 4]], pa.large_list(pa.int32())),
    pa.array([[1, None], [2, 3], [None], []], pa.list_(pa.int16())),
    pa.array([["a", "b"], [], None, ["c", None]], pa.list_(pa.string())),
    pa.array([["a"], ["a"], []], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    pa.array([[[1], [2, 3]], [], [[]], None], pa.list_(pa.list_(pa.int32()))),
    pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
    pa.array([[1, 2], [None, 4], None], pa.list_(pa.int64(), 2)),
    pa.array([[[1, 2], [3, 4]], [[5, 6], None], [[7, None], [8, 9]]],
             pa.list_(pa.list_(pa.int8(), 2), 2)),
    pa.array([[[1, 2]], [], [[3, None], [4, 5]], [None], None], pa.list_(pa.list_(pa.int8(), 2))),
    pa.array([["a", "b"], None], pa.list_(pa.string(), 2)),
    pa.array([datetime.date(2020, 1, 1), None]),
    pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("us")),
    pa.array([decimal.Decimal("1.5"), None]),
    pa.array([[{"a": 1}], []]),
]  # fmt: skip
CHUNKS = [*PYTHON, *ARROW]


def _column(chunk: list | pa.Array, start: int, stop: int) -> Column:
    """These rows of a chunk, as a block that begins and ends just there."""
    if isinstance(chunk, list):
        return Values(chunk[start:stop]).settled()
    return from_arrow(chunk.slice(start, stop - start))


def _blocks(chunks: list, rng: random.Random) -> list[Column]:
    """The chunks' rows in blocks that end anywhere."""
    found: list[Column] = []
    for chunk in chunks:
        cuts = sorted(rng.sample(range(1, len(chunk)), rng.randrange(len(chunk))))
        found += [_column(chunk, a, b) for a, b in zip([0, *cuts], [*cuts, len(chunk)])]  # noqa: B905
    return found


def _joined(blocks: list[Column], rng: random.Random) -> Column:
    """All blocks as one, joined in any order of joining, and moved about in between."""
    blocks = list(blocks)
    while len(blocks) > 1:
        at = rng.randrange(len(blocks) - 1)
        count = rng.randint(2, 3)
        blocks[at : at + count] = [_moved(concat(blocks[at : at + count]), rng)]
    return _moved(blocks[0], rng)


def _moved(column: Column, rng: random.Random) -> Column:
    """The same rows after what may happen to a block on its way."""
    match rng.randrange(8):
        case 0:
            return column.settled()
        case 1:
            return owned(column)
        case 2:
            order = np.array(rng.sample(range(len(column)), len(column)))
            return column.take(order).take(np.argsort(order))
        case 3:
            longer = concat([column, column, column.slice(0, 1)])
            return longer.slice(len(column), 2 * len(column))
        case 4:
            return pickle.loads(pickle.dumps(column, protocol=5))  # noqa: S301  written just now
        case 5:
            try:
                return decode_columns(encode_columns({"x": column}))["x"]
            except ColumnError:
                return column
    return column


def _shown(column: Column, pad: object = None) -> object:
    try:
        return column_batch("x", column, pad)
    except ColumnError as error:
        return str(error)


def _check(chunks: list, seed: int) -> None:
    rng = random.Random(seed)
    rows = [_column(chunk, i, i + 1) for chunk in chunks for i in range(len(chunk))]
    whole = _joined(_blocks(chunks, rng), rng)
    for _ in range(4):
        start = rng.randrange(len(rows))
        stop = rng.randint(start + 1, min(len(rows), start + 4))
        alone, part = concat(rows[start:stop]), whole.slice(start, stop)
        for pad in (None, -1):
            one, other = _shown(alone, pad), _shown(part, pad)
            assert digest(one) == digest(other), (seed, start, stop, pad, one, other)
        assert digest(alone.rows()) == digest(part.rows()), (seed, start, stop)
    picked = np.array([rng.randrange(len(rows)) for _ in range(rng.randint(1, 4))])
    one, other = _shown(concat([rows[i] for i in picked])), _shown(whole.take(picked))
    assert digest(one) == digest(other), (seed, picked.tolist(), one, other)


@pytest.mark.parametrize("number", range(len(CHUNKS)))
def test_a_chunk_gives_one_batch_wherever_it_is_cut(number: int) -> None:
    for seed in range(8):
        _check([CHUNKS[number]], seed)


def test_rows_of_any_two_kinds_keep_their_types_side_by_side() -> None:
    """Every pair once, in an order that another run can repeat."""
    for first in range(len(CHUNKS)):
        second = (first * 7 + 3) % len(CHUNKS)
        _check([CHUNKS[first], CHUNKS[second]], first)


@pytest.mark.rest
def test_rows_of_any_kinds_keep_their_types_in_any_company() -> None:
    for seed in range(4000):
        rng = random.Random(seed)
        _check([rng.choice(CHUNKS) for _ in range(rng.randint(2, 5))], seed)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_a_null_among_arrays_without_elements_stays_a_null(shape: tuple[int, ...]):
    rows = [np.zeros(shape, np.float32), None, np.zeros(shape, np.float32)]
    batch = column_batch("x", Values(rows), None)
    assert batch.dtype == object
    assert [row if row is None else row.shape for row in batch] == [shape, None, shape]


M = np.ma.array


@pytest.mark.parametrize(
    ("rows", "pad", "expected"),
    [
        ([M([1, 2]), M([3])], 0, [[1, 2], [3, 0]]),
        ([M([1, 2], mask=[0, 1]), M([3])], 0, [[1, None], [3, 0]]),
        ([M([1, 2], mask=[0, 1]), [3]], 0, [[1, None], [3, 0]]),
        ([[1, None], [3]], 0, [[1, None], [3, 0]]),
        ([[1, 2], None, [3]], 0, [[1, 2], [None, None], [3, 0]]),
        ([[2**70, 1], [3]], 0, [[2**70, 1], [3, 0]]),
        ([["a", "b"], ["c"]], "", [["a", "b"], ["c", ""]]),
        ([M([[1, 2]], mask=[[0, 1]]), np.array([[3]])], 0, [[[1, None]], [[3, 0]]]),
    ],
    ids=str,
)
def test_lists_and_vectors_of_every_kind_are_padded(rows, pad, expected):
    for column in (Values(rows), Values([*rows, *rows]).slice(0, len(rows))):
        found = column_batch("x", column, pad)
        assert isinstance(found, np.ndarray)
        assert found.ndim == np.ndim(expected)
        assert found.tolist() == expected


@pytest.mark.parametrize("rows", [[["a"], ["b", "c"]], [[[1], [2, 3]], [[4]]], [[{}], []]], ids=str)
def test_what_cannot_be_padded_is_refused(rows):
    with pytest.raises(ColumnError, match=r"column 'x': .*pad"):
        column_batch("x", Values(rows), 0)


def test_a_masked_array_of_which_nothing_is_missing_is_batched_as_an_array():
    assert isinstance(Values([M([1, 2]), M([3])]).batch(), Ragged)
    assert type(Values([M([1, 2]), M([3, 4])]).batch()) is np.ndarray


@pytest.mark.parametrize("count", [63, 64, 1000])
@pytest.mark.parametrize(
    "last", [True, -1, 2**63 - 1, 2**63, -(2**63) - 1, 0.5, float("nan"), -0.0]
)
def test_many_numbers_settle_as_each_would_alone(count, last):
    """Long lists are packed at once, short ones one by one."""
    for items in ([last] * count, [type(last)(1)] * (count - 1) + [last]):
        found = Values(items).settled().rows()
        assert [digest(row) for row in found] == [digest(row) for row in items]
