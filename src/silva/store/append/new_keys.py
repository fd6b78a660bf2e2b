"""Unique keys: the rows of an append are compared with each other and with the table.

Key columns are read only of fragments whose least and greatest key could enclose a new one. Keys
that grow (times, counters) read next to nothing; random keys read the key columns of the whole
table, once per append.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from silva.columns import to_arrow
from silva.errors import TableError
from silva.store.append.data_writer import read_deleted
from silva.store.files.part_files import PartReader
from silva.store.versions.manifest import Bound, Fragment
from silva.store.versions.table_folder import Folder


class NewKeys:
    """The keys of an append, and the fragments they were compared with."""

    def __init__(self, folder: Folder, names: tuple[str, ...]) -> None:
        self._folder = folder
        self._names = names
        self._tables: list[Any] = []
        self._fragments: list[Fragment] = []
        self._compared: set[tuple[str, str]] = set()

    def add(self, rows: Any, fragment: Fragment) -> None:
        if self._names:
            self._tables.append(rows.select(self._names))
            self._fragments.append(fragment)

    def check_within(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._tables:
            return
        keys = pa.concat_tables(self._tables)
        for name in self._names:
            if keys.column(name).null_count:
                raise TableError(
                    f"the key {name!r} of a row is null. Nothing was appended; fill it, or "
                    "filter such rows out"
                )
        counted = keys.group_by(self._names).aggregate([([], "count_all")])
        twice = counted.filter(pc.greater(counted.column("count_all"), 1))
        if twice.num_rows:
            raise self._duplicate(twice, "given twice")

    def check_against(self, fragments: Iterable[Fragment]) -> None:
        """Raises for keys that fragments of the table hold. Fragments that were compared before are
        not read again."""
        import pyarrow as pa

        if not self._tables:
            return
        new = pa.concat_tables(self._tables)
        for fragment in fragments:
            mark = (fragment.id, fragment.deleted.file.name if fragment.deleted else "")
            if mark in self._compared:
                continue
            self._compared.add(mark)
            if not any(self._may_meet(own, fragment) for own in self._fragments):
                continue
            both = new.join(self._stored(fragment), self._names, join_type="inner")
            if both.num_rows:
                raise self._duplicate(both, "already in the table")

    def _may_meet(self, own: Fragment, other: Fragment) -> bool:
        for name in self._names:
            here, there = own.statistics.get(name), other.statistics.get(name)
            if here and there and not _overlap(here, there):
                return False
        return True

    def _stored(self, fragment: Fragment) -> Any:
        import pyarrow as pa

        rows = live_rows(self._folder, fragment)
        found = PartReader(self._folder.data, fragment.parts[0]).read(rows, self._names)
        first = self._tables[0].schema
        return pa.table(
            {name: to_arrow(found[name]).cast(first.field(name).type) for name in self._names}
        )

    def _duplicate(self, rows: Any, where: str) -> TableError:
        shown = ", ".join(f"{name}={rows.column(name)[0].as_py()!r}" for name in self._names)
        more = f" (and {rows.num_rows - 1:,} more)" if rows.num_rows > 1 else ""
        return TableError(f"the key {shown}{more} is {where}. Nothing was appended")


def live_rows(folder: Folder, fragment: Fragment) -> np.ndarray:
    """The positions of a fragment's live rows."""
    rows = np.arange(fragment.rows)
    if fragment.deleted is None:
        return rows
    return np.delete(rows, read_deleted(folder.data, fragment))


def _overlap(a: tuple[Bound, Bound], b: tuple[Bound, Bound]) -> bool:
    try:
        return a[0] <= b[1] and b[0] <= a[1]  # type: ignore[operator]
    except TypeError:
        return True
