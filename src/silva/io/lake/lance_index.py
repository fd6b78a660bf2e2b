"""Which rows can meet a comparison, by the indices of a Lance dataset.

Only fragments that an index covers are queried, so that no column is scanned; rows of the others
are kept. A query to Lance is a little wider than the comparison, and the rows that it finds are
filtered as usual: Lance orders NaN and the two zeros where numpy does not, and a number compared
with a column of float32 is rounded by one and not by the other.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from silva.errors import SourceError
from silva.io.conditions import Condition
from silva.io.source import remembered

_RANGES = frozenset({"BTree", "Bitmap", "ZoneMap"})
"""Indices with an order; the others are for text, vectors and single values."""
_EXACT = float(1 << 53)
"""From this number on, an integer and its float may differ."""


class Indices:
    """The indices of one version of a dataset."""

    def __init__(self, dataset: Any, starts: np.ndarray) -> None:
        self._dataset, self._starts = dataset, starts
        self._fragments = dataset.get_fragments()
        self._places = {fragment.fragment_id: i for i, fragment in enumerate(self._fragments)}

    @functools.cached_property
    def _covered(self) -> dict[str, frozenset[int]]:
        """The fragments that the index of each column covers."""
        covered: dict[str, frozenset[int]] = {}
        for index in self._dataset.describe_indices():
            if index.index_type in _RANGES:
                (name,) = index.field_names
                here = frozenset().union(*(segment.fragment_ids for segment in index.segments))
                covered[name] = covered.get(name, frozenset()) | (here & self._places.keys())
        return covered

    @remembered(8)
    def possible(self, conditions: tuple[Condition, ...]) -> np.ndarray | None:
        """Whether each row can meet all conditions, in one bit; None if no index applies."""
        found: np.ndarray | None = None
        for name in dict.fromkeys(c.column for c in conditions):
            fragments = self._covered.get(name, frozenset())
            queried = _lance_filter(
                self._dataset.schema, [c for c in conditions if c.column == name]
            )
            if queried and fragments:
                mask = self._ask(queried, fragments)
                found = mask if found is None else found & mask
        return None if found is None else np.packbits(found, bitorder="little")

    def _ask(self, wanted: str, fragments: frozenset[int]) -> np.ndarray:
        mask = np.ones(self._starts[-1], dtype=bool)
        queried = [f for f in self._fragments if f.fragment_id in fragments]
        for fragment in queried:
            place = self._places[fragment.fragment_id]
            mask[self._starts[place] : self._starts[place + 1]] = False
        scanner = self._dataset.scanner(
            columns=[], filter=wanted, fragments=queried, with_row_address=True
        )
        try:
            for batch in scanner.to_batches():
                mask[self._positions(_addresses(batch))] = True
        except (OSError, ValueError, RuntimeError) as error:
            raise SourceError(
                f"{self._dataset.uri}: the index cannot be searched for {wanted} ({error}): "
                "make the index again, or drop it"
            ) from error
        return mask

    def _positions(self, addresses: np.ndarray) -> np.ndarray:
        """The indices of rows, from their addresses."""
        found = np.empty_like(addresses)
        of, within = addresses >> 32, addresses & 0xFFFFFFFF
        for fragment in np.unique(of).tolist():
            here, place = of == fragment, self._places[fragment]
            local = within[here]
            if self._fragments[place].num_deletions:
                local = np.searchsorted(self._live(place), local)
            found[here] = self._starts[place] + local
        return found

    @remembered(1)
    def _live(self, place: int) -> np.ndarray:
        """The positions in a fragment of the rows that are not deleted."""
        rows = self._fragments[place].scanner(columns=[], with_row_address=True).to_table()
        return _addresses(rows) & 0xFFFFFFFF


def _addresses(rows: Any) -> np.ndarray:
    found: np.ndarray = rows.column("_rowaddr").to_numpy().astype(np.int64)
    return found


def _lance_filter(schema: Any, conditions: list[Condition]) -> str:
    """A filter for Lance that every row passes that meets the conditions on a column; empty if no
    such filter is known.

    >>> import pyarrow as pa
    >>> _lance_filter(pa.schema([("n", pa.int8())]), [Condition("n", "greater", 2.5)])
    '`n` >= 2'
    >>> _lance_filter(pa.schema([("n", pa.string())]), [Condition("n", "greater", 2.5)])
    ''
    """
    name = conditions[0].column
    if name not in schema.names or "`" in name or "." in name:
        return ""
    kind, parts = schema.field(name).type, []
    for condition in conditions:
        least, most = _bounds(kind, condition)
        parts += [] if least is None else [f"`{name}` >= {least!r}"]
        parts += [] if most is None else [f"`{name}` <= {most!r}"]
    return " AND ".join(parts)


def _bounds(kind: Any, condition: Condition) -> tuple[float | None, float | None]:
    """The interval in which a value must be to meet the condition."""
    import pyarrow as pa

    value = condition.value
    if not abs(value) < _EXACT:
        return None, None
    least: float | None
    most: float | None
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        least, most = int(np.floor(value)), int(np.ceil(value))
        least = None if least <= limits.min else min(least, int(limits.max))
        most = None if most >= limits.max else max(most, int(limits.min))
    elif pa.types.is_float32(kind) or pa.types.is_float64(kind):
        near = np.float32(value)
        least = float(np.nextafter(near, np.float32(-np.inf)))
        most = float(np.nextafter(near, np.float32(np.inf)))
    else:
        return None, None
    return (
        None if condition.op in ("less", "less_equal") else least,
        None if condition.op in ("greater", "greater_equal") else most,
    )
