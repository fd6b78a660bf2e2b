"""Opens the store of a cache, and the shelf at a place.

Rows go to storage only where a later run can tell whether they are still its own.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import warnings
from datetime import UTC, datetime
from pathlib import Path

from silva.cache.file_store import FileStore
from silva.cache.folder_shelf import FolderShelf
from silva.cache.row_store import CacheBudget, MemoryStore, RowStore
from silva.cache.shelf import Shelf
from silva.cache.shelf_index import About
from silva.errors import PlanError, printable
from silva.io.file_source import local_files_of
from silva.io.objects.addresses import parse_address
from silva.io.paths import SCHEMES, scheme_of
from silva.io.source import RowSource
from silva.operators.join.tables import Held, held_in
from silva.physical import plan as physical
from silva.physical.stage.steps import Spread
from silva.plan.fingerprint import opaque_parts
from silva.plan.schema import columns
from silva.plan.show import show_plan

_WRITABLE = tuple(scheme for scheme in SCHEMES if not scheme.startswith("http"))


def place_of(given: str | os.PathLike[str]) -> str:
    """A place as plans hold it, without credentials; PlanError where no rows can be kept.

    >>> place_of("s3://bucket/rows/"), place_of("here/rows/")
    ('s3://bucket/rows', 'here/rows')
    """
    scheme = scheme_of(given)
    if not scheme:
        place = str(Path(given))
        if place.startswith(tuple(f"{each}:/" for each in SCHEMES)):
            raise PlanError(
                "an address must be a str: pathlib.Path turns the two slashes of "
                f"{place.split(':')[0]}:// into one"
            )
        return place
    if scheme not in _WRITABLE:  # the rest may hold credentials and is not repeated
        raise PlanError(
            f"{scheme}:// addresses cannot keep rows, since they cannot be listed and written; "
            f"{', '.join(_WRITABLE)} and local folders can"
        )
    address = parse_address(os.fspath(given))
    return address.root.shown(address.key.strip("/")).rstrip("/")


def shelf_at(place: str | os.PathLike[str]) -> Shelf:
    """The shelf at a folder or an address.

    >>> shelf_at("rows").shown.endswith("/rows")
    True
    """
    found = place_of(place)
    if not scheme_of(found):
        return FolderShelf(Path(found).absolute())
    from silva.cache.object_shelf import ObjectShelf

    return ObjectShelf(parse_address(found))


def open_store(node: physical.CacheRows, budget: CacheBudget) -> RowStore:
    """The store of a cache: at its place, if it has one and its fingerprint is stable."""
    place = node.spec.folder
    if place is None:
        return MemoryStore(budget)
    source = cached_source(node)
    reason = _why_unstable(node, source)
    if reason is not None:
        warnings.warn(
            f"cache({place!r}) keeps rows in memory, for this loader only: {reason}, so a "
            "later run could not tell whether rows on disk are still its own",
            stacklevel=2,
        )
        return MemoryStore(budget)
    fingerprint = node.fingerprint + _modified(source) + _joined(node)
    explodes = sum(isinstance(step, Spread) for step in node.input.stage.steps)
    about = _about(node, source.describe())
    return FileStore(shelf_at(place), fingerprint, about, budget, node.spec.limit, explodes)


def cached_source(node: physical.CacheRows) -> RowSource:
    """The one source that a cache's rows come from."""
    source: RowSource
    (source,) = physical.sources(node)
    return source


def _about(node: physical.CacheRows, source: str) -> About:
    plan = node.spec.input
    _, *steps = reversed(show_plan(plan).split("\n"))  # without the source, which comes last
    now = datetime.now(UTC).isoformat(timespec="seconds")
    version = importlib.metadata.version("silva")
    return About(steps, source, list(map(printable, columns(plan))), version, now)


def _why_unstable(node: physical.CacheRows, source: RowSource) -> str | None:
    """Why the fingerprint does not hold beyond this process; None if it does."""
    opaque = opaque_parts(node.input.stage.steps)
    if opaque:
        return f"a step below it uses {opaque[0]!r}, which has no stable fingerprint"
    for held in _tables(node):
        if held.opaque:
            return f"a table that it joins uses {held.opaque[0]!r}, which has no stable fingerprint"
    if not source.identifies_rows:
        return f"the {source.describe()} is known by its type and length only"
    return None


def _tables(node: physical.CacheRows) -> list[Held]:
    """The tables that the steps below a cache join."""
    terms = [step.runs for step in node.input.stage.steps]
    return [held for term in terms for held in held_in(term)]


def _joined(node: physical.CacheRows) -> str:
    """A digest of the joined tables: their files may have changed without changing size."""
    contents = "".join(held.contents() for held in _tables(node))
    return f"-{hashlib.blake2b(contents.encode(), digest_size=8).hexdigest()}" if contents else ""


def _modified(source: RowSource) -> str:
    """A digest of the modification times of the source's files. The fingerprint leaves them out, so
    that states move between machines; rows on disk must not outlive the files they come from."""
    files = local_files_of(source)
    if files is None:
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for path in files.listing.paths:
        digest.update(b"%d\n" % os.stat(os.path.join(files.folder, path)).st_mtime_ns)
    return f"-{digest.hexdigest()}"
