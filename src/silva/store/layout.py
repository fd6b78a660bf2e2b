"""What a manifest keeps of a table's files: which file holds which column, and in what form.

All of it is plain data, written as JSON. Files are named by random numbers and never changed.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class File(msgspec.Struct, frozen=True):
    name: str
    """Within the table's folder of data."""
    size: int
    """Bytes."""


class Plain(msgspec.Struct, frozen=True, tag="plain"):
    """One value a row."""

    file: int
    """Its place among the files of the part."""
    column: str
    """Its name in the file."""


class Slices(msgspec.Struct, frozen=True, tag="slices"):
    """Lists as slices of one long sequence, which rows may share."""

    file: int
    """The file with start and length of each row."""
    start: str
    """The column there with the first item of each row."""
    length: str
    """The column there with the number of items; -1 is a null."""
    items: int
    """The file with the sequence, in a column called `item`."""


class Grouped(msgspec.Struct, frozen=True, tag="grouped"):
    """Distinct values apart, and an index from row to value."""

    group: int
    """Its place among the groups of the part."""


Stored = Plain | Slices | Grouped


class Group(msgspec.Struct, frozen=True):
    """Columns that change together, once for each distinct row of them."""

    file: int
    """The file with the index."""
    index: str
    """The index's column there: int32, numbers of rows of `values`."""
    values: Part
    distinct: bool = True
    """Whether no two rows of `values` are equal, in any of their columns."""


class Part(msgspec.Struct, frozen=True):
    """Columns of one run of rows, and the files that hold them."""

    rows: int
    files: tuple[File, ...]
    columns: dict[str, Stored]
    groups: tuple[Group, ...] = ()


def all_files(part: Part) -> Iterator[File]:
    """Every file of a part, those of its groups' values among them."""
    yield from part.files
    for group in part.groups:
        yield from all_files(group.values)


def under(part: Part, group: int, values: Part) -> Part:
    """A part of columns of one value for each distinct row of a group, under that group's index."""
    index = part.groups[group]
    columns: dict[str, Stored] = dict.fromkeys(values.columns, Grouped(0))
    own = Group(0, index.index, values, distinct=False)
    return Part(part.rows, (part.files[index.file],), columns, (own,))
