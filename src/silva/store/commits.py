"""Commits: a version is one file that appears under the next number, or does not.

Everything that it names is on the disk before. Where somebody else took the number first, the
commit is done again on top of theirs: `change` is asked for the next version of what the branch is
by then. It must not do the work again, only name what was written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from silva.errors import TableError
from silva.store.folder import Folder, publish
from silva.store.locks import held
from silva.store.manifest import Fragment, ListRef, Schema, Version, encode, merged_lists

Change = Callable[[Version], Version | None]
"""From the version that a branch has to the one it shall have; None where nothing changes."""

MAIN = "main"


def commit(folder: Folder, branch: str, change: Change) -> Version:
    """The version that a branch has after a change, made on top of whatever others commit."""
    while True:
        with held(folder.path, alone=False):
            head = folder.head(branch)
            made = change(head)
            if made is None:
                return head
            made = msgspec.structs.replace(
                made,
                number=head.number + 1,
                branch=branch,
                parent=(head.branch, head.number),
                time=max(_now(), head.time),
            )
            _check_named(folder, made)
            if publish(folder.version_file(branch, made.number), encode(made)):
                return made


def create(
    folder: Folder,
    schema: Schema,
    fragments: Sequence[Fragment],
    what: str,
    written: dict[str, int],
) -> Version:
    """The first version of a new table."""
    with held(folder.path, alone=False):
        first = Version(
            1, MAIN, None, _now(), what, folder.add(folder.schemas, schema),
            new_lists(folder, (), fragments), written=written,
        )  # fmt: skip
        if folder.is_table or not publish(folder.version_file(MAIN, 1), encode(first)):
            raise exists(folder)
    return first


def exists(folder: Folder) -> TableError:
    return TableError(
        f"{str(folder)!r} is a table already: append to it with sv.Table.open(path).append(data)"
    )


def fork(folder: Folder, start: Version, branch: str) -> Version:
    """A new branch that begins with what a version holds, or the branch of that name as it is."""
    with held(folder.path, alone=False):
        first = msgspec.structs.replace(
            start,
            number=start.number + 1,
            branch=branch,
            parent=(start.branch, start.number),
            time=max(_now(), start.time),
            what=f"branch from {start.branch} {start.number}",
        )
        _check_named(folder, first)
        if not folder.numbers(branch):
            publish(folder.version_file(branch, first.number), encode(first))
    return folder.head(branch)


def _check_named(folder: Folder, version: Version) -> None:
    """Nobody can collect files while the table is held: those that are there now stay."""
    named = [folder.lists / ref.name for ref in version.lists]
    named += [folder.definitions / fingerprint for _, fingerprint in version.definitions]
    for path in (*named, folder.schemas / version.schema):
        if not path.with_name(f"{path.name}.json").exists():
            raise TableError(
                f"version {version.number} of {str(folder)!r} was not committed: what it restores "
                "was collected by gc(versions=…) in the meantime"
            )


def new_lists(
    folder: Folder, lists: Sequence[ListRef], fragments: Sequence[Fragment]
) -> tuple[ListRef, ...]:
    """The lists of a version with more fragments; small ones are merged."""
    if not fragments:
        return tuple(lists)
    kept = len(lists) - merged_lists([ref.fragments for ref in lists], len(fragments))
    merged = [f for ref in lists[kept:] for f in folder.fragments(ref.name)]
    return (*lists[:kept], _add_list(folder, [*merged, *fragments]))


def changed_lists(
    folder: Folder, lists: Sequence[ListRef], changed: Mapping[str, Fragment | None]
) -> tuple[ListRef, ...]:
    """The lists of a version with some fragments replaced, by id, or gone; lists without one
    stay."""
    made: list[ListRef] = []
    for ref in lists:
        before = folder.fragments(ref.name)
        after = [changed.get(f.id, f) for f in before]
        if all(a is b for a, b in zip(after, before, strict=True)):
            made.append(ref)
        elif kept := [f for f in after if f is not None]:
            made.append(_add_list(folder, kept))
    return tuple(made)


def _add_list(folder: Folder, fragments: Sequence[Fragment]) -> ListRef:
    name = folder.add(folder.lists, list(fragments))
    return ListRef(name, len(fragments), sum(f.live for f in fragments))


def _now() -> float:
    """Seconds since 1970, as exactly as a `datetime` tells them."""
    return round(time.time(), 6)
