"""A table's folder: where everything lies, and how it is read.

versions/main/0000000007.json    a version; the last one is what the branch is now
lists/<hash>.json                fragments
schemas/<hash>.json              names and types of the columns that are appended
definitions/<fingerprint>.json   derived columns
data/<writer>/<random>.pages     numbers; each writer has a folder of its own
data/<writer>/<random>.lance     other columns
tags/<name>.json                 names for versions
audit/<day>.jsonl                who read what
writing/<branch>/<pipeline>/_silva.json   how far pipelines are written here
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from silva.errors import TableError
from silva.io.addresses import local_folder
from silva.store.manifest import Collected, Fragment, Schema, Version, encode, name_of

T = TypeVar("T")
Paths = str | os.PathLike[str]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_DIGITS = 10
_VERSION = re.compile(rf"(\d{{{_DIGITS}}})\.json")
_LISTS_HELD = 256
UNFINISHED = ".unfinished"
"""How the name of a file ends until it is whole."""


class Tag(msgspec.Struct, frozen=True):
    branch: str
    number: int


def check_name(kind: str, name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TableError(f"a {kind} is called by letters, digits, '.', '-' and '_', not {name!r}")
    return name


class Folder:
    """Reads what is in a table's folder; keeps what never changes."""

    def __init__(self, path: Paths) -> None:
        self.path = local_folder(path, "tables")
        self.versions = self.path / "versions"
        self.lists = self.path / "lists"
        self.schemas = self.path / "schemas"
        self.definitions = self.path / "definitions"
        self.data = self.path / "data"
        self.tags = self.path / "tags"
        self.audit = self.path / "audit"
        self.writing = self.path / "writing"
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
                f"{str(self.path)!r} is not a table; sv.Table.create(path, data) makes one"
            )

    # Versions.

    def branches(self) -> Iterator[str]:
        if self.versions.is_dir():
            yield from sorted(b.name for b in self.versions.iterdir() if self.numbers(b.name))

    def numbers(self, branch: str) -> list[int]:
        """The versions that were committed to a branch itself, ascending."""
        try:
            names = os.listdir(self.versions / branch)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(found[1]) for name in names if (found := _VERSION.fullmatch(name)))

    def version_file(self, branch: str, number: int) -> Path:
        return self.versions / branch / f"{number:0{_DIGITS}d}.json"

    def head(self, branch: str) -> Version:
        numbers = self.numbers(check_name("branch", branch))
        if not numbers:
            self.check()
            raise TableError(
                f"{str(self.path)!r} has no branch {branch!r}; its branches are "
                f"{', '.join(self.branches())}"
            )
        return self.version(branch, numbers[-1])

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
                "gc(versions=…); tags keep versions from it"
            )
        return found

    def entry(self, branch: str, number: int) -> Version | Collected | None:
        try:
            data = self.version_file(branch, number).read_bytes()
        except FileNotFoundError:
            return None
        found: Version | Collected = self._decoded(
            data, Version | Collected, f"version {number} of {branch!r}"
        )
        return found

    def history(self, head: Version) -> Iterator[Version | Collected]:
        """The versions that led to this one, the latest first."""
        entry: Version | Collected | None = head
        while entry is not None:
            yield entry
            entry = None if entry.parent is None else self.entry(*entry.parent)

    # What versions name.

    def _fragments(self, name: str) -> tuple[Fragment, ...]:
        data = self._contents(self.lists, name)
        return tuple(self._decoded(data, list[Fragment], f"list {name}"))

    def all_fragments(self, version: Version) -> Iterator[Fragment]:
        for ref in version.lists:
            yield from self.fragments(ref.name)

    def _schema(self, name: str) -> Schema:
        found: Schema = self._decoded(self._contents(self.schemas, name), Schema, f"schema {name}")
        return found

    def _contents(self, folder: Path, name: str) -> bytes:
        try:
            data = (folder / f"{name}.json").read_bytes()
        except FileNotFoundError:
            raise TableError(
                f"{str(folder / name)!r} is gone: its version was collected by gc(versions=…)"
            ) from None
        if name_of(data) != name:
            raise TableError(f"{str(folder / name)!r} is damaged: its contents have changed")
        return data

    def _decoded(self, data: bytes, kind: Any, what: str) -> Any:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise TableError(f"{what} of {str(self.path)!r} is damaged: {error}") from error

    # Tags.

    def tag(self, name: str) -> Tag | None:
        try:
            data = (self.tags / f"{check_name('tag', name)}.json").read_bytes()
        except FileNotFoundError:
            return None
        found: Tag = self._decoded(data, Tag, f"tag {name!r}")
        return found

    def all_tags(self) -> dict[str, Tag]:
        if not self.tags.is_dir():
            return {}
        names = sorted(path.stem for path in self.tags.glob("*.json"))
        return {name: tag for name in names if (tag := self.tag(name)) is not None}

    # Files that appear whole.

    def add(self, folder: Path, value: Any) -> str:
        """Writes a value under the hash of its contents, which it returns."""
        data = encode(value)
        name = name_of(data)
        if not (folder / f"{name}.json").exists():
            publish(folder / f"{name}.json", data)
        return name


def publish(path: Path, data: bytes) -> bool:
    """A file that appears whole, on the disk, and only if there is none yet: whether it did."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent / f".{os.getpid()}-{os.urandom(8).hex()}{UNFINISHED}"
    with open(unfinished, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return False
    finally:
        unfinished.unlink(missing_ok=True)
    sync(path.parent)
    return True


def replace(path: Path, data: bytes) -> None:
    """Puts other contents in the place of a file, all at once."""
    unfinished = path.parent / f".{os.getpid()}-{os.urandom(8).hex()}{UNFINISHED}"
    with open(unfinished, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Makes sure that the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
