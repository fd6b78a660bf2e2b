"""A version of a table as plain data: JSON that is written once and never changed.

A version is small. It names *lists* of fragments by the hash of their contents, so that versions
share them, and derived columns by their fingerprints. An append adds one list and merges it with
its neighbours like the digits of a counter: n fragments make about log n small lists, and full
lists that are never written again. A fragment has *parts*, which say which file holds which column,
and in what form.

Files have random names and are never changed. The types restrict names and numbers: a manifest with
any other is damaged, or an attempt to make silva read outside the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from silva.errors import TableError

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z")]
"""The name of a branch or a tag: a plain file name."""
Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
DataName = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}/[0-9a-f]{32}\.(pages|lance|npy)\Z")]
Kind = Literal["plain", "grouped", "slices"]
"""How a column of a part is stored (`files.dedup`)."""
_DEEPEST = 3
"""How deeply parts may be nested in groups; silva writes at most 2."""


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    name: DataName
    """The path within the table's folder of data."""
    size: Count
    """The size in bytes."""
    sums: bytes = b""
    """Checksums of its blocks (`data_files`). Files of pages hold their own; those of 0.1 have
    none."""


class Plain(msgspec.Struct, frozen=True, tag="plain"):
    """A column with one value per row."""

    file: Count
    """The index of its file among the files of the part."""
    column: str
    """Its name in the file."""


class Slices(msgspec.Struct, frozen=True, tag="slices"):
    """A column of lists: slices of one long sequence, which rows may share."""

    file: Count
    """The file with start and length of each row."""
    start: str
    """The column there with the first item of each row."""
    length: str
    """The column there with the number of items; -1 is a null."""
    items: Count
    """The file with the sequence, in a column called `item`."""


class InGroup(msgspec.Struct, frozen=True, tag="grouped"):
    """A column of a group: each distinct value is stored once."""

    group: Count
    """The index of its group among the groups of the part."""


Stored = Plain | Slices | InGroup


class Group(msgspec.Struct, frozen=True):
    """Columns that repeat together: their distinct rows, and an index from row to distinct row."""

    file: Count
    """The file with the index."""
    index: str
    """The column of the index in that file: int32, numbers of rows of `values`."""
    values: Part
    distinct: bool = True
    """Whether no two rows of `values` are equal, in any of their columns."""


class Part(msgspec.Struct, frozen=True):
    """Some columns of a run of rows, and the files that hold them."""

    rows: Count
    files: tuple[File, ...]
    columns: dict[str, Stored]
    groups: tuple[Group, ...] = ()


def all_files(part: Part) -> Iterator[File]:
    """Every file of a part, including those of its groups' values."""
    yield from part.files
    for group in part.groups:
        yield from all_files(group.values)


def relocate(part: Part, folder: str) -> Part:
    """A part with its files moved to a folder within the folder of data."""
    files = tuple(replace(file, name=f"{folder}/{file.name}") for file in part.files)
    groups = tuple(replace(g, values=relocate(g.values, folder)) for g in part.groups)
    return replace(part, files=files, groups=groups)


def check_part(part: Part, rows: int, depth: int = _DEEPEST) -> None:
    """Raises TableError for a part that no writer makes: with another number of rows, or with
    indices of files and groups that do not exist."""
    stored = part.columns.values()
    files = [s.file for s in (*stored, *part.groups) if not isinstance(s, InGroup)]
    files += [s.items for s in stored if isinstance(s, Slices)]
    grouped = {name: s.group for name, s in part.columns.items() if isinstance(s, InGroup)}
    known = set(files) <= set(range(len(part.files)))
    known &= set(grouped.values()) <= set(range(len(part.groups)))
    if part.rows != rows or not known:
        raise TableError("a part does not match its rows, files and groups")
    if part.groups and not depth:
        raise TableError("groups are nested more deeply than any writer nests them")
    for group in part.groups:
        check_part(group.values, group.values.rows, depth - 1)
    if any(name not in part.groups[g].values.columns for name, g in grouped.items()):
        raise TableError("a column is not among the values of its group")


def under(part: Part, group: int, values: Part) -> Part:
    """A part whose columns have one value per distinct row of a group, under that group's index."""
    index = part.groups[group]
    columns: dict[str, Stored] = dict.fromkeys(values.columns, InGroup(0))
    own = Group(0, index.index, values, distinct=False)
    return Part(part.rows, (part.files[index.file],), columns, (own,))


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
