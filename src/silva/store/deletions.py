"""Deletions: which rows are no more, without touching the files that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from silva.insight.words import plural
from silva.pipeline import Pipeline
from silva.plan import node as logical
from silva.plan.expr import Expr, RowId
from silva.store import commits
from silva.store.folder import Folder
from silva.store.manifest import Fragment, Version
from silva.store.source import TableSource
from silva.store.writer import Writer, read_deleted

_ROW = "silva.row"
_BATCH = 1 << 16


@dataclass(frozen=True, eq=False)
class Deletion:
    """Rows that are to go, by fragment."""

    positions: dict[str, np.ndarray]
    """Positions in the files of a fragment, ascending."""

    def change(self, folder: Folder, writer: Writer) -> commits.Change:
        """The deletion on top of any version: rows that came in the meantime stay, as if they had
        come afterwards."""

        def change(head: Version) -> Version | None:
            changed: dict[str, Fragment | None] = {}
            count = 0
            for fragment in folder.all_fragments(head):
                if fragment.id not in self.positions:
                    continue
                before = read_deleted(folder.data, fragment.deleted)
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
