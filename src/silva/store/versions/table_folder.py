"""A table's folder: where its files are, and how they are read.

versions/main/0000000007.json    a version; the last one is what the branch is now
lists/<hash>.json                fragments
schemas/<hash>.json              names and types of the columns that are appended
definitions/<fingerprint>.json   derived columns
data/<writer>/<random>.pages     numbers; each writer has a folder of its own
data/<writer>/<random>.lance     other columns
tags/<name>.json                 names for versions
audit/<day>.jsonl                which columns were read, and by whom
writing/<branch>/<pipeline>/_silva.json   the progress of pipelines that are written here

No symbolic link below the table's folder is followed (`silva.folders`), and files are decoded
strictly (`sealed`, `manifest`): anything that silva would not write is a TableError.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from silva.errors import FolderError, PlanError, TableError
from silva.folders import OwnFolder, telling_full_disk
from silva.io.objects.addresses import local_folder
from silva.store.versions.manifest import (
    Collected,
    Fragment,
    ListRef,
    Name,
    Number,
    Schema,
    Version,
    check_entry,
    check_fragments,
)
from silva.store.versions.sealed import decode, encode, name_of, seal, unseal

Paths = str | os.PathLike[str]
Which = int | str | datetime
"""A version's number, its tag, or a time."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_DIGITS = 10
_VERSION = re.compile(rf"([0-9]{{{_DIGITS}}})\.json")
_LISTS_HELD = 256
_MOST_BYTES = 1 << 28
"""The largest JSON file. A list of fragments with a thousand columns each is a tenth of it."""
UNFINISHED = ".unfinished"
"""The end of a file's name until it is complete."""
UNCHANGED = "The table is unchanged. Free some space, or move the table to a larger disk"


class VersionTag(msgspec.Struct, frozen=True):
    branch: Name
    number: Number


def check_name(kind: str, name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TableError(
            f"the name of a {kind} may hold only letters, digits, '.', '-' and '_', not {name!r}"
        )
    return name


class Folder:
    """Reads the files of a table's folder; caches what never changes."""

    def __init__(self, path: Paths) -> None:
        self.path = local_folder(path, "tables")
        self.own = OwnFolder(self.path)
        self.data = self.own.below("data")
        self.fragments = functools.lru_cache(maxsize=_LISTS_HELD)(self._fragments)
        self.schema = functools.lru_cache(maxsize=8)(self._schema)

    def __repr__(self) -> str:
        return str(self.path)

    @property
    def is_table(self) -> bool:
        return any(True for _ in self.branches())

    def check(self) -> None:
        if not self.is_table:
            raise TableError(
                f"{str(self.path)!r} is not a table; sv.Table.create(path, data) creates one"
            )

    # Versions.

    def branches(self) -> Iterator[str]:
        for name in self.names("versions", folders=True):
            if _NAME.fullmatch(name) and self.numbers(name):
                yield name

    def numbers(self, branch: str) -> list[int]:
        """The versions that were committed to a branch itself, ascending."""
        names = self.names(f"versions/{branch}")
        return sorted(int(found[1]) for name in names if (found := _VERSION.fullmatch(name)))

    def head(self, branch: str) -> Version:
        """The last version of a branch. One that is collected before it is read has a successor."""
        seen: int | None = None
        while True:
            numbers = self.numbers(check_name("branch", branch))
            if not numbers:
                self.check()
                raise TableError(
                    f"{str(self.path)!r} has no branch {branch!r}; its branches are "
                    f"{', '.join(self.branches())}"
                )
            if numbers[-1] == seen:
                return self.version(branch, seen)
            seen = numbers[-1]
            found = self.entry(branch, seen)
            if isinstance(found, Version):
                return found

    def version(self, branch: str, number: int) -> Version:
        found = self.entry(branch, number)
        if found is None:
            last = (self.numbers(branch) or [0])[-1]
            raise TableError(
                f"{str(self.path)!r} has no version {number} on branch {branch!r}; the last is "
                f"{last}"
            )
        if isinstance(found, Collected):
            raise TableError(
                f"version {number} of branch {branch!r} of {str(self.path)!r} was collected by "
                "gc(versions=…). Read a later one; a tag keeps a version from being collected"
            )
        return found

    def entry(self, branch: str, number: int) -> Version | Collected | None:
        data = self.read(f"versions/{branch}", f"{_version_name(number)}.json")
        if data is None:
            return None
        what = f"version {number} of {branch!r} of {str(self.path)!r}"
        found: Version | Collected = unseal(data, Version | Collected, what)
        with _damaged(what):
            check_entry(found, branch, number)
        return found

    def history(self, head: Version) -> Iterator[Version | Collected]:
        """The versions that led to this one, the latest first."""
        entry: Version | Collected | None = head
        while entry is not None:  # numbers fall: `check_entry`
            yield entry
            entry = None if entry.parent is None else self.entry(*entry.parent)

    # Lists and schemas.

    def _fragments(self, ref: ListRef) -> tuple[Fragment, ...]:
        what = f"list {ref.name} of {str(self.path)!r}"
        found = tuple(decode(self._contents("lists", ref.name), list[Fragment], what))
        with _damaged(what):
            check_fragments(found, ref)
        return found

    def all_fragments(self, version: Version) -> Iterator[Fragment]:
        for ref in version.lists:
            yield from self.fragments(ref)

    def _schema(self, name: str) -> Schema:
        what = f"schema {name} of {str(self.path)!r}"
        found: Schema = decode(self._contents("schemas", name), Schema, what)
        return found

    def _contents(self, folder: str, name: str) -> bytes:
        data = self.read(folder, f"{name}.json")
        shown = str(self.path / folder / name)
        if data is None:
            raise TableError(
                f"{shown!r} is gone: its version was collected by gc(versions=…). Read a later one"
            )
        if name_of(data) != name:
            raise TableError(
                f"{shown!r} is damaged: its contents have changed. Restore the file from a backup"
            )
        return data

    # Tags.

    def tag(self, name: str) -> VersionTag | None:
        data = self.read("tags", f"{check_name('tag', name)}.json")
        if data is None:
            return None
        found: VersionTag = unseal(data, VersionTag, f"tag {name!r} of {str(self.path)!r}")
        return found

    def all_tags(self) -> dict[str, VersionTag]:
        names = [Path(name).stem for name in self.names("tags") if name.endswith(".json")]
        names = [name for name in names if _NAME.fullmatch(name)]
        return {name: tag for name in names if (tag := self.tag(name)) is not None}

    # Files.

    def read(self, folder: str, name: str) -> bytes | None:
        """The contents of a small file; None where it does not exist."""
        try:
            with as_table_error():
                return self.own.below(folder).read(name, _MOST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def has(self, folder: str, name: str) -> bool:
        """Whether a JSON file exists."""
        with as_table_error():
            return self.own.below(folder).has(f"{name}.json")

    def names(self, folder: str, *, folders: bool = False) -> list[str]:
        """The names in a folder of the table: files and links, or with `folders`, folders."""
        with as_table_error():
            found = self.own.below(folder).entries()
        return [e.name for e in found if e.is_dir(follow_symlinks=False) == folders]

    def add(self, folder: str, value: Any) -> str:
        """Writes a value under the hash of its contents, and returns the hash."""
        data = encode(value)
        name = name_of(data)
        if not self.has(folder, name):
            self._write(folder, name, data)
        return name

    def publish(self, folder: str, name: str, value: Any) -> bool:
        """Adds a sealed file unless it exists; returns whether it was added."""
        return self._write(folder, name, seal(value))

    def publish_version(self, version: Version | Collected, *, replace: bool = False) -> bool:
        """Adds a version unless its number is taken, or replaces it; returns whether it did."""
        folder, name = f"versions/{version.branch}", _version_name(version.number)
        return self._write(folder, name, seal(version), replace=replace)

    def _write(self, folder: str, name: str, data: bytes, *, replace: bool = False) -> bool:
        own, file = self.own.below(folder), f"{name}.json"
        unfinished = f".{os.getpid()}-{os.urandom(8).hex()}{UNFINISHED}"
        with telling_full_disk(own.path / file, UNCHANGED), as_table_error():
            return own.write(file, data, unfinished, replace=replace)


def find_version(folder: Folder, head: Version, which: Which) -> Version:
    """The version with this number, tag or time: one that led to `head`, or any with a tag."""
    if isinstance(which, str):
        return _tagged(folder, which)
    if isinstance(which, datetime):
        return _as_old_as(folder, head, which)
    if isinstance(which, bool) or not isinstance(which, int):
        raise PlanError(f"a version must be a number, a tag or a datetime, not {which!r}")
    for entry in folder.history(head):
        if entry.number == which:
            return folder.version(entry.branch, which)
    return folder.version(head.branch, which)


def _tagged(folder: Folder, name: str) -> Version:
    tag = folder.tag(name)
    if tag is None:
        names = ", ".join(map(repr, folder.all_tags())) or "(none)"
        raise TableError(f"{str(folder)!r} has no tag {name!r}; its tags are {names}")
    return folder.version(tag.branch, tag.number)


def _as_old_as(folder: Folder, head: Version, when: datetime) -> Version:
    time = when.timestamp()
    for entry in folder.history(head):
        if isinstance(entry, Version) and entry.time <= time:
            return entry
    raise TableError(f"{str(folder)!r} has no version from {when} or before")


@contextlib.contextmanager
def as_table_error() -> Iterator[None]:
    """Turns errors of the folder, such as a refused link, into a TableError."""
    try:
        yield
    except FolderError as error:
        raise TableError(str(error)) from error


@contextlib.contextmanager
def _damaged(what: str) -> Iterator[None]:
    """Adds to a TableError which file is damaged."""
    try:
        yield
    except TableError as error:
        raise TableError(f"{what} is damaged: {error}") from error


def _version_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}"


def sync(folder: Path) -> None:
    """Flushes a file, or the names in a folder, to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
