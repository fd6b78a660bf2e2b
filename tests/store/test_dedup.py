"""Kinds are chosen by how much rows repeat, and steps run once for each distinct row."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import silva as sv
from silva.folders import OwnFolder
from silva.store.files.dedup import choose_kinds
from silva.store.files.part_files import PartReader, write_part
from silva.store.versions.manifest import Part
from silva.testing import cut_blocks


@sv.register_source("a part")
class Rows:
    """A part as a source."""

    runs_user_code = False

    def __init__(self, folder: Path, part: Part) -> None:
        self._folder, self._part = folder, part

    @functools.cached_property
    def _reader(self) -> PartReader:
        return PartReader(OwnFolder(self._folder), self._part)

    def __getstate__(self) -> dict[str, Any]:
        return {"_folder": self._folder, "_part": self._part}

    def columns(self) -> tuple[str, ...]:
        return tuple(self._part.columns)

    def fingerprint(self) -> str:
        return "".join(file.name for file in self._part.files)

    def length(self) -> int:
        return self._part.rows

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Any]:
        return self._reader.read(rows, columns)


def pipeline(folder: Path, part: Part) -> sv.Pipeline:
    return sv.from_source(Rows(folder, part))


def lists(values: np.ndarray) -> pa.Array:
    offsets = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel()))


def sessions(distinct: int, repeats: int, width: int = 20, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).integers(0, 1 << 40, (distinct, width))
    return np.repeat(values, repeats, axis=0)


def test_columns_are_deduplicated_where_it_is_worth_it():
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(320), 20)[:300]
    table = pa.table(
        {
            "repeats": lists(sessions(30, 10)),
            "differs": lists(sessions(300, 1)),
            "barely": lists(np.concatenate([sessions(60, 2), sessions(180, 1, seed=1)])),
            "slides": lists(windows),
            "newest_first": lists(windows[:, ::-1].copy()),
            "text": [f"user {i // 10}, whose name is long" for i in range(300)],
            "short": ["ab"] * 300,
            "number": np.arange(300) // 10,
            "other": np.arange(300) // 7,
            "none": lists(np.zeros((300, 0), np.int64)),
        }
    )
    assert choose_kinds(table) == {
        "repeats": "grouped",
        "differs": "plain",
        "barely": "plain",
        "slides": "slices",
        "newest_first": "slices",
        "text": "grouped",
        "short": "plain",
        "number": "grouped",  # it changes with `repeats`, whose index is there anyhow
        "other": "plain",
        "none": "plain",
    }
    empty = choose_kinds(table.slice(0, 0))
    assert set(empty.values()) == {"plain"}


@pytest.mark.parametrize("kind", ["grouped", "slices"])
def test_steps_run_once_for_each_distinct_row(tmp_path, kind):
    table = pa.table({"a": lists(sessions(8, 16)), "b": lists(sessions(8, 16, 3) + 1)})
    part = write_part(tmp_path, table, {"a": kind, "b": kind})
    seen: list[int] = []

    def both(a, b):
        seen.append(1)
        return int(a.sum() + b.sum())

    rows = pipeline(tmp_path, part).derive(
        both=both, hashed=sv.list("a").hash(100).truncate(5), first=lambda hashed: int(hashed[0])
    )
    batches = list(cut_blocks(rows.batch(64).loader(backend="inline"), (64,)))
    plain = sv.from_arrow(table).derive(
        both=lambda a, b: int(a.sum() + b.sum()), hashed=sv.list("a").hash(100).truncate(5)
    )
    expected = list(plain.batch(64).loader(backend="inline"))
    for found, wanted in zip(batches, expected, strict=True):
        assert found["both"].tolist() == wanted["both"].tolist()
        assert [x.tolist() for x in found["hashed"]] == [x.tolist() for x in wanted["hashed"]]
    assert len(seen) == 8


def test_columns_that_repeat_differently_run_once_for_each_combination(tmp_path):
    table = pa.table({"a": lists(sessions(4, 32)), "b": lists(sessions(8, 16, 3) + 1)})
    part = write_part(tmp_path, table, {"a": "grouped", "b": "slices"})
    seen: list[int] = []

    def both(a, b):
        seen.append(1)
        return int(a.sum() + b.sum())

    rows = pipeline(tmp_path, part).derive(both=both, n=sv.col("both") + 1)
    (batch,) = cut_blocks(rows.batch(128).loader(backend="inline"), (128,))
    expected = (sessions(4, 32).sum(axis=1) + (sessions(8, 16, 3) + 1).sum(axis=1)).tolist()
    assert batch["both"].tolist() == expected
    assert batch["n"].tolist() == [x + 1 for x in expected]
    assert len(seen) == 8
