"""Which store a cache gets: on disk only where a later run can tell whose rows they are."""

from __future__ import annotations

import hashlib
import os
import warnings
from typing import Any

from silva.io.paths import local_files_of
from silva.operators._join.tables import Held, held_in
from silva.physical import plan as physical
from silva.plan.fingerprint import opaque_parts
from silva.run.about import about_rows
from silva.run.filestore import FileStore
from silva.run.open_shelf import shelf_at
from silva.run.rowstore import MemoryStore, Room, RowStore


def open_store(node: physical.CacheRows, room: Room) -> RowStore:
    """The store of a cache: in its folder, if it has one and its rows can be told from others."""
    folder = node.spec.folder
    if folder is None:
        return MemoryStore(room)
    source = cached_source(node)
    culprit = _unstable(node, source)
    if culprit is not None:
        warnings.warn(
            f"cache({folder!r}) keeps rows in memory, for this loader only: {culprit}, so a "
            "later run could not tell whether rows on disk are still its own",
            stacklevel=2,
        )
        return MemoryStore(room)
    about = about_rows(node, source.describe())
    fingerprint = node.fingerprint + _modified(source) + _joined(node)
    return FileStore(shelf_at(folder), fingerprint, about, room, node.spec.limit)


def cached_source(node: physical.CacheRows) -> Any:
    """The one source that a cache's rows come from."""
    (source,) = physical.sources(node)
    return source


def _unstable(node: physical.CacheRows, source: Any) -> str | None:
    """Why the fingerprint does not hold beyond this process, if it does not."""
    opaque = opaque_parts(node.input.stage.steps)
    if opaque:
        return f"a step below it uses {opaque[0]!r}, which has no stable fingerprint"
    for held in _tables(node):
        if held.opaque:
            return f"a table that it joins uses {held.opaque[0]!r}, which has no stable fingerprint"
    if type(source).__module__ == "silva.io.torch":
        return f"the {source.describe()} is known by its type and length only"
    return None


def _tables(node: physical.CacheRows) -> list[Held]:
    """What the steps below a cache look into."""
    terms = [getattr(s, "term", getattr(s, "step", None)) for s in node.input.stage.steps]
    return [held for term in terms for held in held_in(term)]


def _joined(node: physical.CacheRows) -> str:
    """The contents of joined tables: their files may have changed without changing size."""
    contents = "".join(held.contents() for held in _tables(node))
    return f"-{hashlib.blake2b(contents.encode(), digest_size=8).hexdigest()}" if contents else ""


def _modified(source: Any) -> str:
    """When the source's files were last written. The fingerprint leaves this out, so that states
    move between machines; rows on disk must not outlive the files they were made of."""
    files = local_files_of(source)
    if files is None:
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for path in files.listing.paths:
        digest.update(b"%d\n" % os.stat(os.path.join(files.folder, path)).st_mtime_ns)
    return f"-{digest.hexdigest()}"
