"""A version of a table as plain data: JSON that is written once and never changed.

A version is small. It names *lists* of fragments by the hash of their contents, so that versions
share them, and derived columns by their fingerprints. An append adds one list and merges it with
its neighbours like the digits of a counter: n fragments make about log n small lists, and full
lists that are never written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from silva.errors import TableError
from silva.store.versions.layout import Count, File, Hash, Kind, Name, Part, all_files, check_part

FULL_LIST = 512
"""Fragments of a full list, which is not merged any further."""

Bound = int | float | str
Bounds = dict[str, tuple[Bound, Bound]]
"""The least and greatest value of a column."""
Number = Annotated[int, Meta(ge=1, lt=10**10)]
"""The number of a version; its file's name has ten digits."""


class Deleted(msgspec.Struct, frozen=True):
    """The deleted rows of a fragment: a small file of their positions, ascending."""

    file: File
    count: Count


class Fragment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of rows, and the files that hold its columns."""

    id: str
    rows: Count
    """Rows as written; some may have been deleted since."""
    parts: tuple[Part, ...]
    """The appended columns, then each stored derived column, by fingerprint."""
    statistics: Bounds = {}
    deleted: Deleted | None = None

    @property
    def live(self) -> int:
        """Rows that are not deleted."""
        return self.rows - (self.deleted.count if self.deleted else 0)


class ListRef(msgspec.Struct, frozen=True):
    """A list of fragments, as a version names it."""

    name: Hash
    """The hash of its contents."""
    fragments: Count
    rows: Count
    """Rows that are not deleted."""


class Schema(msgspec.Struct, frozen=True):
    """The columns that are appended, and the roles of some of them."""

    arrow: bytes
    """Names and types, in Arrow's own form."""
    key: tuple[str, ...] = ()
    group: str | None = None
    time: str | None = None
    kinds: dict[str, Kind] = {}
    """How columns are stored, where the user chose it; otherwise each fragment's rows decide."""


class Wish(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the user expects of a column: how often it is read, and whether to store it."""

    reads: Annotated[float, Meta(ge=0)] = 0.0
    pin: Literal["always", "never"] | None = None


class Version(msgspec.Struct, frozen=True, tag="version", omit_defaults=True):
    number: Number
    branch: Name
    parent: tuple[Name, Number] | None
    """The version that it was made from; its number is lower, on whatever branch."""
    time: float
    """Seconds since 1970."""
    what: str
    """What was changed, for people."""
    schema: Hash
    """The hash of a `Schema`."""
    lists: tuple[ListRef, ...] = ()
    definitions: tuple[tuple[str, Hash], ...] = ()
    """(name, fingerprint) of derived columns, in the order in which they were defined. A name may
    stand here twice, where an earlier definition is still read by others."""
    wishes: dict[str, Wish] = {}
    written: dict[str, Count] = {}
    """For each pipeline that is written here (`sink`), the number of its shards in the table."""

    @property
    def rows(self) -> int:
        return sum(ref.rows for ref in self.lists)

    def __str__(self) -> str:
        return f"{self.branch} {self.number}: {self.what}"


class Collected(msgspec.Struct, frozen=True, tag="collected"):
    """What remains of a collected version: its number, which no commit may take again, and its
    parent."""

    number: Number
    branch: Name
    parent: tuple[Name, Number] | None


def check_entry(entry: Version | Collected, branch: str, number: int) -> None:
    """Raises TableError unless an entry matches its file's name and follows an earlier version, so
    that every chain of parents ends."""
    if (entry.branch, entry.number) != (branch, number):
        raise TableError(f"it claims to be version {entry.number} of {entry.branch!r}")
    if entry.parent is not None and entry.parent[1] >= number:
        raise TableError(f"it claims to follow the later version {entry.parent[1]}")


def check_fragments(fragments: Sequence[Fragment], ref: ListRef) -> None:
    """Raises TableError unless fragments match the list that a version names, and are valid."""
    if len(fragments) != ref.fragments or sum(f.live for f in fragments) != ref.rows:
        raise TableError("its number of rows is not the one in its version")
    for fragment in fragments:
        if not fragment.parts or fragment.live < 0:
            raise TableError("a fragment has no files, or more deleted rows than rows")
        for part in fragment.parts:
            check_part(part, fragment.rows)


def merged_lists(sizes: Sequence[int], new: int) -> int:
    """How many of the last lists are merged with `new` fragments: those that are no longer than
    what follows them, up to the length of a full list. `sizes` are the lengths of the lists.

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


def files_of(fragment: Fragment) -> Iterator[File]:
    """Every file that a fragment names."""
    for part in fragment.parts:
        yield from all_files(part)
    if fragment.deleted is not None:
        yield fragment.deleted.file
