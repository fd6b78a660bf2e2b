"""Sources of drawn pipelines: the same few columns, of every kind and in every format.

Column `x` counts the rows; the others have one letter each and come in several *kinds*
(`l="tuples"`), so that pipelines of different sources can be mixed by name.
"""

from __future__ import annotations

import atexit
import datetime
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import silva as sv


@functools.cache
def home() -> Path:
    """The folder of everything that drawn pipelines read and write."""
    path = Path(tempfile.mkdtemp(prefix="silva-fuzz-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def folder(name: str) -> Path:
    """A folder for a cache; `forget_folders` removes it after the case."""
    return home() / "caches" / name


def forget_folders() -> None:
    shutil.rmtree(home() / "caches", ignore_errors=True)


# Columns in memory: what `from_columns` and `from_items` are given.


def _lists(n: int) -> list[list[int]]:
    return [list(range(i, i + i * 7 % 5)) for i in range(n)]


def _nuls(n: int) -> list[str]:
    """Texts that end in NULs, which numpy's own types of text drop; some are empty."""
    return [f"{i % 7}"[: i % 3] + "\0" * (i % 4 % 3) for i in range(n)]


MEMORY: dict[str, dict[str, Any]] = {
    "x": {
        "int64": lambda n: np.arange(n),
        "int32": lambda n: np.arange(n, dtype=np.int32),
        "uint8": lambda n: np.arange(n, dtype=np.uint8),
        "range": lambda n: range(n),
        "strided": lambda n: np.repeat(np.arange(n), 2)[::2],
        "backwards": lambda n: np.arange(n)[::-1].copy()[::-1],
    },
    "w": {
        "float32": lambda n: np.linspace(0, 1, n, dtype=np.float32),
        "float64": lambda n: np.linspace(0, 1, n),
        "float16": lambda n: np.linspace(0, 1, n, dtype=np.float16),
        "mixed": lambda n: [i if i % 3 else i / 4 for i in range(n)],
        "nan": lambda n: [float("nan") if i % 4 == 1 else i / 8 for i in range(n)],
        "broadcast": lambda n: np.broadcast_to(np.float32(0.5), n),
        "backwards": lambda n: np.linspace(1, 0, n)[::-1],
        "unmasked": lambda n: np.ma.array(np.linspace(0, 1, n)),
    },
    "s": {
        "text": lambda n: [f"s{i % 12}" for i in range(n)],
        "nulls": lambda n: [None if i % 4 == 2 else f"s{i % 12}" for i in range(n)],
        "words": lambda n: ["ab c"[: i % 5] + " é" * (i % 2) for i in range(n)],
        "nuls": _nuls,
        "numpy": lambda n: np.array(_nuls(n), dtype="U4"),
        "scalars": lambda n: [np.str_(text) for text in _nuls(n)],
        "surrogates": lambda n: ["a\udc80"[: i % 3] for i in range(n)],
        "categories": lambda n: pa.chunked_array(
            [pa.array([None if i % 4 == 2 else f"s{i % 3}" for i in range(n)], pa.string())]
        ).dictionary_encode(),
    },
    "l": {
        "lists": _lists,
        "tuples": lambda n: [tuple(row) for row in _lists(n)],
        "arrays": lambda n: [np.array(row, dtype=np.float32) for row in _lists(n)],
        "int8": lambda n: [np.array(row, dtype=np.int8) for row in _lists(n)],
        "nulls": lambda n: [None if i % 5 == 2 else row for i, row in enumerate(_lists(n))],
        "empty": lambda n: [[] for _ in range(n)],
        "unlike": lambda n: [_unlike(i, row) for i, row in enumerate(_lists(n))],
        "floats": lambda n: [[v / 2 if v % 3 else v for v in row] for row in _lists(n)],
        "holes": lambda n: [[None if v % 4 == 1 else v for v in row] for row in _lists(n)],
        "texts": lambda n: [[f"t{v}" for v in row] for row in _lists(n)],
        "nested": lambda n: [[[v] * (v % 3) for v in row] for row in _lists(n)],
        "pairs": lambda n: [[i, i + 1] for i in range(n)],
        "holed pairs": lambda n: [[i, None if i % 3 else i] for i in range(n)],
        "late": lambda n: [row if i > n // 2 else None for i, row in enumerate(_lists(n))],
        "views": lambda n: [np.array([row, row]).T[::-1, 0] for row in _lists(n)],
        "broadcast": lambda n: [np.broadcast_to(i, i % 4) for i in range(n)],
        "masked": lambda n: [
            np.ma.array(row, int, mask=[v % 3 == 0 for v in row]) for row in _lists(n)
        ],
        "unmasked": lambda n: [np.ma.array(row, int) for row in _lists(n)],
        "nuls": lambda n: [_nuls(i % 4) for i in range(n)],
    },
    "n": {
        "nulls": lambda n: [None if i % 5 == 0 else i for i in range(n)],
        "masked": lambda n: np.ma.array(np.arange(n), mask=np.arange(n) % 5 == 0),
        "none": lambda n: [None] * n,
        "small": lambda n: np.ma.array(np.arange(n, dtype=np.int16), mask=np.arange(n) % 7 == 3),
        "constants": lambda n: [np.ma.masked if i % 5 == 0 else i for i in range(n)],
        "unmasked": lambda n: np.ma.array(np.arange(n), mask=np.zeros(n, bool)),
        "arrow": lambda n: pa.array([None if i % 5 == 0 else i for i in range(n)], pa.int64()),
        "backwards": lambda n: np.ma.array(np.arange(n), mask=np.arange(n) % 5 == 0)[::-1],
    },
    "a": {
        "int16": lambda n: np.arange(n * 6, dtype=np.int16).reshape(n, 2, 3),
        "bool": lambda n: np.arange(n * 2).reshape(n, 2) % 3 == 0,
        "rows": lambda n: [np.full((2, 2), i, dtype=np.float64) for i in range(n)],
        "nulls": lambda n: [None if i % 6 == 1 else np.full(3, i) for i in range(n)],
        "broadcast": lambda n: np.broadcast_to(np.arange(3), (n, 3)),
        "backwards": lambda n: np.arange(n * 4).reshape(n, 2, 2)[::-1, :, ::-1],
        "transposed": lambda n: np.arange(n * 6, dtype=np.float32).reshape(3, 2, n).T,
        "views": lambda n: [np.broadcast_to(np.int16(i), (2, 3)).T for i in range(n)],
        "masked": lambda n: np.ma.array(
            np.arange(n * 2).reshape(n, 2), mask=np.arange(n * 2) % 3 == 0
        ),
        "holes": lambda n: [np.ma.array([i, 1], mask=[i % 2, i % 3 == 0]) for i in range(n)],
        "unmasked": lambda n: np.ma.array(np.arange(n * 2).reshape(n, 2)),
    },
    "o": {
        "dicts": lambda n: [{"k": i, "v": [i] * (i % 3)} for i in range(n)],
        "bytes": lambda n: [bytes([i % 250]) * (i % 4) for i in range(n)],
        "nuls": lambda n: [text.encode() for text in _nuls(n)],
        "numpy": lambda n: np.array([text.encode() for text in _nuls(n)], dtype="S4"),
        "scalars of bytes": lambda n: [np.bytes_(text.encode()) for text in _nuls(n)],
        "zero": lambda n: [
            (np.ma.array(i), np.array(i), np.ma.array(i, mask=True))[i % 3] for i in range(n)
        ],
        "big": lambda n: [i << (i * 5 % 70) for i in range(n)],
        "times": lambda n: np.arange(n).astype("datetime64[s]"),
        "records": lambda n: [[{"k": j} for j in range(i % 3)] for i in range(n)],
        "dates": lambda n: [datetime.date(2024, 1, 1 + i % 28) for i in range(n)],
        "anything": lambda n: [[i, "a", None, 1.5, b"b", (i,), True][i % 7] for i in range(n)],
        "bools": lambda n: [i % 3 == 0 for i in range(n)],
        "scalars": lambda n: [(np.float32(i), np.int8(i % 99), i)[i % 3] for i in range(n)],
        "complex": lambda n: np.arange(n) * (1 + 2j),
    },
}


def _unlike(i: int, row: list[int]) -> Any:
    return [row, tuple(row), np.array(row, dtype=np.int16), None, row][i % 5]


def columns_of(n: int, kinds: dict[str, str]) -> dict[str, Any]:
    return {name: MEMORY[name][kind](n) for name, kind in kinds.items()}


def _rows(values: Any) -> list[Any]:
    """Each row as it is: a scalar of an array stays one."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return list(values.to_pylist())
    return [None if value is np.ma.masked else value for value in values]


def memory(n: int, /, **kinds: str) -> sv.Pipeline:
    return sv.from_columns(columns_of(n, kinds))


def items(n: int, /, **kinds: str) -> sv.Pipeline:
    whole = {name: _rows(values) for name, values in columns_of(n, kinds).items()}
    rows = zip(*whole.values(), strict=True)
    return sv.from_items([dict(zip(whole, row, strict=True)) for row in rows])


# Arrow and its files.

ARROW: dict[str, dict[str, tuple[str, Any]]] = {
    "x": {"int64": ("int64", pa.int64()), "int32": ("int64", pa.int32())},
    "w": {
        "float32": ("float32", pa.float32()),
        "float64": ("float64", pa.float64()),
    },
    "s": {
        "text": ("text", pa.string()),
        "large": ("text", pa.large_string()),
        "nulls": ("nulls", pa.string()),
        "nuls": ("nuls", pa.string()),
        "codes": ("text", pa.dictionary(pa.int8(), pa.string())),
    },
    "l": {
        "lists": ("lists", pa.list_(pa.int64())),
        "large": ("lists", pa.large_list(pa.int32())),
        "nulls": ("nulls", pa.list_(pa.int64())),
        "holes": ("holes", pa.list_(pa.int64())),
        "texts": ("texts", pa.list_(pa.string())),
        "nested": ("nested", pa.list_(pa.list_(pa.int64()))),
        "pairs": ("pairs", pa.list_(pa.float32(), 2)),
        "holed pairs": ("holed pairs", pa.list_(pa.int64(), 2)),
    },
    "n": {"nulls": ("nulls", pa.int64()), "small": ("nulls", pa.int8()), "none": ("none", None)},
    "o": {
        "dicts": ("dicts", pa.struct({"k": pa.int64(), "v": pa.list_(pa.int64())})),
        "bytes": ("bytes", pa.binary()),
        "nuls": ("nuls", pa.large_binary()),
        "times": ("times", pa.timestamp("us")),
        "records": ("records", pa.list_(pa.struct({"k": pa.int64()}))),
        "dates": ("dates", pa.date32()),
        "bools": ("bools", pa.bool_()),
    },
}


def arrow_table(n: int, /, **kinds: str) -> pa.Table:
    made = {}
    for name, kind in kinds.items():
        memory_kind, type_ = ARROW[name][kind]
        values = MEMORY[name][memory_kind](n)
        made[name] = pa.array(list(values) if not isinstance(values, np.ndarray) else values, type_)
    return pa.table(made)


def arrow(n: int, /, **kinds: str) -> sv.Pipeline:
    return sv.from_arrow(arrow_table(n, **kinds))


# Kinds that text files can hold.

JSON = {
    "x": ("int64",),
    "w": ("float64", "mixed"),
    "s": ("text", "nulls", "words", "nuls"),
    "l": ("lists", "nulls", "holes", "texts", "nested", "floats", "empty", "late"),
    "n": ("nulls",),
    "o": ("dicts", "bools"),
}
CSV = {
    "x": ("int64",),
    "w": ("float64", "mixed"),
    "s": ("text", "nulls"),
    "n": ("nulls",),
    "o": ("bools",),
}


# Datasets.


class Rows:
    """A map-style dataset."""

    def __init__(self, n: int, kinds: dict[str, str]) -> None:
        self.rows = {name: _rows(values) for name, values in columns_of(n, kinds).items()}
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> dict[str, Any]:
        if not 0 <= i < self.n:
            raise IndexError(i)
        return {name: values[i] for name, values in self.rows.items()}


class Stream:
    """An iterable dataset, with and without a length."""

    def __init__(self, n: int, kinds: dict[str, str]) -> None:
        self.source = Rows(n, kinds)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.source[i] for i in range(len(self.source)))


class SizedStream(Stream):
    def __len__(self) -> int:
        return len(self.source)


def torch_map(n: int, /, **kinds: str) -> sv.Pipeline:
    return sv.from_torch(Rows(n, kinds), columns=tuple(kinds))


def torch_stream(n: int, /, **kinds: str) -> sv.Pipeline:
    return sv.from_torch(Stream(n, kinds), columns=tuple(kinds))


def torch_sized(n: int, /, **kinds: str) -> sv.Pipeline:
    return sv.from_torch(SizedStream(n, kinds), columns=tuple(kinds))
