"""Blocks that fill a batch are join_adjacent without a copy, and never write over each other."""

from __future__ import annotations

import numpy as np

import silva as sv
from silva.columns import Array, concat, empty_rows
from silva.columns.allocation import BatchBuffer, BatchSlot, filling, join_adjacent
from silva.testing import cut_blocks


def test_blocks_of_one_batch_are_joined_in_place():
    buffer = BatchBuffer(6)
    parts = []
    for start, rows in ((0, 2), (2, 3), (5, 1)):
        with filling(BatchSlot(buffer, start, rows)):
            part = empty_rows(rows, (4,), np.int64)
        part[:] = start
        parts.append(Array(part))
    whole = concat(parts)
    assert np.shares_memory(whole.data, parts[0].data)
    assert whole.data[:, 0].tolist() == [0, 0, 2, 2, 2, 5]
    del parts
    assert whole.data[:, 3].tolist() == [0, 0, 2, 2, 2, 5]


def test_arrays_of_other_shapes_and_other_rows_lie_elsewhere():
    buffer = BatchBuffer(4)
    with filling(BatchSlot(buffer, 0, 2)):
        first, second = empty_rows(2, (4,), np.int64), empty_rows(2, (4,), np.int64)
        alone = empty_rows(1, (4,), np.int64)
    with filling(BatchSlot(buffer, 2, 2)):
        other = empty_rows(2, (5,), np.int64)
    for a, b in ((first, second), (first, alone), (first, other), (second, other)):
        assert not np.shares_memory(a, b)
    assert join_adjacent([first, second]) is None
    assert join_adjacent([first, other]) is None


def test_outside_of_a_block_nothing_is_shared():
    a, b = empty_rows(2, (3,), np.int8), empty_rows(2, (3,), np.int8)
    assert not np.shares_memory(a, b)


def test_read_only_neighbours_stay_read_only():
    data = np.arange(6)
    data.flags.writeable = False
    whole = join_adjacent([data[:2], data[2:6]])
    assert whole is not None
    assert not whole.flags.writeable


def test_batches_larger_than_blocks_hold_the_right_rows():
    def image(x):
        return np.full((200, 300, 3), x, np.uint8)

    rows = sv.from_columns({"x": range(100)}).derive(image=image)
    pipeline = rows.derive(image=sv.image("image").random_flip().to_float()).batch(40)
    for backend in ("inline", "threads"):
        with cut_blocks(pipeline.loader(backend=backend, workers=2), [7]) as loader:
            batches = list(loader)
        assert [len(b["x"]) for b in batches] == [40, 40, 20]
        for batch in batches:
            for x, pixels in zip(batch["x"], batch["image"], strict=True):
                assert (pixels == np.float32(x) / np.float32(255)).all()


def test_rows_of_a_reversed_array_are_joined_within_its_buffer():
    """One row of a reversed view counts as contiguous, and still has a negative stride."""
    stored = np.arange(12).reshape(6, 2)
    rows = [stored[::-1][i : i + 1] for i in (3, 2, 1)]
    joined = join_adjacent(rows)
    assert joined is not None
    assert joined.tolist() == np.concatenate(rows).tolist()


def test_a_reversed_column_gives_its_rows_whatever_the_blocks():
    rows = sv.from_columns({"x": np.arange(3)[::-1], "l": [[2], [1], [0]]})
    for seed in range(8):  # one of them reads the rows in the order in which they are stored
        pipeline = rows.shuffle(seed, kind="window", window=3).batch(3)
        (batch,) = list(cut_blocks(pipeline.loader(backend="inline"), (1,)))
        assert batch["x"].tolist() == batch["l"].values.tolist()
