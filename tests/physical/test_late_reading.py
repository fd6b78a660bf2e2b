"""Files that a filter drops are not opened."""

from __future__ import annotations

from pathlib import Path

import pytest

import silva as sv
from silva.testing import assert_same_stream


@pytest.fixture
def files(tmp_path: Path) -> sv.Pipeline:
    for i in range(20):
        (tmp_path / f"{i:02d}.bin").write_bytes(bytes([i]) * (i + 1))
    pipeline = sv.read_files(str(tmp_path / "*.bin"))
    pipeline.count()  # lists them
    for i in range(0, 20, 2):
        (tmp_path / f"{i:02d}.bin").unlink()
    return pipeline.derive(number=lambda path: int(path[-6:-4]))


def test_what_a_filter_drops_is_never_read(files: sv.Pipeline):
    for backend in ("inline", "threads", "processes"):
        odd = files.filter(sv.col("number") % 2 == 1).derive(size=lambda bytes: len(bytes))
        with odd.batch(4).loader(backend=backend) as loader:
            batches = list(loader)
        assert [n for b in batches for n in b["size"]] == list(range(2, 21, 2))
        assert list(batches[0]) == ["path", "bytes", "number", "size"]


def test_columns_that_come_out_as_they_are(files: sv.Pipeline):
    (first, *_) = files.filter(sv.col("number") % 2 == 1).head(1)
    assert list(first) == ["path", "bytes", "number"]
    assert first["bytes"] == b"\1\1"


def test_a_filter_written_last_is_enough(files: sv.Pipeline):
    pipeline = files.derive(size=lambda bytes: len(bytes)).filter(lambda number: number % 2)
    assert [row["size"] for row in pipeline.head(99)] == list(range(2, 21, 2))


def test_a_file_that_is_wanted_and_gone_fails_its_row(files: sv.Pipeline):
    few = files.filter(sv.col("number") < 4).derive(size=lambda bytes: len(bytes)).batch(4)
    with few.loader(on_error=sv.Skip(at_most=2)) as loader:
        (batch,) = list(loader)
        assert batch["size"].tolist() == [2, 4]
        assert [failure.key for failure in loader.failures] == ["0:0", "0:2"]
        assert loader.failures[0].step.startswith("read")
    with few.loader() as loader, pytest.raises(sv.RowError, match="0:0"):
        list(loader)


def test_the_stream_is_the_same(tmp_path: Path):
    for i in range(12):
        (tmp_path / f"{i:02d}.txt").write_text("x" * i)
    pipeline = (
        sv.read_files(str(tmp_path / "*.txt"))
        .derive(number=lambda path: int(path[-6:-4]))
        .filter(sv.col("number") % 3 != 0)
        .derive(size=lambda bytes, rng: len(bytes) + int(rng.integers(5)))
        .filter(lambda size: size > 2)
        .shuffle(seed=1)
        .batch(3)
    )
    assert_same_stream(pipeline, workers=(2,))
