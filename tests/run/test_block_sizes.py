"""Blocks find their size, and nobody can tell where they end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import silva as sv
from silva.run.placement.measured import LaneStats
from silva.run.placement.sizing import Blocks, RecentRow
from silva.run.pools.task import Flight, Task, TasksInFlight
from silva.run.pools.threads import InlinePool
from silva.testing import assert_same_stream, cut_blocks, digest

ROWS = 40_000


@pytest.fixture
def lines(tmp_path: Path) -> str:
    """More than a hundred units of 4 KiB, the least that a text file is cut into."""
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{i:010d}\n" for i in range(ROWS)))
    return str(path)


def test_small_pieces_of_a_source_are_joined(lines: str):
    pipeline = sv.read_lines(lines).derive(n=lambda text: int(text)).batch(64)
    with pipeline.loader(backend="inline") as loader:
        found = [n for batch in loader for n in batch["n"].tolist()]
        blocks = loader.stats()["stage 1"]["blocks"]
    assert found == list(range(ROWS))
    assert blocks < 60


def test_joined_pieces_resume_exactly(tmp_path: Path):
    path = tmp_path / "few.txt"
    path.write_text("".join(f"{i:010d}\n" for i in range(3000)))
    assert_same_stream(
        sv.read_lines(str(path)).derive(n=lambda text: int(text)).batch(900), workers=(2,)
    )


def test_rows_before_a_broken_piece_come_out_first(lines: str):
    path = Path(lines)
    data = bytearray(path.read_bytes())
    data[ROWS // 2 * 11] = 0xFF
    path.write_bytes(data)
    seen: list[int] = []
    pipeline = sv.read_lines(lines).derive(n=lambda text: int(text)).batch(16)
    with pipeline.loader(backend="inline") as loader:
        batches = (batch["n"].tolist() for batch in loader)
        with pytest.raises(sv.SourceError, match="utf-8"):
            seen.extend(n for batch in batches for n in batch)
    assert seen == list(range(len(seen)))
    assert len(seen) > ROWS // 2 - 1000  # all but what was read together with it


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_large_batch_does_not_fill_the_window_with_tiny_blocks(backend):
    pipeline = sv.from_columns({"x": range(100_000)}).derive(y=lambda x: x + 1).batch(8192)
    with pipeline.loader(backend=backend, workers=2) as loader:
        assert sum(len(batch["y"]) for batch in loader) == 100_000
        assert loader.stats()["stage 1"]["blocks"] < 300


@pytest.mark.parametrize("came", [8, 100])
def test_blocks_that_were_measured_to_be_slow_do_not_fill_the_window(came: int) -> None:
    """As the first ones are on a busy machine: blocks of one row, for a batch of 8,192."""
    blocks = Blocks(LaneStats(blocks=came), lambda held: 1 << 30, calls_python=True, alone=False)
    blocks.expect(8192, aligned=False)
    blocks.learn(RecentRow(0.05, nbytes=8.0), 0, None)
    window: TasksInFlight[int] = TasksInFlight()
    while blocks.admits(window, width=2, ahead=2):
        task = Task(None, None, None)  # type: ignore[arg-type]
        window.add(Flight(0, task, InlinePool(), blocks.next_rows()))
    assert len(window) == came


def rows_of_a_block(actors: int, left: int | None, waits: float = 0.0) -> int:
    """Where a row takes 10 ms."""
    blocks = Blocks(LaneStats(blocks=2), lambda held: 1 << 30, calls_python=True, alone=False)
    for _ in range(8):
        blocks.learn(RecentRow(0.01, waits=waits, nbytes=8.0), actors, left)
    return blocks.rows


def test_the_more_actors_there_are_the_longer_a_block_takes_each():
    assert [rows_of_a_block(actors, None) for actors in (0, 1, 4, 12, 1000)] == [5, 5, 20, 60, 100]


def test_what_is_left_of_an_epoch_is_shared_by_all_actors():
    assert [rows_of_a_block(12, left) for left in (10_000, 960, 480, 10)] == [60, 40, 20, 5]
    assert rows_of_a_block(0, 10) == 5


def test_rows_that_are_waited_for_together_are_many():
    assert [rows_of_a_block(0, None, waits) for waits in (0.005, 0.0098, 0.01)] == [10, 128, 128]


@pytest.mark.parametrize("verb", ["bucket", "tokens"])
def test_a_row_without_a_length_is_an_error_when_its_turn_comes(verb):
    rows = sv.from_columns({"x": range(12)}).derive(q=lambda x: None if x == 9 else [x] * (x % 3))
    verbs = {
        "bucket": lambda: rows.bucket("q", {0: 2, 2: 3}),
        "tokens": lambda: rows.batch(tokens=4, by="q"),
    }
    pipeline = verbs[verb]()
    given = set()
    for size in (1, 2, 1000):
        loader, found = cut_blocks(pipeline.loader(backend="inline"), (size,)), []
        with pytest.raises(sv.ColumnError, match="not None"):
            found.extend(digest(batch) for batch in loader)
        given.add(tuple(found))
    assert len(given) == 1
    assert len(found) >= 3


@pytest.mark.parametrize(
    "other",
    [np.arange(3), [0.5, 1.5], ["a", "b"], [None, 4], np.zeros((3, 2)), [[1], [2, 3]]],
    ids=["int64", "floats", "text", "nulls", "arrays", "lists"],
)
def test_a_batched_function_sees_rows_of_one_type_at_a_time(other):
    """So what it makes of a row does not depend on where blocks end."""
    first = sv.from_columns({"x": np.arange(4, dtype=np.int32)})
    rows = sv.concat([first, sv.from_columns({"x": other})])
    seen = rows.derive(
        t=sv.batched(lambda x: [f"{type(x).__name__} {getattr(x, 'dtype', '')}"] * len(x))
    )
    same = rows.derive(y=sv.batched(lambda x: x))
    for pipeline in (seen.batch(3), same.batch(3), same):
        whole = [digest(b) for b in cut_blocks(pipeline.loader(backend="inline"), (1000,))]
        for sizes in ((1,), (2,), (3, 1)):
            assert [
                digest(b) for b in cut_blocks(pipeline.loader(backend="inline"), sizes)
            ] == whole
