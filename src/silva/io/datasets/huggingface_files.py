"""The files of images, sounds and the like that a Hugging Face dataset stores by path.

Such a feature is a struct of `bytes` and `path`, either of which may be null. If the bytes are
null, they are read from the file, as `datasets` itself does when it decodes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from silva.columns import Column, Lists, Strings, Values
from silva.errors import SourceError

_BYTES, _PATH = ".bytes", ".path"


def stored_by_path(features: Any, prefix: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that may be paths: features by their names without `.bytes`, and lists of them.

    A feature of files has `embed_storage`, which a struct of the user has not."""
    single: list[str] = []
    lists: list[str] = []
    for name, feature in features.items():
        if isinstance(feature, Mapping):
            inner = stored_by_path(feature, f"{prefix}{name}.")
            single += inner[0]
            lists += inner[1]
        elif hasattr(feature, "embed_storage"):
            single.append(prefix + name)
        elif hasattr(_item(feature), "embed_storage"):
            lists.append(prefix + name)
    return tuple(single), tuple(lists)


def _item(feature: Any) -> Any:
    if isinstance(feature, list):
        return feature[0] if feature else None
    return getattr(feature, "feature", None)


def needed(columns: tuple[str, ...], single: tuple[str, ...]) -> tuple[str, ...]:
    """The columns to read: bytes that are null need the path."""
    paths = (name + _PATH for name in single if name + _BYTES in columns)
    return (*columns, *(path for path in paths if path not in columns))


def with_files(
    found: dict[str, Column], single: tuple[str, ...], lists: tuple[str, ...], folder: str
) -> dict[str, Column]:
    """The columns, with bytes read from files; relative paths are relative to `folder`."""
    out = dict(found)
    for name in single:
        if name + _BYTES in found:
            out[name + _BYTES] = _read(found[name + _BYTES], found[name + _PATH], folder)
    for name in lists:
        if name in found:
            out[name] = _read_lists(found[name], folder)
    return out


def _read(data: Column, paths: Column, folder: str) -> Column:
    if isinstance(data, Strings) and not data.data.null_count:
        return data
    import pyarrow as pa

    pairs = zip(data.rows(), paths.rows(), strict=True)
    items = [_file(path, folder) if one is None and path else one for one, path in pairs]
    return Strings(pa.array(items, pa.large_binary()))


def _read_lists(column: Column, folder: str) -> Column:
    """Lists of structs are dicts."""
    if not isinstance(column, Lists) or not isinstance(column.values, Values):
        return column
    values = Values(list(_with_bytes(column.values.items, folder)))
    return Lists(values, column.offsets, column.valid)


def _with_bytes(items: list[Any], folder: str) -> Iterator[Any]:
    for item in items:
        if isinstance(item, dict) and item.get("bytes") is None and item.get("path"):
            yield {**item, "bytes": _file(item["path"], folder)}
        else:
            yield item


def _file(path: str, folder: str) -> bytes:
    try:
        if "://" in path:  # within an archive or remote: datasets opens it
            from datasets.utils.file_utils import xopen

            with xopen(path, "rb") as file:
                data: bytes = file.read()
                return data
        with open(os.path.join(folder, path), "rb") as file:
            return file.read()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise SourceError(
            f"the dataset names the file {path!r}, which cannot be read: {why}. Relative paths "
            f"are looked up in {folder!r}"
        ) from error
