"""Apache Iceberg: `pyiceberg` lists the files of a snapshot, and silva reads their rows.

Columns and fields of structs are found by their field id, so a renamed one is still found. Rows
deleted by position are left out; other kinds of deletes are refused.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from silva.errors import PlanError, SourceError
from silva.io.file_source import files_at
from silva.io.lake.field_numbers import leaf_fields
from silva.io.lake.table import Lake, LakeFile, in_order, local_path
from silva.io.names import chosen
from silva.io.objects.table_addresses import naming_table, table_location
from silva.io.paths import scheme_of


def read_iceberg(
    table: Any, snapshot: int | None = None, columns: Sequence[str] | None = None
) -> Lake:
    try:
        import pyiceberg.io.pyarrow
        from pyiceberg.exceptions import NoSuchTableError
    except ImportError:
        raise PlanError("read_iceberg needs pyiceberg: pip install 'silva[iceberg]'") from None
    try:
        is_local = scheme_of(table) in ("", "file")
        where = "" if is_local else table_location(table, "read_iceberg")
        with naming_table(where, "an Iceberg table"):
            opened = _opened(table)
    except (OSError, NoSuchTableError) as error:
        raise SourceError(f"{table!r} cannot be read as an Iceberg table: {error}") from error
    current = opened.current_snapshot()
    if snapshot is not None and opened.snapshot_by_id(snapshot) is None:
        raise SourceError(
            f"the Iceberg table has no snapshot {snapshot}: it has expired, or never existed"
        )
    wanted = snapshot if snapshot is not None or current is None else current.snapshot_id
    scan = opened.scan(snapshot_id=snapshot)  # without one, with the schema that the table has now
    schema = pyiceberg.io.pyarrow.schema_to_pyarrow(scan.projection())
    base = _plain(opened.location()).rstrip("/")
    tasks = [] if wanted is None else scan.plan_files()
    leaves = leaf_fields(schema)
    files = [_file(opened, scan.projection(), leaves, task, base) for task in tasks]
    title = f"iceberg {base}, snapshot {wanted}"
    return Lake(title, schema, in_order(files), chosen(columns), _mapped(opened))


def _mapped(table: Any) -> dict[str, int]:
    """The table's name mapping: field ids by dotted name, for files without field ids."""
    found: dict[str, int] = {}

    def add(prefixes: list[str], fields: Any) -> None:
        for field in fields:
            paths = [prefix + name for prefix in prefixes for name in field.names]
            found.update(dict.fromkeys(paths, field.field_id))
            add([f"{path}." for path in paths], field.fields)

    mapping = table.name_mapping()
    add([""], [] if mapping is None else mapping.root)
    return found


def _opened(table: Any) -> Any:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import StaticTable

    if isinstance(table, str | os.PathLike):
        return StaticTable.from_metadata(os.path.expanduser(os.fspath(table)), _endpoint())
    if isinstance(table, tuple) and len(table) == 2:
        catalog, name = table
        return (load_catalog(catalog) if isinstance(catalog, str) else catalog).load_table(name)
    if hasattr(table, "scan") and hasattr(table, "current_snapshot"):
        return table
    raise PlanError(
        "read_iceberg takes the path of a metadata file, (catalog, name) or a pyiceberg table, not "
        f"{table!r:.80}"
    )


def _endpoint() -> dict[str, str]:
    """Settings in the environment that pyiceberg does not read itself."""
    names = {"s3.endpoint": "AWS_ENDPOINT_URL", "s3.region": "AWS_REGION"}
    return {option: os.environ[name] for option, name in names.items() if os.environ.get(name)}


def _plain(path: str) -> str:
    """A path or an address as silva reads it: Iceberg has three schemes for S3."""
    for other in ("s3a://", "s3n://"):
        path = path.replace(other, "s3://", 1) if path.startswith(other) else path
    return local_path(path)


def _file(table: Any, schema: Any, columns: Collection[str], task: Any, base: str) -> LakeFile:
    path = _plain(task.file.file_path)
    if task.file.file_format.name != "PARQUET":
        raise SourceError(
            f"{path} is {task.file.file_format.name}, but silva reads only Parquet files: rewrite "
            "the table as Parquet"
        )
    name = path.removeprefix(f"{base}/") if scheme_of(path) else os.path.relpath(path, base)
    return LakeFile(path, name, _left_out(table, schema, columns, task.file), _deleted(task, path))


def _left_out(table: Any, schema: Any, columns: Collection[str], file: Any) -> dict[str, Any]:
    """Values of columns that a file may lack: identity partition columns, and columns that were
    added later with a default."""
    spec = table.specs()[file.spec_id]
    found: dict[str, Any] = {}
    for number in schema.field_ids:
        default, name = schema.find_field(number).initial_default, schema.find_column_name(number)
        if default is not None and name not in columns:
            raise SourceError(
                f"{name!r} has the default {default!r} within lists, which silva does not support: "
                "leave the column out with columns=[…]"
            )
        if default is not None:
            found[name] = default
    for place, field in enumerate(spec.fields):
        if str(field.transform) == "identity" and schema.find_column_name(field.source_id):
            found[schema.find_column_name(field.source_id)] = file.partition[place]
    return found


def _deleted(task: Any, path: str) -> np.ndarray | None:
    import pyarrow.parquet as pq

    parts = []
    for file in task.delete_files:
        if file.content.name != "POSITION_DELETES" or file.file_format.name != "PARQUET":
            kind = f"{file.content.name.lower()} in {file.file_format.name}"
            raise SourceError(
                f"rows of {path} are deleted by {kind}, which silva does not read: compact the "
                "table to remove deleted rows from its files"
            )
        with files_at([_plain(file.file_path)]).open_arrow(0) as stream:
            deletes = pq.read_table(stream, columns=["file_path", "pos"])
        own = np.array([_plain(p) == path for p in deletes.column("file_path").to_pylist()])
        parts.append(deletes.column("pos").to_numpy()[own])
    return np.unique(np.concatenate(parts)) if parts else None
