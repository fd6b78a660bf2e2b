"""Deletions: positions of deleted rows, beside files that stay as they are."""

from __future__ import annotations

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


Deletion = dict[str, np.ndarray]
"""The rows to delete: positions in the files of a fragment, ascending, by its id."""


def find_rows(pipeline: Pipeline, where: Any) -> Deletion:
    """Finds the rows of a table's pipeline for which a condition is true."""
    source = next(n.source for n in logical.walk(pipeline.plan) if isinstance(n, logical.Source))
    assert isinstance(source, TableSource)
    found = pipeline.derive(Expr(RowId()), into=_ROW).filter(where).select(_ROW).batch(_BATCH)
    few = source.length() <= _BATCH
    with found.loader(backend="inline" if few else "auto", rank=0, world=1) as loader:
        rows = [batch[_ROW].astype(np.int64) for batch in loader]
    numbers = np.sort(np.concatenate([np.empty(0, np.int64), *rows]))
    places = source.places(numbers)
    return {
        source.fragments[place].id: source.within(place, numbers[places == place])
        for place in np.unique(places).tolist()
    }


def without_rows(
    folder: Folder, writer: DataWriter, positions: Deletion, head: Version
) -> Version | None:
    """The commit that deletes rows from any version: rows that were appended meanwhile stay, as if
    they had been appended afterwards."""
    changed: dict[str, Fragment | None] = {}
    count = 0
    for fragment in folder.all_fragments(head):
        if fragment.id not in positions:
            continue
        before = read_deleted(folder.data, fragment)
        after = np.union1d(before, positions[fragment.id])
        count += len(after) - len(before)
        if len(after) == fragment.rows:
            changed[fragment.id] = None
        elif len(after) > len(before):
            deleted = writer.deleted(after)
            changed[fragment.id] = msgspec.structs.replace(fragment, deleted=deleted)
    return commits.replace_fragments(folder, head, changed, f"delete {plural(count, 'row')}")
