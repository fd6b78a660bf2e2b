"""Rows in Lance files come back as they went in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from silva.columns.arrow_arrays import to_arrow
from silva.folders import OwnFolder
from silva.store.files.part_files import PartReader, write_part
from silva.store.versions.manifest import all_files

TABLE = pa.table(
    {
        "id": pa.array([5, 6, None, 8], pa.int64()),
        "user.name": ["ann", None, "", "bob"],
        "history": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int64())),
        "words": pa.array([["a"], ["b", "c"], [], None], pa.list_(pa.string())),
    }
)


@pytest.mark.parametrize("rows", [[], [0, 1, 2, 3], [2], [3, 0, 3], [1, 3]])
def test_rows_come_back_in_the_order_asked_for(tmp_path: Path, rows: list[int]) -> None:
    part = write_part(tmp_path, TABLE)
    reader = PartReader(OwnFolder(tmp_path), part)
    read = reader.read(np.array(rows, dtype=np.int64), TABLE.column_names)
    for name in TABLE.column_names:
        assert (
            to_arrow(read[name]).to_pylist()
            == TABLE.column(name).take(pa.array(rows, pa.int64())).to_pylist()
        )


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
@pytest.mark.parametrize("most", [(1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32])
def test_numbers_come_back_with_their_own_type_however_small(
    tmp_path: Path, kind: pa.DataType, most: int
) -> None:
    numbers = pa.array([0, None, most], kind)
    part = write_part(
        tmp_path, pa.table({"x": numbers, "list": pa.array([[most]] * 3, pa.list_(kind))})
    )
    read = PartReader(OwnFolder(tmp_path), part).read(np.arange(3), ("x", "list"))
    assert to_arrow(read["x"]).equals(numbers)
    assert to_arrow(read["list"]).type.value_type == kind
    assert to_arrow(read["list"]).to_pylist() == [[most]] * 3


def test_the_part_names_every_file_that_was_written(tmp_path: Path) -> None:
    part = write_part(tmp_path, TABLE)
    found = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert {file.name: file.size for file in all_files(part)} == found


def test_several_threads_may_read_at_once(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(5000), "h": [[i, i + 1] for i in range(5000)]})
    reader = PartReader(OwnFolder(tmp_path), write_part(tmp_path, table, {"h": "slices"}))

    def read(start: int) -> bool:
        rows = np.arange(start, start + 100)
        found = reader.read(rows, ("x", "h"))
        return found["x"].rows() == rows.tolist() and found["h"].rows()[0].tolist() == [
            start, start + 1,
        ]  # fmt: skip

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(0, 4800, 16)))
