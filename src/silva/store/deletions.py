"""Deletions: positions of deleted rows, beside files that stay as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from silva.facts.formatting import plural
from silva.pipeline import Pipeline
from silva.plan import node as logical
from silva.plan.expr import Expr, RowId
from silva.store.append.data_writer import DataWriter, read_deleted
from silva.store.derived.table_source import TableSource
from silva.store.versions import commits
from silva.store.versions.manifest import Fragment, Version
from silva.store.versions.table_folder import Folder

_ROW = "silva.row"
_BATCH = 1 << 16


@dataclass(frozen=True, eq=False)
class Deletion:
    """Rows to delete, by fragment."""

    positions: dict[str, np.ndarray]
    """Positions in the files of a fragment, ascending."""

    def change(self, folder: Folder, writer: DataWriter) -> commits.Change:
        """The deletion on top of any version: rows that were appended meanwhile stay, as if they
        had been appended afterwards."""

        def change(head: Version) -> Version | None:
            changed: dict[str, Fragment | None] = {}
            count = 0
            for fragment in folder.all_fragments(head):
                if fragment.id not in self.positions:
                    continue
                before = read_deleted(folder.data, fragment)
                after = np.union1d(before, self.positions[fragment.id])
                count += len(after) - len(before)
                if len(after) == fragment.rows:
                    changed[fragment.id] = None
                elif len(after) > len(before):
                    new = writer.deleted(after)
                    changed[fragment.id] = msgspec.structs.replace(fragment, deleted=new)
            if not changed:
                return None
            lists = commits.changed_lists(folder, head.lists, changed)
            return msgspec.structs.replace(head, lists=lists, what=f"delete {plural(count, 'row')}")

        return change


def delete_rows(pipeline: Pipeline, where: Any) -> Deletion:
    """Finds the rows of a table's pipeline for which a condition is true."""
    source = next(n.source for n in logical.walk(pipeline.plan) if isinstance(n, logical.Source))
    assert isinstance(source, TableSource)
    found = pipeline.derive(Expr(RowId()), into=_ROW).filter(where).select(_ROW).batch(_BATCH)
    few = source.length() <= _BATCH
    with found.loader(backend="inline" if few else "auto", rank=0, world=1) as loader:
        rows = [batch[_ROW].astype(np.int64) for batch in loader]
    if not rows:
        return Deletion({})
    numbers = np.sort(np.concatenate(rows))
    places = source.places(numbers)
    return Deletion(
        {
            source.fragments[place].id: source.within(place, numbers[places == place])
            for place in np.unique(places).tolist()
        }
    )
