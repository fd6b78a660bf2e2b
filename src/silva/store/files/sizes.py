"""The bytes of columns in files, and how many rows share each stored value."""

from __future__ import annotations

import numpy as np

from silva.folders import OwnFolder
from silva.store.files.part_files import open_file
from silva.store.versions.layout import InGroup, Part, Plain, Slices


def column_bytes(data: OwnFolder, part: Part) -> dict[str, int]:
    """The bytes of each column of a part; the columns of a group share the bytes of its index."""
    files = [open_file(data, file).sizes() for file in part.files]
    found: dict[str, int] = {}
    for name, stored in part.columns.items():
        match stored:
            case Plain():
                found[name] = files[stored.file].get(stored.column, 0)
            case Slices():
                own = files[stored.file]
                index = own.get(stored.start, 0) + own.get(stored.length, 0)
                found[name] = index + part.files[stored.items].size
            case InGroup():
                group = part.groups[stored.group]
                shared = files[group.file].get(group.index, 0) // len(group.values.columns)
                found[name] = shared + column_bytes(data, group.values)[name]
    return found


def dedup_factor(data: OwnFolder, part: Part, name: str) -> float:
    """Rows (for lists: items) per stored one."""
    match part.columns[name]:
        case InGroup(group):
            values = part.groups[group].values
            inner = dedup_factor(data, values, name)
            return inner * part.rows / max(values.rows, 1)
        case Slices(file, _, length, items):
            reader = open_file(data, part.files[file], (length,))
            lengths = reader.take(range(part.rows))[length].batch()
            total = int(np.maximum(lengths, 0).sum())
            return total / max(open_file(data, part.files[items]).rows, 1) if total else 1.0
    return 1.0
