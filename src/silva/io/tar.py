"""Tar files in the WebDataset layout: members `key.extension` that follow each other make a row.

The key is the path up to the first dot of the base name; each extension is a column of raw bytes,
which is not decoded here. A unit is a tar file. Nothing is extracted to disk, and only the members
of requested columns are read. Hidden members (`.x`, `._x`) and WebDataset's metadata (`__x__`) are
skipped.
"""

from __future__ import annotations

import functools
import gzip
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, ClassVar, cast

from silva.columns import Column, Values
from silva.errors import SourceError
from silva.io.arrow_batches import RUN_BYTES, empty_run
from silva.io.file_source import FileSource, files_at
from silva.io.names import chosen
from silva.io.paths import Files, Paths
from silva.io.source import register_source
from silva.io.tar_members import members, read_data

LOOK = 100
"""The number of samples from which the columns are inferred."""
RUN_SAMPLES = 4096
_COMPRESSED = (".tar.gz", ".tgz")

Sample = tuple[str, dict[str, bytes]]
"""A key, and the bytes of each extension (empty for columns that are not requested)."""


@register_source("tar")
@dataclass(frozen=True)
class TarFiles(FileSource):
    carried: ClassVar[tuple[str, ...]] = ("_names",)
    files: Files
    given: tuple[str, ...] | None
    """The columns that the user chose: other extensions are then ignored."""
    replays: bool
    """Whether a file is compressed: it is then read from its start."""

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        if self.given is not None:
            return self.given
        names = {"key": None}
        for file in range(len(self.files.listing)):
            with self._stream(file) as (stream, path, size):
                for _, parts in itertools.islice(_samples(stream, path, size), LOOK):
                    names.update(dict.fromkeys(parts))
            if len(names) > 1:
                break  # the first tar that is not empty
        return tuple(names)

    def columns(self) -> tuple[str, ...]:
        return self._names

    def types(self) -> dict[str, str]:
        return {name: "str" if name == "key" else "bytes" for name in self._names}

    def units(self) -> int:
        return len(self.files.listing)

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        known = frozenset(self._names)
        run: list[Sample] = []
        nbytes = 0
        with self._stream(unit) as (stream, path, size):
            for key, parts in _samples(stream, path, size, frozenset(columns), start):
                if self.given is None and not parts.keys() <= known:
                    raise SourceError(_late(path, key, min(parts.keys() - known)))
                run.append((key, parts))
                nbytes += sum(map(len, parts.values()))
                if nbytes >= RUN_BYTES or len(run) >= RUN_SAMPLES:
                    yield _columns(run, columns)
                    run, nbytes = [], 0
        if run:
            yield _columns(run, columns)

    @contextmanager
    def _stream(self, file: int) -> Iterator[tuple[BinaryIO, str, int | None]]:
        """The decompressed archive, its path, and its size if it is not compressed."""
        path = self.files.listing.paths[file]
        with self.files.open(file) as stream:
            if path.endswith(_COMPRESSED):
                with gzip.open(stream, "rb") as plain:
                    yield cast(BinaryIO, plain), path, None
            else:
                yield stream, path, int(self.files.listing.sizes[file])


def _samples(
    stream: BinaryIO,
    path: str,
    size: int | None,
    wanted: frozenset[str] = frozenset(),
    start: int = 0,
) -> Iterator[Sample]:
    """The samples from number `start` on; for those before, only headers are read.

    Members are read in order, never backwards, which a compressed archive would not allow.
    """
    key: str | None = None
    parts: dict[str, bytes] = {}
    number = -1
    for member in members(stream, path, size):
        folder, slash, base = member.name.removeprefix("./").rpartition("/")
        stem, dot, extension = base.partition(".")
        if base.startswith(".") or (base.startswith("__") and base.endswith("__")):
            continue
        if not dot or not extension or extension == "key":
            raise SourceError(
                f"{path}: the member {member.name!r} belongs to no row: members are called "
                "key.extension, and the extension may not be 'key'"
            )
        own = folder + slash + stem
        if own != key:
            if key is not None and number >= start:
                yield key, parts
            key, parts, number = own, {}, number + 1
        if extension in parts:
            raise SourceError(f"{path}: one row has the member {member.name!r} twice")
        is_read = number >= start and extension in wanted
        parts[extension] = read_data(stream, member, path) if is_read else b""
    if key is not None and number >= start:
        yield key, parts


def _columns(run: list[Sample], columns: tuple[str, ...]) -> dict[str, Column]:
    if not columns:
        return empty_run(len(run))
    return {
        name: Values([key if name == "key" else parts.get(name) for key, parts in run])
        for name in columns
    }


def _late(path: str, key: str, extension: str) -> str:
    return (
        f"{path}: the row {key!r} has a member .{extension}, which none of the first {LOOK} rows "
        "of the first tar file has: choose the columns with columns=[…] to ignore others"
    )


def read_tar(paths: Paths, *, columns: Sequence[str] | None = None) -> TarFiles:
    """Rows with `key` and a column of bytes per extension; None where a row lacks one."""
    files = files_at(paths, (".tar", *_COMPRESSED))
    replays = any(pattern.endswith(_COMPRESSED) for pattern in files.patterns)
    return TarFiles(files, chosen(columns), replays)
