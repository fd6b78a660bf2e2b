"""`sv.read_…` and `sv.from_…`: pipelines that begin with a source. Formats are imported on use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, cast

from silva.io.source import check_source
from silva.pipeline import Pipeline
from silva.plan.arguments import explains
from silva.plan.node import PlannedSource, Source

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]
"""A path, a glob (`**` for any depth), a folder, or a list of these."""


def from_source(source: object) -> Pipeline:
    """Reads a source of your own: an object whose class is declared with `sv.register_source`.

    `sv.from_source(Squares(100)).shuffle(seed=0).batch(4)`
    """
    check_source(source)
    return Pipeline(Source(cast(PlannedSource, source)))


def read_files(paths: Paths) -> Pipeline:
    """Reads whole files: one row per file, with the columns `path` and `bytes`.

    The bytes are read only if a step uses them. Rows come in the order of the paths. A file that is
    named twice, by two patterns or in a list, is one row: to read files twice, `sv.concat` two
    pipelines.

    `sv.read_files("photos/**/*.jpg")`
    """
    from silva.io.file_source import read_files as source

    return from_source(source(paths))


def read_lines(
    paths: Paths, *, column: str = "text", errors: Literal["strict", "replace"] = "strict"
) -> Pipeline:
    """Reads lines of text files: one row per line, in the column `text`.

    Files ending in `.gz`, `.bz2` or `.xz` are decompressed. `errors="replace"` reads bytes that are
    not UTF-8.

    `sv.read_lines("wiki/*.txt")`
    """
    from silva.io.text.lines import read_lines as source

    return from_source(source(paths, column=column, errors=errors))


@explains
def read_json(paths: Paths, *, columns: Sequence[str] | None = None) -> Pipeline:
    """Reads JSON Lines files: one row per line; nested objects become columns with dotted names.

    The first 1,000 lines decide which columns there are, unless you pass `columns`.

    `sv.read_json("events/*.jsonl")`
    """
    from silva.io.text.json import read_json as source

    return from_source(source(paths, columns=columns))


@explains
def read_csv(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    delimiter: str = ",",
    header: bool = True,
    quoted_newlines: bool = True,
) -> Pipeline:
    """Reads CSV files. Types are inferred from the first file, unless you pass `types`.

    With `quoted_newlines=False` you assert that no field contains a newline; files are then read in
    parallel byte ranges.

    `sv.read_csv("table.csv", types={"zip": "str"})`
    """
    from silva.io.text.csv import read_csv as source

    return from_source(
        source(
            paths,
            columns=columns,
            types=types,
            delimiter=delimiter,
            header=header,
            quoted_newlines=quoted_newlines,
        )
    )


def read_arrow(paths: Paths) -> Pipeline:
    """Reads Arrow IPC files, memory-mapped.

    `sv.read_arrow("part-*.arrow")`
    """
    from silva.io.arrays.arrow import read_arrow as source

    return from_source(source(paths))


def read_npy(paths: Paths, *, column: str = "array") -> Pipeline:
    """Reads .npy files along their first axis, or the arrays of .npz files as columns.

    `sv.read_npy("features.npy")`
    """
    from silva.io.arrays.npy import read_npy as source

    return from_source(source(paths, column=column))


@explains
def read_parquet(paths: Paths, *, columns: Sequence[str] | None = None) -> Pipeline:
    """Reads Parquet files. Only columns that are used, and row groups that filters need, are read.

    `sv.read_parquet("clicks/*.parquet")`
    """
    from silva.io.lake.parquet import read_parquet as source

    return from_source(source(paths, columns=columns))


def read_tar(paths: Paths, *, columns: Sequence[str] | None = None) -> Pipeline:
    """Reads tar files in the layout of WebDataset: `key`, and a column of bytes per extension.

    `sv.read_tar("shards/*.tar")`
    """
    from silva.io.tar import read_tar as source

    return from_source(source(paths, columns=columns))


def read_delta(
    path: str | PathLike[str], version: Any = None, *, columns: Sequence[str] | None = None
) -> Pipeline:
    """Reads a Delta Lake table at a version (a number or a time), by default the newest.

    `sv.read_delta("events", version=12)`
    """
    from silva.io.lake.delta import read_delta as source

    return from_source(source(path, version, columns))


def read_iceberg(
    table: Any, snapshot: int | None = None, *, columns: Sequence[str] | None = None
) -> Pipeline:
    """Reads an Iceberg table at a snapshot, by default the current one.

    `table` is the path of its metadata file, (catalog, name), or a table of pyiceberg.

    `sv.read_iceberg(("local", "shop.events"))`
    """
    from silva.io.lake.iceberg import read_iceberg as source

    return from_source(source(table, snapshot, columns))


def read_lance(
    path: str | PathLike[str], version: int | None = None, *, columns: Sequence[str] | None = None
) -> Pipeline:
    """Reads a Lance dataset at a version, by default the newest. Any row can be read alone.

    `sv.read_lance("photos.lance")`
    """
    from silva.io.lake.lance import read_lance as source

    return from_source(source(path, version, columns))


def from_items(items: Sequence[Mapping[str, Any]]) -> Pipeline:
    """Reads rows from a list of dicts.

    >>> from_items([{"x": 1}, {"x": 2}]).head(1)
    [{'x': 1}]
    """
    from silva.io.arrays.memory import from_items as source

    return from_source(source(items))


def from_columns(columns: Mapping[str, Any]) -> Pipeline:
    """Reads rows from columns of equal length: arrays, lists, ranges or tensors.

    >>> from_columns({"x": range(3)}).count()
    3
    """
    from silva.io.arrays.memory import from_columns as source

    return from_source(source(columns))


def from_arrow(data: Any) -> Pipeline:
    """Reads an Arrow table, or any object with the Arrow protocol: pyarrow, polars, DuckDB.

    >>> import pyarrow as pa
    >>> from_arrow(pa.table({"x": [1, 2]})).head(1)
    [{'x': 1}]
    """
    from silva.io.arrays.arrow import from_arrow as source

    return from_source(source(data))


def from_torch(dataset: Any, *, columns: Sequence[str] | None = None) -> Pipeline:
    """Reads a torch dataset, map-style or iterable. `columns` names the parts of a sample.

    >>> from_torch([(1, 2), (3, 4)], columns=("x", "y")).head(1)
    [{'x': 1, 'y': 2}]
    """
    from silva.io.datasets.torch import from_torch as source

    return from_source(source(dataset, columns=columns))


def from_huggingface(dataset: Any) -> Pipeline:
    """Reads a Hugging Face `Dataset` or `IterableDataset`. Images and sounds stay encoded bytes.

    `sv.from_huggingface(load_dataset("imdb", split="train"))`
    """
    from silva.io.datasets.huggingface import from_huggingface as source

    return from_source(source(dataset))
