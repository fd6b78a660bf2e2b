"""What may be deleted: files that no version names, and that no writer at work may yet commit.

The table is held alone meanwhile, so nobody commits. Versions that are given up go first, then
lists, then data: a `gc` that is killed leaves what the next one removes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from silva.errors import PlanError
from silva.store import commits
from silva.store.folder import UNFINISHED, Folder, replace
from silva.store.locks import held, take
from silva.store.manifest import Collected, Fragment, Version, encode, files_of
from silva.store.stored import stored_name


@dataclass(frozen=True)
class Removed:
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.files + other.files, self.bytes + other.bytes)


def forget_columns(folder: Folder, versions: int) -> None:
    """Commits to each branch a version that does not name what is stored of columns which nobody
    defines any more: neither the last `versions` of any branch, nor a tag."""
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
        commits.commit(folder, branch, _without_others(folder, defined))


def _without_others(folder: Folder, defined: set[str]) -> commits.Change:
    def change(head: Version) -> Version | None:
        wanted = defined | {fingerprint for _, fingerprint in head.definitions}
        changed: dict[str, Fragment | None] = {}
        for fragment in folder.all_fragments(head):
            base, *derived = fragment.parts
            kept = [p for p in derived if any(stored_name(p, f) for f in wanted)]
            if len(kept) < len(derived):
                changed[fragment.id] = msgspec.structs.replace(fragment, parts=(base, *kept))
        if not changed:
            return None
        lists = commits.changed_lists(folder, head.lists, changed)
        what = "forget columns that nobody defines"
        return msgspec.structs.replace(head, lists=lists, what=what)

    return change


def _check(versions: int) -> None:
    if isinstance(versions, bool) or not isinstance(versions, int) or versions < 1:
        raise PlanError(f"gc(versions=…) keeps at least 1 version of each branch, not {versions!r}")


def collect_garbage(folder: Folder, versions: int | None = None) -> Removed:
    """Removes what is not needed; with `versions`, only so many of each branch are kept."""
    if versions is not None:
        _check(versions)
    folder.check()
    with held(folder.path, alone=True):
        live = _live(folder, versions)
        return (
            _unfinished(folder)
            + _unnamed(folder.lists, {ref.name for v in live for ref in v.lists})
            + _unnamed(folder.schemas, {v.schema for v in live})
            + _unnamed(folder.definitions, {f for v in live for _, f in v.definitions})
            + _data(folder, live)
        )


def _live(folder: Folder, versions: int | None) -> list[Version]:
    """The versions that stay. Of those that do not, the numbers stay, so that no commit can take
    one again."""
    tagged = {(tag.branch, tag.number) for tag in folder.all_tags().values()}
    kept: list[Version] = []
    for branch in folder.branches():
        numbers = folder.numbers(branch)
        given_up = set() if versions is None else set(numbers[:-versions])
        for number in numbers:
            entry = folder.entry(branch, number)
            if not isinstance(entry, Version):
                continue
            if number in given_up and (branch, number) not in tagged:
                replace(
                    folder.version_file(branch, number),
                    encode(Collected(number, branch, entry.parent)),
                )
            else:
                kept.append(entry)
    return kept


def _unfinished(folder: Folder) -> Removed:
    return _remove(path for path in folder.path.rglob(f".*{UNFINISHED}"))


def _unnamed(folder: Path, names: set[str]) -> Removed:
    if not folder.is_dir():
        return Removed()
    return _remove(path for path in sorted(folder.glob("*.json")) if path.stem not in names)


def _data(folder: Folder, live: list[Version]) -> Removed:
    lists = {ref.name for version in live for ref in version.lists}
    named = {file.name for name in lists for f in folder.fragments(name) for file in files_of(f)}
    gone = Removed()
    if not folder.data.is_dir():
        return gone
    for own in sorted(folder.data.iterdir()):
        handle = take(own)
        if handle is None:
            continue  # its writer is at work
        try:
            gone += _sweep(own, named)
        finally:
            os.close(handle)
    return gone


def _sweep(own: Path, named: set[str]) -> Removed:
    """Removes what nobody names of the folder of a writer that is done or dead."""
    inside = sorted(own.rglob("*"), reverse=True)  # what is in a folder comes before it
    gone = _remove(p for p in inside if p.is_file() and f"{own.name}/{p.name}" not in named)
    for path in [p for p in inside if p.is_dir()] + [own]:
        if not any(path.iterdir()):
            path.rmdir()
    return gone


def _remove(paths: Iterable[Path]) -> Removed:
    gone = Removed()
    for path in list(paths):
        size = path.stat().st_size
        path.unlink()
        gone += Removed(1, size)
    return gone
