"""`sv.read_…`, `sv.from_…`: pipelines that begin with a source; formats are imported when used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from silva.pipeline import Pipeline
from silva.plan.node import Source

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]
"""A path, a glob (`**` for any depth), a folder, or a list of these."""


def read_files(paths: Paths) -> Pipeline:
    """One row a file: `path` and `bytes`; the bytes are read only if something uses them.

    `sv.read_files("photos/**/*.jpg")`
    """
    from silva.io.files import read_files as source

    return Pipeline(Source(source(paths)))


def read_lines(
    paths: Paths, *, column: str = "text", errors: Literal["strict", "replace"] = "strict"
) -> Pipeline:
    """One row a line, in the column `text`; compressed files work too.

    `sv.read_lines("wiki/*.txt")`
    """
    from silva.io.lines import read_lines as source

    return Pipeline(Source(source(paths, column=column, errors=errors)))


def read_json(paths: Paths, *, columns: Sequence[str] | None = None) -> Pipeline:
    """One row a line of JSON; nested objects become dotted columns.

    `sv.read_json("events/*.jsonl")`
    """
    from silva.io.json import read_json as source

    return Pipeline(Source(source(paths, columns=columns)))


def read_csv(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    delimiter: str = ",",
    header: bool = True,
    quoted_newlines: bool = True,
) -> Pipeline:
    """Rows of CSV files; types are inferred once, from the first file, or given.

    `sv.read_csv("table.csv", types={"zip": "str"})`
    """
    from silva.io.csv import read_csv as source

    return Pipeline(
        Source(
            source(
                paths,
                columns=columns,
                types=types,
                delimiter=delimiter,
                header=header,
                quoted_newlines=quoted_newlines,
            )
        )
    )


def read_arrow(paths: Paths) -> Pipeline:
    """Rows of Arrow IPC files, memory-mapped.

    `sv.read_arrow("part-*.arrow")`
    """
    from silva.io.arrow import read_arrow as source

    return Pipeline(Source(source(paths)))


def read_npy(paths: Paths, *, column: str = "array") -> Pipeline:
    """Rows along the first axis of .npy files, or of the arrays in .npz files.

    `sv.read_npy("features.npy")`
    """
    from silva.io.npy import read_npy as source

    return Pipeline(Source(source(paths, column=column)))


def read_parquet(paths: Paths, *, columns: Sequence[str] | None = None) -> Pipeline:
    """Rows of Parquet files; only the columns that are used are read.

    `sv.read_parquet("clicks/*.parquet")`
    """
    from silva.io.parquet import read_parquet as source

    return Pipeline(Source(source(paths, columns=columns)))


def read_tar(paths: Paths, *, columns: Sequence[str] | None = None) -> Pipeline:
    """Rows of tar files in WebDataset's layout: `key`, and one column of bytes an extension.

    `sv.read_tar("shards/*.tar")`
    """
    from silva.io.tar import read_tar as source

    return Pipeline(Source(source(paths, columns=columns)))


def read_delta(
    path: str | PathLike[str], version: Any = None, *, columns: Sequence[str] | None = None
) -> Pipeline:
    """Rows of a Delta Lake table, as of a version (a number or a time), by default the newest.

    `sv.read_delta("events", version=12)`
    """
    from silva.io.delta import read_delta as source

    return Pipeline(Source(source(path, version, columns)))


def read_iceberg(
    table: Any, snapshot: int | None = None, *, columns: Sequence[str] | None = None
) -> Pipeline:
    """Rows of an Iceberg table, as of a snapshot, by default the current one. The table is given as
    the path of its metadata file, as (catalog, name), or as pyiceberg's own.

    `sv.read_iceberg(("local", "shop.events"))`
    """
    from silva.io.iceberg import read_iceberg as source

    return Pipeline(Source(source(table, snapshot, columns)))


def read_lance(
    path: str | PathLike[str], version: int | None = None, *, columns: Sequence[str] | None = None
) -> Pipeline:
    """Rows of a Lance dataset, as of a version, by default the newest; any row at the same cost.

    `sv.read_lance("photos.lance")`
    """
    from silva.io.lance import read_lance as source

    return Pipeline(Source(source(path, version, columns)))


def from_items(items: Sequence[Mapping[str, Any]]) -> Pipeline:
    """Rows given as dicts.

    >>> from_items([{"x": 1}, {"x": 2}]).head(1)
    [{'x': 1}]
    """
    from silva.io.memory import from_items as source

    return Pipeline(Source(source(items)))


def from_columns(columns: Mapping[str, Any]) -> Pipeline:
    """Rows given as columns: arrays, lists, ranges, tensors.

    >>> from_columns({"x": range(3)}).count()
    3
    """
    from silva.io.memory import from_columns as source

    return Pipeline(Source(source(columns)))


def from_arrow(data: Any) -> Pipeline:
    """Rows of anything that speaks Arrow: a pyarrow, polars or duckdb table.

    >>> import pyarrow as pa
    >>> from_arrow(pa.table({"x": [1, 2]})).head(1)
    [{'x': 1}]
    """
    from silva.io.arrow_table import from_arrow as source

    return Pipeline(Source(source(data)))


def from_torch(dataset: Any, *, columns: Sequence[str] | None = None) -> Pipeline:
    """Rows of a torch dataset, map-style or iterable.

    >>> from_torch([(1, 2), (3, 4)], columns=("x", "y")).head(1)
    [{'x': 1, 'y': 2}]
    """
    from silva.io.torch import from_torch as source

    return Pipeline(Source(source(dataset, columns=columns)))


def from_huggingface(dataset: Any) -> Pipeline:
    """Rows of a Hugging Face `Dataset` or `IterableDataset`.

    `sv.from_huggingface(load_dataset("imdb", split="train"))`
    """
    from silva.io.huggingface import from_huggingface as source

    return Pipeline(Source(source(dataset)))
