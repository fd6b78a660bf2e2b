"""What a version of a table is, as plain data: JSON that is written once and never changed.

A version is small. It names *lists* of fragments by the hash of their contents, so that versions
share them, and derived columns by their fingerprints. An append adds one list and merges it with
its neighbours like the digits of a counter: of n fragments there are about log n small lists, and
full ones that are never written again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from silva.store.dedup import Kind
from silva.store.layout import File, Part

FULL_LIST = 512
"""Fragments of a list that is not merged any further."""

Bound = int | float | str


class Deleted(msgspec.Struct, frozen=True):
    """Rows of a fragment that are no more: a small file of their positions, ascending."""

    file: File
    count: int


class Fragment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of rows, and the files that hold its columns."""

    id: str
    rows: int
    """As written; some may be deleted since."""
    parts: tuple[Part, ...]
    """The columns that were appended, then each derived column that is stored, by fingerprint."""
    statistics: dict[str, tuple[Bound, Bound]] = {}
    """Least and greatest value of a column."""
    deleted: Deleted | None = None

    @property
    def live(self) -> int:
        """Rows that are not deleted."""
        return self.rows - (self.deleted.count if self.deleted else 0)


class ListRef(msgspec.Struct, frozen=True):
    """A list of fragments, as a version names it."""

    name: str
    """The hash of its contents."""
    fragments: int
    rows: int
    """That are not deleted."""


class Schema(msgspec.Struct, frozen=True):
    """The columns that are appended, and what some of them mean."""

    arrow: bytes
    """Names and types, in Arrow's own form."""
    key: tuple[str, ...] = ()
    group: str | None = None
    time: str | None = None
    kinds: dict[str, Kind] = {}
    """How columns are stored whose kind somebody chose; that of the others is chosen by what a
    fragment holds."""


class Wish(msgspec.Struct, frozen=True, omit_defaults=True):
    """What people said about a column: how often it will be read, and whether to store it."""

    reads: float = 0.0
    pin: str | None = None
    """`always` or `never`."""


class Version(msgspec.Struct, frozen=True, tag="version", omit_defaults=True):
    number: int
    branch: str
    parent: tuple[str, int] | None
    """The version that it was made from."""
    time: float
    """Seconds since 1970."""
    what: str
    """What was done, for people."""
    schema: str
    """The hash of a `Schema`."""
    lists: tuple[ListRef, ...] = ()
    definitions: tuple[tuple[str, str], ...] = ()
    """(name, fingerprint) of derived columns, in the order in which they were defined. A name may
    stand here twice, where an earlier definition is still read by others."""
    wishes: dict[str, Wish] = {}
    written: dict[str, int] = {}
    """Of each pipeline that is written here (`sink`): how many of its shards there are."""

    @property
    def rows(self) -> int:
        return sum(ref.rows for ref in self.lists)

    def __str__(self) -> str:
        return f"{self.branch} {self.number}: {self.what}"


class Collected(msgspec.Struct, frozen=True, tag="collected"):
    """What is left of a version that was collected: its number, which nobody may take again, and
    where it came from."""

    number: int
    branch: str
    parent: tuple[str, int] | None


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def name_of(data: bytes) -> str:
    """The name of a file that is known by its contents."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def merged_lists(sizes: Sequence[int], new: int) -> int:
    """How many of the last lists, of so many fragments each, are merged with `new` ones: those that
    are no longer than what follows them, while the result is not longer than a full list.

    >>> merged_lists([4, 2, 1], 1), merged_lists([4, 2], 1)
    (3, 0)
    """
    merged = 0
    for size in reversed(sizes):
        if size > new or size + new > FULL_LIST:
            break
        new += size
        merged += 1
    return merged


def relocated(value: Any, folder: str) -> Any:
    """A part (or any piece of one) whose files lie in a folder within the folder of data."""
    if isinstance(value, File):
        return File(f"{folder}/{value.name}", value.size)
    if isinstance(value, msgspec.Struct):
        changed = {f: relocated(getattr(value, f), folder) for f in value.__struct_fields__}
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, tuple):
        return tuple(relocated(item, folder) for item in value)
    if isinstance(value, dict):
        return {name: relocated(item, folder) for name, item in value.items()}
    return value


def files_of(value: Any) -> Iterable[File]:
    """Every file that a fragment (or any piece of one) names."""
    if isinstance(value, File):
        yield value
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from files_of(getattr(value, field))
    elif isinstance(value, tuple):
        for item in value:
            yield from files_of(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from files_of(item)
