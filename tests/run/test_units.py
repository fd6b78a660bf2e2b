"""Units of a chunked source, read by the workers: the stream is that of reading row after row."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import silva as sv
from silva.io.lake.parquet import Parquet
from silva.testing import assert_same_stream, cut_blocks, digest

GROUPS = (9, 1, 5, 13, 3, 2, 7)
"""Rows of the row groups, in three files."""
ROWS = sum(GROUPS)


def row(i: int) -> dict[str, Any]:
    return {
        "x": i,
        "n": None if i % 5 == 0 else i,
        "s": f"text {i}",
        "l": list(range(i % 4)),
    }


@pytest.fixture
def folder(tmp_path: Path) -> str:
    schema = pa.schema(
        {"x": pa.int64(), "n": pa.int64(), "s": pa.string(), "l": pa.list_(pa.int64())}
    )
    start = 0
    for number, groups in enumerate((GROUPS[:3], GROUPS[3:4], GROUPS[4:])):
        with pq.ParquetWriter(tmp_path / f"{number}.parquet", schema) as writer:
            for size in groups:
                rows = [row(i) for i in range(start, start + size)]
                writer.write_table(pa.Table.from_pylist(rows, schema))
                start += size
    return str(tmp_path / "*.parquet")


def last_items(rows: sv.Pipeline) -> sv.Pipeline:
    return rows.derive(z=sv.num("x") * 2).derive(r=lambda x, rng: x + rng.random())


def late_rows(rows: sv.Pipeline) -> sv.Pipeline:
    return rows.filter((sv.col("x") > 10) & (sv.col("x") < 30)).derive(z=lambda s, x: (s, -x))


PIPELINES = {
    "steps": last_items,
    "filter": lambda rows: rows.filter(lambda x: x % 3 != 1).select("x", "n"),
    "statistics": late_rows,
    "explode": lambda rows: rows.explode("l").select("x", "l"),
    "no columns": lambda rows: rows.derive(u=lambda rng: rng.random()).select("u"),
    "take": lambda rows: last_items(rows).take(31).skip(5),
    "cache": lambda rows: rows.derive(z=lambda x: x * x).cache().derive(w=lambda z: -z),
    "two-level": lambda rows: last_items(rows.shuffle(seed=3, window=9)),
}
every_pipeline = pytest.mark.parametrize("make", PIPELINES.values(), ids=PIPELINES.keys())


@every_pipeline
def test_one_stream(folder: str, make: Any):
    rows = make(sv.read_parquet(folder))
    here = {"backends": ("inline", "threads"), "workers": (2,), "fresh_process": False}
    assert_same_stream(rows.batch(4), **here)
    assert_same_stream(rows.options(shards=3).batch(6), **here)


def test_one_stream_from_processes(folder: str):
    rows = late_rows(sv.read_parquet(folder)).explode("l").derive(r=lambda rng: rng.random())
    assert_same_stream(rows.batch(4), backends=("processes",), workers=(2,))


@every_pipeline
def test_any_row_is_a_place_to_resume(folder: str, make: Any):
    """A state that was saved under one cut into blocks is loaded under another."""
    rows = make(sv.read_parquet(folder)).batch(1)
    streams = []
    for sizes, other in (((1,), (1000,)), ((1000,), (4, 2)), ((4, 2), (1,))):
        loader = cut_blocks(rows.loader(backend="inline"), sizes)
        saved = [(digest(batch), json.dumps(loader.state_dict())) for batch in loader]
        digests = [found for found, _ in saved]
        streams.append(digests)
        for number, (_, state) in enumerate(saved[:-1]):
            again = cut_blocks(rows.loader(backend="inline"), other)
            again.load_state_dict(json.loads(state))
            assert [digest(batch) for batch in again] == digests[number + 1 :], state
    assert streams[0] == streams[1] == streams[2]


def test_a_state_names_the_unit_and_the_row(folder: str):
    rows = last_items(sv.read_parquet(folder)).batch(1)
    ends = np.cumsum(GROUPS)
    for sizes in ((1,), (1000,)):
        loader = cut_blocks(rows.loader(backend="inline"), sizes)
        for number, _ in enumerate(loader):
            if number < ROWS - 1:
                unit = int(np.searchsorted(ends, number, side="right"))
                first = int(ends[unit - 1]) if unit else 0
                (state,) = loader.state_dict()["cursors"].values()
                assert state == {"unit": unit, "row": number + 1 - first}


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 70])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_shards_hold_every_row_once(folder: str, shards: int, size: int):
    rows = sv.read_parquet(folder).derive(y=sv.num("x") + 1).options(shards=shards)
    loader = cut_blocks(rows.batch(shards).loader(backend="inline"), [size])
    assert Counter(y for batch in loader for y in batch["y"].tolist()) == Counter(
        range(1, ROWS + 1)
    )


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, str]]:
    """(unit, first row, thread) of every unit that was opened."""
    seen: list[tuple[int, int, str]] = []
    original = Parquet.open

    def watch(self: Parquet, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[Any]:
        seen.append((unit, start, threading.current_thread().name))
        return original(self, unit, start, columns)

    monkeypatch.setattr(Parquet, "open", watch)
    return seen


def test_workers_read_units_and_each_once(folder: str, opened: list[tuple[int, int, str]]):
    rows = sv.read_parquet(folder).derive(y=sv.num("x") + 1).batch(5)
    with cut_blocks(rows.loader(backend="threads", workers=2), [6]) as loader:
        assert [y for batch in loader for y in batch["y"].tolist()] == list(range(1, ROWS + 1))
    assert sorted((unit, start) for unit, start, _ in opened) == [(u, 0) for u in range(7)]
    assert all(thread.startswith("silva-worker") for _, _, thread in opened)


def test_a_unit_much_larger_than_a_block_is_read_once_too(
    folder: str, opened: list[tuple[int, int, str]]
):
    rows = sv.read_parquet(folder).derive(y=sv.num("x") + 1).batch(5)
    with cut_blocks(rows.loader(backend="threads", workers=2), [2]) as loader:
        assert [y for batch in loader for y in batch["y"].tolist()] == list(range(1, ROWS + 1))
    readers = {unit: thread.rpartition("-")[0] for unit, _, thread in opened}
    assert sorted((unit, start) for unit, start, _ in opened) == [(u, 0) for u in range(7)]
    assert readers[0] == readers[3] == "silva-reader"
    assert readers[1] == "silva-worker"


def test_small_units_are_joined(tmp_path: Path):
    pq.write_table(pa.table({"x": range(20_000)}), tmp_path / "a.parquet", row_group_size=50)
    rows = sv.read_parquet(str(tmp_path / "a.parquet")).derive(y=lambda x: x + 1).batch(100)
    with rows.loader(backend="inline") as loader:
        assert [y for batch in loader for y in batch["y"].tolist()] == list(range(1, 20_001))
        assert loader.stats()["stage 1"]["blocks"] < 40


def test_rows_that_are_kept_are_not_read_again(folder: str, opened: list[tuple[int, int, str]]):
    rows = sv.read_parquet(folder).derive(y=lambda x: x + 1).cache().batch(4)
    with rows.loader(backend="inline", epochs=2) as loader:
        first = [digest(batch) for batch in loader]
        count = len(opened)
        assert [digest(batch) for batch in loader] == first
    assert len(opened) == count


def test_what_goes_in_bounds_a_block_even_if_nothing_comes_out(tmp_path: Path):
    """16 MiB in two row groups: a filter that drops all of it must not read it all at once."""
    text = np.random.default_rng(0).integers(32, 127, (256, 1 << 16), np.uint8)
    table = pa.table({"s": [bytes(line) for line in text]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=128, use_dictionary=False)
    sizes: list[int] = []

    @sv.batched
    def none(s: Any) -> Any:
        sizes.append(sum(map(len, s)))
        return np.zeros(len(s), bool)

    rows = sv.read_parquet(str(tmp_path / "a.parquet")).filter(none).batch(4)
    with rows.loader(backend="inline", memory="16MiB") as loader:
        assert list(loader) == []
    assert sum(sizes) >= 16 << 20
    assert max(sizes) <= 4 << 20


@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
@pytest.mark.parametrize("on_error", ["raise", sv.Skip(at_most=9)], ids=["raise", "skip"])
def test_a_damaged_row_group_is_an_error_that_names_the_file(
    tmp_path: Path, backend: str, on_error: Any
):
    path = tmp_path / "a.parquet"
    x = np.random.default_rng(0).integers(0, 1 << 40, 4000)
    pq.write_table(pa.table({"x": x}), path, row_group_size=1000, use_dictionary=False)
    where = pq.read_metadata(path).row_group(2).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[where : where + 200] = bytes(200)
    path.write_bytes(data)
    rows = sv.read_parquet(str(path)).derive(y=sv.num("x") + 1).batch(100)
    seen: list[int] = []
    made = rows.loader(backend=backend, workers=2, on_error=on_error)
    with cut_blocks(made, [700]) as loader:
        found = (y for batch in loader for y in batch["y"].tolist())
        with pytest.raises(sv.SourceError, match=r"a\.parquet is"):
            seen.extend(found)
    assert seen == (x[:2000] + 1).tolist()
