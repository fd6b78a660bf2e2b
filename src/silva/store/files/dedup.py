"""How each column of a part is stored, chosen by how much its rows repeat.

*Plain* is one value per row. *Grouped* stores each distinct value once, with an index from row to
value. *Slices* stores lists in one sequence; each row is a slice of it, which may overlap with
others: the kind for sliding histories.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from silva.columns import Column, Lists, from_arrow
from silva.columns.codes import codes, list_runs
from silva.columns.column import Array
from silva.columns.dictionary import expanded
from silva.columns.number_runs import appearance
from silva.errors import ColumnError
from silva.store.files.slices import is_list, share_items
from silva.store.versions.manifest import Kind

_LEAST_FACTOR = 1.5
"""A smaller saving (bytes before / bytes after) is not worth an index."""
_CLEARLY = 1.25
"""How many times smaller than grouped a column must become to be stored as slices."""
_INDEX, _BOUNDS = 4, 12
"""Bytes per row of an index, and of a slice's start and length."""
_NUMBER = 8
"""Values up to this many bytes are left to the file's compression, which handles repeats of them as
well as an index would."""


def check_kinds(schema: Any, kinds: Mapping[str, Kind]) -> None:
    """Raises for kinds that the columns of an Arrow schema cannot have."""
    for name, kind in kinds.items():
        if name not in schema.names:
            raise ColumnError(
                f"store={{{name!r}: {kind!r}}}: there is no such column; there are {schema.names}"
            )
        if kind not in ("plain", "grouped", "slices"):
            raise ColumnError(
                f"store={{{name!r}: …}} takes 'plain', 'grouped' or 'slices', not {kind!r}"
            )
        if kind == "slices" and not is_list(schema.field(name).type):
            raise ColumnError(
                f"column {name!r} is {schema.field(name).type}: only lists can be slices"
            )


def choose_kinds(sample: Any) -> dict[str, Kind]:
    """The kind for each column of an Arrow table whose rows are in the order of the part."""
    columns = {name: expanded(from_arrow(sample.column(name))) for name in sample.column_names}
    kinds: dict[str, Kind] = {name: _kind(column) for name, column in columns.items()}
    indices = [_index(columns[name]) for name, kind in kinds.items() if kind == "grouped"]
    for name, column in columns.items():
        if kinds[name] == "plain" and _is_number(column) and indices:
            own = _index(column)
            if any(np.array_equal(own, index) for index in indices):
                kinds[name] = "grouped"  # it shares an existing index
    return kinds


def _index(column: Column) -> np.ndarray:
    return appearance(codes(column))[1]


def _is_number(column: Column) -> bool:
    return isinstance(column, Array) and column.nbytes <= _NUMBER * len(column)


def _kind(column: Column) -> Kind:
    if isinstance(column, Lists):
        return _list_kind(column)
    if _is_number(column) or not len(column):
        return "plain"
    first, number = appearance(codes(column))
    grouped = column.take(first).nbytes + _INDEX * len(number)
    return "grouped" if column.nbytes >= _LEAST_FACTOR * grouped else "plain"


def _list_kind(column: Lists) -> Kind:
    runs = list_runs(column)
    rows, total = len(runs), int(runs.lengths.sum())
    if not total:
        return "plain"
    width = column.values.nbytes / max(len(column.values), 1)
    numbers = runs.numbers()
    first, _ = appearance(numbers)
    plain = total * width + _BOUNDS * rows
    grouped = int(runs.lengths[first].sum()) * width + _BOUNDS * len(first) + _INDEX * rows
    slices = len(share_items(runs, numbers).items) * width + _BOUNDS * rows
    if plain >= _LEAST_FACTOR * slices and grouped >= _CLEARLY * slices:
        return "slices"
    return "grouped" if plain >= _LEAST_FACTOR * grouped else "plain"
