"""The present values of a column that is put again for some keys: other rows keep theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Values, to_arrow
from silva.errors import PlanError
from silva.store.append.normal_form import as_normal
from silva.store.derived.columns import Readers
from silva.store.derived.definitions import current, read_definition
from silva.store.derived.stored import is_stored, stored_name
from silva.store.versions.manifest import Fragment, Version
from silva.store.versions.table_folder import Folder


@dataclass(frozen=True)
class Present:
    """A given column of a version, by fragment."""

    fragments: Sequence[Fragment]
    fingerprint: str
    default: Any
    """One row, an Arrow array: the value of fragments that store none."""
    readers: Readers

    @staticmethod
    def of(folder: Folder, version: Version, name: str) -> Present | None:
        """None if the version has no such column."""
        fingerprint = current(folder, version).get(name)
        if fingerprint is None:
            return None
        given = read_definition(folder, fingerprint).given
        if given is None:
            raise PlanError(
                f"put: {name!r} is computed, so with keys=… all other rows would lose the values "
                "that its definition computes. Put one value for each row, without keys=…, to "
                "replace the column; or put these under another name"
            )
        fragments = tuple(folder.all_fragments(version))
        return Present(fragments, fingerprint, given.row(), Readers(folder.data))

    def with_new(self, name: str, array: Any) -> Any:
        """New values as a type that holds the present ones too."""
        import pyarrow as pa

        old, new = self.default.type, array.type
        if array.null_count == len(array):
            return pa.nulls(len(array), old)
        wider = pa.types.is_integer(old) and pa.types.is_floating(new)
        try:
            if _alike(old, new):
                return array.cast(pa.float64() if wider else old)
            why = ""
        except pa.ArrowException as error:
            why = f" ({error})"
        raise PlanError(
            f"put: {name!r} holds {old}, which the rows without a new value keep, and these are "
            f"{new}{why}. Put values that are {old}; one value for each row, without keys=…, to "
            "replace the column; or put these under another name"
        )

    def values(self, fragment: Fragment, kind: Any, rest: Any) -> Any:
        """The values of all rows of a fragment's files; None if all of them are null or `rest`."""
        import pyarrow as pa

        for part in fragment.parts:
            if (stored := stored_name(part, self.fingerprint)) is not None:
                rows = np.arange(fragment.rows)
                (column,) = self.readers.read(part, rows, (stored,)).values()
                if isinstance(column, Values):  # such as maps, whose type rows do not show
                    return pa.array(column.items, kind)
                return as_normal(pa.chunked_array([to_arrow(column)]), kind).combine_chunks()
        default = self.default.cast(kind)
        if default.null_count or default.equals(rest):
            return None
        return default.take(pa.array(np.zeros(fragment.rows, np.int64)))

    def misses(self, fragments: Iterable[Fragment], rest: Any) -> bool:
        """Whether some of these fragments, which were appended or restored since, have values that
        are not among the present ones and would become `rest`."""
        known = {fragment.id for fragment in self.fragments}
        default_stays = self.default.cast(rest.type).equals(rest) or self.default.null_count
        return any(
            not default_stays or is_stored(fragment, self.fingerprint)
            for fragment in fragments
            if fragment.id not in known
        )


def _alike(old: Any, new: Any) -> bool:
    """Whether values of a type can become values of the other without being read as text."""
    from pyarrow import types

    if old == new:
        return True
    if types.is_nested(old) and types.is_nested(new) and old.num_fields == new.num_fields == 1:
        return _alike(old.field(0).type, new.field(0).type)
    kinds = (_is_number, types.is_timestamp, types.is_duration)
    return any(is_kind(old) and is_kind(new) for is_kind in kinds)


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind))
