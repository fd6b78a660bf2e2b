"""What may be deleted: files that no version names, and that no writer at work may yet commit.

The table is held alone meanwhile, so nobody commits. Versions that are given up go first, then
lists, then data: a `gc` that is killed leaves what the next one removes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from silva.errors import PlanError
from silva.store.folder import UNFINISHED, Folder, replace
from silva.store.locks import held, take
from silva.store.manifest import Collected, Version, encode, files_of


@dataclass(frozen=True)
class Removed:
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.files + other.files, self.bytes + other.bytes)


def collect_garbage(folder: Folder, versions: int | None = None) -> Removed:
    """Removes what is not needed; with `versions`, only so many of each branch are kept."""
    if versions is not None and (isinstance(versions, bool) or versions < 1):
        raise PlanError(f"gc(versions=…) keeps at least 1 version of each branch, not {versions!r}")
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
                replace(folder.version_file(branch, number), encode(Collected(number)))
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
