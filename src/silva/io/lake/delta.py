"""Delta Lake: `deltalake` lists the files of a version, and silva reads their rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np

from silva.errors import PlanError, SourceError
from silva.io.lake.table import Lake, LakeFile, in_order, local_path
from silva.io.names import chosen
from silva.io.objects.table_addresses import client_options, file_at, naming_table, table_location


def read_delta(
    path: str | os.PathLike[str], version: Any = None, columns: Sequence[str] | None = None
) -> Lake:
    try:
        import deltalake
    except ImportError:
        raise PlanError("read_delta needs deltalake: pip install 'silva[delta]'") from None
    place = table_location(path, "read_delta")
    try:
        with naming_table(place, "a Delta table"):
            table = deltalake.DeltaTable(place, storage_options=client_options(place))
            if version is not None:
                table.load_as_version(version)
    except (OSError, ValueError, deltalake.exceptions.DeltaError) as error:
        raise SourceError(f"{place} cannot be read as a Delta table: {error}") from error
    _check(table, place)
    title = f"delta {place}, version {table.version()}"
    return Lake(title, _schema(table), _files(table, place), chosen(columns), {})


def _check(table: Any, place: str) -> None:
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise SourceError(
            f"{place} uses column mapping (delta.columnMapping.mode={mode!r}), which silva does "
            "not read: rewrite the table without it"
        )


def _schema(table: Any) -> Any:
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())


def _files(table: Any, place: str) -> tuple[LakeFile, ...]:
    import pyarrow as pa

    keys = table.metadata().partition_columns
    deleted = _deleted(table, place)
    found = []
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        name = unquote(action["path"])
        full = file_at(place, local_path(name))
        constants = {key: action[f"partition.{key}"] for key in keys}
        found.append(LakeFile(full, name, constants, deleted.pop(full, None)))
    if deleted:
        raise SourceError(
            f"{place} is damaged: its log deletes rows of files that it does not list: "
            f"{', '.join(deleted)}"
        )
    return in_order(found)


def _deleted(table: Any, place: str) -> dict[str, np.ndarray]:
    """The deleted rows of each file."""
    import pyarrow as pa

    rows = pa.table(table.deletion_vectors()).to_pylist()
    return {
        file_at(place, local_path(unquote(row["filepath"]))): np.flatnonzero(
            ~np.array(row["selection_vector"], dtype=bool)
        )
        for row in rows
    }
