"""What columns take in files, and how often their rows share what is stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from silva.store.layout import Grouped, Part, Plain, Slices
from silva.store.rows import open_file


def column_bytes(data: Path, part: Part) -> dict[str, int]:
    """The bytes of each column of a part; of a group that columns share, each has its share."""
    files = [open_file(data / file.name).sizes() for file in part.files]
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


def dedup_factor(data: Path, part: Part, name: str) -> float:
    """How many rows (of lists: items) there are for each one that is stored."""
    match part.columns[name]:
        case Grouped(group):
            values = part.groups[group].values
            inner = dedup_factor(data, values, name)
            return inner * part.rows / max(values.rows, 1)
        case Slices(file, _, length, items):
            reader = open_file(data / part.files[file].name, (length,))
            lengths = reader.take(range(part.rows))[length].batch()
            total = int(np.maximum(lengths, 0).sum())
            return total / max(open_file(data / part.files[items].name).rows, 1) if total else 1.0
    return 1.0
