"""What columns take in files, and how often their rows share what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from silva.store.layout import Grouped, Part, Plain, Slices


def column_bytes(data: Path, part: Part) -> dict[str, int]:
    """The bytes of each column of a part; of a group that columns share, each has its share."""
    files = [_file_columns(data / file.name) for file in part.files]
    found: dict[str, int] = {}
    for name, stored in part.columns.items():
        match stored:
            case Plain():
                found[name] = files[stored.file].get(stored.column, 0)
            case Slices():
                own = files[stored.file]
                index = own.get(stored.start, 0) + own.get(stored.length, 0)
                found[name] = index + part.files[stored.items].size
            case Grouped():
                group = part.groups[stored.group]
                shared = files[group.file].get(group.index, 0) // len(group.values.columns)
                found[name] = shared + column_bytes(data, group.values)[name]
    return found


def _file_columns(path: Path) -> dict[str, int]:
    reader = _open(path)
    names = reader.metadata().schema.names
    sizes = [column.size_bytes for column in reader.file_statistics().columns]
    return dict(zip(names, sizes, strict=len(names) == len(sizes)))


def _open(path: Path) -> Any:
    from lance.file import LanceFileReader

    return LanceFileReader(str(path))


def dedup_factor(data: Path, part: Part, name: str) -> float:
    """How many rows (of lists: items) there are for each one that is stored."""
    match part.columns[name]:
        case Grouped(group):
            values = part.groups[group].values
            inner = dedup_factor(data, values, name)
            return inner * part.rows / max(values.rows, 1)
        case Slices(file, _, length, items):
            reader = _open(data / part.files[file].name)
            lengths = reader.read_all().to_table().column(length).to_numpy()
            total = int(np.maximum(lengths, 0).sum())
            return total / max(_open(data / part.files[items].name).num_rows(), 1) if total else 1.0
    return 1.0
