"""Garbage collection: removes files that no version names, and that no running writer may commit.

The table is held alone meanwhile, so nobody commits. Old versions go first, then lists, then data:
what a killed `gc` leaves, the next one removes. A symbolic link is removed as such, and never what
it points to (`silva.folders`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from silva.errors import PlanError
from silva.folders import OwnFolder
from silva.store.derived.stored import stored_name
from silva.store.versions import commits
from silva.store.versions.locks import hold_table, try_lock_folder
from silva.store.versions.manifest import Collected, Fragment, Version, files_of
from silva.store.versions.table_folder import UNFINISHED, Folder, as_table_error


@dataclass(frozen=True)
class Removed:
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.files + other.files, self.bytes + other.bytes)


def forget_columns(folder: Folder, versions: int) -> None:
    """Commits to each branch a version without the stored data of columns that are no longer
    defined: neither by the last `versions` of any branch nor by a tagged version."""
    _check(versions)
    last = [folder.entry(b, n) for b in folder.branches() for n in folder.numbers(b)[-versions:]]
    tagged = [folder.entry(tag.branch, tag.number) for tag in folder.all_tags().values()]
    defined = {
        fingerprint
        for version in [*last, *tagged]
        if isinstance(version, Version)
        for _, fingerprint in version.definitions
    }
    for branch in folder.branches():
        commits.commit(folder, branch, functools.partial(_without_others, folder, defined))


def _without_others(folder: Folder, defined: set[str], head: Version) -> Version | None:
    """The commit that drops stored columns that are not among those defined."""
    wanted = defined | {fingerprint for _, fingerprint in head.definitions}
    changed: dict[str, Fragment | None] = {}
    for fragment in folder.all_fragments(head):
        base, *derived = fragment.parts
        kept = [p for p in derived if any(stored_name(p, f) for f in wanted)]
        if len(kept) < len(derived):
            changed[fragment.id] = msgspec.structs.replace(fragment, parts=(base, *kept))
    what = "forget columns that are no longer defined"
    return commits.replace_fragments(folder, head, changed, what)


def _check(versions: int) -> None:
    if isinstance(versions, bool) or not isinstance(versions, int) or versions < 1:
        raise PlanError(f"gc(versions=…) keeps at least 1 version of each branch, not {versions!r}")


def collect_garbage(folder: Folder, versions: int | None = None) -> Removed:
    """Removes what is not needed; with `versions`, only so many of each branch are kept."""
    if versions is not None:
        _check(versions)
    folder.check()
    with hold_table(folder.path), as_table_error():
        live, given_up = _live(folder, versions)
        lists = {ref for version in live for ref in version.lists}
        files = {file.name for ref in lists for f in folder.fragments(ref) for file in files_of(f)}
        for version in given_up:  # what could be damaged has been read by now
            rest = Collected(version.number, version.branch, version.parent)
            folder.publish_version(rest, replace=True)
        return (
            _unfinished(folder)
            + _unnamed(folder, "lists", {ref.name for ref in lists})
            + _unnamed(folder, "schemas", {v.schema for v in live})
            + _unnamed(folder, "definitions", {f for v in live for _, f in v.definitions})
            + _data(folder, files)
        )


def _live(folder: Folder, versions: int | None) -> tuple[list[Version], list[Version]]:
    """The versions that stay, and those that go. The numbers of the latter stay, so that no commit
    can take them again."""
    tagged = {(tag.branch, tag.number) for tag in folder.all_tags().values()}
    kept: list[Version] = []
    given_up: list[Version] = []
    for branch in folder.branches():
        numbers = folder.numbers(branch)
        old = set() if versions is None else set(numbers[:-versions])
        for number in numbers:
            entry = folder.entry(branch, number)
            if isinstance(entry, Version):
                goes = number in old and (branch, number) not in tagged
                (given_up if goes else kept).append(entry)
    return kept, given_up


def _unfinished(folder: Folder) -> Removed:
    branches = [f"versions/{name}" for name in folder.names("versions", folders=True)]
    gone = Removed()
    for place in ("lists", "schemas", "definitions", "tags", *branches):
        names = [name for name in folder.names(place) if name.endswith(UNFINISHED)]
        gone += _remove(folder.own.below(place), names)
    return gone


def _unnamed(folder: Folder, place: str, named: set[str]) -> Removed:
    names = [name for name in folder.names(place) if name.endswith(".json")]
    others = [name for name in names if name.removesuffix(".json") not in named]
    return _remove(folder.own.below(place), others)


def _data(folder: Folder, named: set[str]) -> Removed:
    """Removes the files that no version names from the folders of writers that have ended. Anything
    in `data` that is not a folder, such as a link, belongs to no writer."""
    gone = _remove(folder.data, folder.names("data"))
    for writer in folder.names("data", folders=True):
        own = folder.data.below(writer)
        lock = try_lock_folder(own)
        if lock is None:
            continue  # its writer is still running
        try:
            names = os.listdir(lock.handle)
            gone += _remove(own, [n for n in names if f"{writer}/{n}" not in named])
            if not os.listdir(lock.handle):
                folder.data.remove(writer)
        finally:
            lock.close()
    return gone


def _remove(own: OwnFolder, names: Iterable[str]) -> Removed:
    return sum((Removed(*own.remove(name)) for name in names), Removed())
