"""Commits: a version is one file that appears under the next number, or does not.

Everything that it names is on the disk before. A commit holds the table alone (`locks`) while
`change` makes the next version of what the branch is by then. Others wait meanwhile, so `change`
must not repeat the work, only name what was written. Where a file system does not honour the lock,
another process may take the number first: then the commit starts again on top of that version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from silva.errors import TableError
from silva.store.versions.locks import hold_table
from silva.store.versions.manifest import Fragment, ListRef, Schema, Version, merged_lists
from silva.store.versions.table_folder import Folder

Change = Callable[[Version], Version | None]
"""From the version that a branch has to the next one; None where nothing changes."""

MAIN = "main"


def commit(folder: Folder, branch: str, change: Change) -> Version:
    """Applies a change to the newest version of a branch; returns the version that results."""
    while True:
        with hold_table(folder.path):
            head = folder.head(branch)
            made = change(head)
            if made is None:
                return head
            made = _successor(folder, head, branch, made)
            if folder.publish_version(made):
                return made


def create(
    folder: Folder,
    schema: Schema,
    fragments: Sequence[Fragment],
    what: str,
    written: dict[str, int],
) -> Version:
    """The first version of a new table."""
    with hold_table(folder.path):
        first = Version(
            1, MAIN, None, _now(), what, folder.add("schemas", schema),
            new_lists(folder, (), fragments), written=written,
        )  # fmt: skip
        if folder.is_table or not folder.publish_version(first):
            raise exists(folder)
    return first


def exists(folder: Folder) -> TableError:
    return TableError(
        f"{str(folder)!r} is already a table: append to it with sv.Table.open(path).append(data)"
    )


def fork(folder: Folder, start: Version, branch: str) -> Version:
    """Starts a branch with the contents of a version; an existing branch stays as it is."""
    with hold_table(folder.path):
        what = f"branch from {start.branch} {start.number}"
        first = _successor(folder, start, branch, msgspec.structs.replace(start, what=what))
        if not folder.numbers(branch):
            folder.publish_version(first)
    return folder.head(branch)


def _successor(folder: Folder, parent: Version, branch: str, made: Version) -> Version:
    """A version as the next one after its parent."""
    made = msgspec.structs.replace(
        made,
        number=parent.number + 1,
        branch=branch,
        parent=(parent.branch, parent.number),
        time=max(_now(), parent.time),
    )
    _check_named(folder, made)
    return made


def _check_named(folder: Folder, version: Version) -> None:
    """Raises unless all files that a version names exist. While the table is held, no `gc` can
    remove them."""
    named = [("lists", ref.name) for ref in version.lists]
    named += [("definitions", fingerprint) for _, fingerprint in version.definitions]
    for kind, name in (*named, ("schemas", version.schema)):
        if not folder.has(kind, name):
            raise TableError(
                f"version {version.number} of {str(folder)!r} was not committed: what it restores "
                "has been collected by gc(versions=…) meanwhile. Choose another version"
            )


def new_lists(
    folder: Folder, lists: Sequence[ListRef], fragments: Sequence[Fragment]
) -> tuple[ListRef, ...]:
    """The lists of a version with further fragments; small lists are merged."""
    if not fragments:
        return tuple(lists)
    kept = len(lists) - merged_lists([ref.fragments for ref in lists], len(fragments))
    merged = [f for ref in lists[kept:] for f in folder.fragments(ref)]
    return (*lists[:kept], _add_list(folder, [*merged, *fragments]))


def replace_fragments(
    folder: Folder, head: Version, changed: Mapping[str, Fragment | None], what: str
) -> Version | None:
    """A version with some fragments, by id, replaced or removed; None where there are none. Lists
    without such fragments stay."""
    if not changed:
        return None
    lists: list[ListRef] = []
    for ref in head.lists:
        fragments = folder.fragments(ref)
        if not any(f.id in changed for f in fragments):
            lists.append(ref)
        elif kept := [new for f in fragments if (new := changed.get(f.id, f)) is not None]:
            lists.append(_add_list(folder, kept))
    return msgspec.structs.replace(head, lists=tuple(lists), what=what)


def _add_list(folder: Folder, fragments: Sequence[Fragment]) -> ListRef:
    name = folder.add("lists", list(fragments))
    return ListRef(name, len(fragments), sum(f.live for f in fragments))


def _now() -> float:
    """Seconds since 1970, with the precision of a `datetime`."""
    return round(time.time(), 6)
