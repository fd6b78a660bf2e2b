"""Sources of drawn pipelines that are files and folders: written once for each set of arguments."""

from __future__ import annotations

import functools
import io
import json
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from fuzz_data import arrow_table, columns_of, home

import silva as sv


def _written(write: Any) -> Any:
    """A folder of files, written by `write(folder, …)` where it was not yet."""

    @functools.wraps(write)
    def made(*arguments: Any, **kinds: str) -> Any:
        told = [write.__name__, *map(str, arguments), *(f"{k}={v}" for k, v in kinds.items())]
        path = home() / "-".join(told)
        first = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        return write(path, first, *arguments, **kinds)

    return made


@_written
def parquet(
    path: Path, first: bool, n: int, files: int, group: int, /, **kinds: str
) -> sv.Pipeline:
    """Files of row groups of `group` rows."""
    if first:
        for i, part in enumerate(_cut(arrow_table(n, **kinds), files)):
            pa.parquet.write_table(part, path / f"{i}.parquet", row_group_size=group)
    return sv.read_parquet(path / "*.parquet")


@_written
def ipc(path: Path, first: bool, n: int, files: int, group: int, /, **kinds: str) -> sv.Pipeline:
    """Arrow files of record batches of `group` rows."""
    if first:
        for i, part in enumerate(_cut(arrow_table(n, **kinds), files)):
            with (
                pa.OSFile(str(path / f"{i}.arrow"), "wb") as out,
                pa.ipc.new_file(out, part.schema) as writer,
            ):
                writer.write_table(part, max_chunksize=group)
    return sv.read_arrow(path / "*.arrow")


@_written
def table(path: Path, first: bool, n: int, parts: int, /, **kinds: str) -> sv.Pipeline:
    """One of silva's own tables, appended to."""
    if first:
        begin, *more = _cut(arrow_table(n, **kinds), parts)
        made = sv.Table.create(path / "table", begin)
        for part in more:
            made.append(part)
    return sv.Table.open(path / "table").read()


def _cut(whole: pa.Table, parts: int) -> list[pa.Table]:
    edges = [len(whole) * i // parts for i in range(parts + 1)]
    return [whole.slice(a, b - a) for a, b in pairwise(edges)]


@_written
def jsonl(path: Path, first: bool, n: int, files: int, /, **kinds: str) -> sv.Pipeline:
    if first:
        whole = {k: _plain(v) for k, v in columns_of(n, kinds).items()}
        rows = zip(*whole.values(), strict=True)
        lines = [json.dumps(dict(zip(whole, row, strict=True))) for row in rows]
        for i in range(files):
            part = lines[n * i // files : n * (i + 1) // files]
            (path / f"{i}.jsonl").write_text("".join(f"{line}\n" for line in part))
    return sv.read_json(path / "*.jsonl")


@_written
def csv(path: Path, first: bool, n: int, /, **kinds: str) -> sv.Pipeline:
    if first:
        whole = {k: _plain(v) for k, v in columns_of(n, kinds).items()}
        pa.csv.write_csv(pa.table(whole), path / "0.csv")
    return sv.read_csv(path / "0.csv")


def _plain(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _number(text: Any) -> int:
    return int(text.decode() if isinstance(text, bytes) else Path(text).stem.partition("-")[0])


@_written
def tar(path: Path, first: bool, n: int, files: int) -> sv.Pipeline:
    if first:
        for i in range(files):
            with tarfile.open(path / f"{i}.tar", "w") as out:
                for row in range(n * i // files, n * (i + 1) // files):
                    for kind, data in (("txt", b"t" * (row % 4)), ("cls", b"%d" % row)):
                        info = tarfile.TarInfo(f"{row:04}.{kind}")
                        info.size = len(data)
                        out.addfile(info, io.BytesIO(data))
    return sv.read_tar(path / "*.tar").derive(_number, into="x", reads="cls").rename(txt="o")


@_written
def npy(path: Path, first: bool, n: int) -> sv.Pipeline:
    if first:
        np.save(path / "a.npy", np.arange(n * 2, dtype=np.float32).reshape(n, 2))
    rows = sv.read_npy(path / "a.npy", column="a")
    return rows.derive(x=lambda a: int(a[0]) // 2)


@_written
def files(path: Path, first: bool, n: int) -> sv.Pipeline:
    if first:
        for i in range(n):
            (path / f"{i:03}-a.bin").write_bytes(bytes([i % 250]) * (i % 4))
    rows = sv.read_files(path / "*.bin").derive(_number, into="x", reads="path")
    return rows.rename(bytes="o").derive(s=lambda path: Path(path).name[:2]).select("x", "s", "o")


@_written
def lines(path: Path, first: bool, n: int, parts: int) -> sv.Pipeline:
    if first:
        for i in range(parts):
            text = [
                f"{row}-{'é' * (row % 5)}\n" for row in range(n * i // parts, n * (i + 1) // parts)
            ]
            (path / f"{i}.txt").write_text("".join(text))
    rows = sv.read_lines(path / "*.txt", column="s")
    return rows.derive(x=lambda s: int(s.partition("-")[0]))
