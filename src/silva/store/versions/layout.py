"""The layout of a table's files: which file holds which column, and in what form.

All of it is plain data, written as JSON. Files have random names and are never changed. The types
restrict names and numbers: a manifest with any other is damaged, or an attempt to make silva read
outside the table.
"""

from __future__ import annotations

from collections.abc import Iterator
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
