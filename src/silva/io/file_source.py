"""What all file formats share, and the simplest of them: one row per file.

A path leads to disks of this machine (`LocalFiles`) or to an object store (`ObjectFiles`). A format
sees neither: it asks its `Files` for bytes by a file's place in the listing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from silva.columns import Column, Values
from silva.errors import PlanError, SourceError, printable
from silva.io.paths import SCHEMES, Files, LocalFiles, Paths, scheme_of
from silva.io.source import Travels, kind_of, register_source


class FileSource(Travels):
    """A source whose rows are those of `files`, one file after the other."""

    files: Files
    runs_user_code: ClassVar[bool] = False

    def describe(self) -> str:
        first, *others = self.files.patterns
        more = f" and {len(others):,} more" if others else ""
        return f"{kind_of(self).name} {printable(first)}{more}"

    def fingerprint(self) -> str:
        return self.files.fingerprint


@register_source("files")
@dataclass(frozen=True)
class WholeFiles(FileSource):
    """One row per file, whose bytes are read only if they are used."""

    costly: ClassVar[tuple[str, ...]] = ("bytes",)
    """Read after the filters, so never for rows that a filter drops."""
    files: Files

    @property
    def reads_at_once(self) -> bool:
        return self.files.reads_at_once

    def columns(self) -> tuple[str, ...]:
        return ("path", "bytes")

    def types(self) -> dict[str, str]:
        return {"path": "str", "bytes": "bytes"}

    def length(self) -> int:
        return len(self.files.listing)

    def file_of(self, row: int) -> str | None:
        """The path of a row, by which people know it; for errors."""
        paths = self.files.listing.paths
        return paths[row] if row < len(paths) else None

    def row_bytes(self) -> dict[str, float]:
        """Average bytes per row and column, from the listing alone."""
        listing = self.files.listing
        count = max(len(listing), 1)
        return {
            "path": sum(map(len, listing.paths)) / count,
            "bytes": int(listing.sizes.sum()) / count,
        }

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        places, paths = rows.tolist(), self.files.listing.paths
        return {
            name: Values([paths[i] for i in places] if name == "path" else self.files.read(places))
            for name in columns
        }


def read_files(paths: Paths) -> WholeFiles:
    """Rows of `path` and `bytes`, in bytewise order of the paths."""
    return WholeFiles(files_at(paths))


def local_files_of(source: object) -> LocalFiles | None:
    """The files that a source reads, where they are on disks of this machine."""
    files = source.files if isinstance(source, FileSource) else None
    return files if isinstance(files, LocalFiles) else None


@contextmanager
def naming_file(path: str, kind: str, *errors: type[BaseException]) -> Iterator[None]:
    """Turns what Arrow raises for a damaged file, or any of `errors`, into a `SourceError` that
    names the file.

    >>> with naming_file("a.parquet", "a Parquet file", ValueError):
    ...     raise ValueError("no footer")
    Traceback (most recent call last):
    silva.errors.SourceError: a.parquet is truncated, damaged or not a Parquet file: no footer
    """
    import pyarrow as pa

    try:
        yield
    except SourceError:
        raise
    except (pa.ArrowException, OSError, *errors) as error:
        raise SourceError(f"{path} is truncated, damaged or not {kind}: {error}") from error


def files_at(paths: Paths, suffixes: tuple[str, ...] = ()) -> Files:
    """The files that paths mean; nothing is listed yet. A folder means the files in it
    whose names end in one of `suffixes`."""
    given: list[Any] = [paths]
    if isinstance(paths, Iterable) and not isinstance(paths, str | bytes | os.PathLike):
        given = list(paths)
    if not given:
        raise PlanError("no paths were given: pass a path, a glob, a folder or a list of them")
    schemes = [scheme_of(path) for path in given]
    unknown = next((scheme for scheme in schemes if scheme and scheme not in SCHEMES), None)
    if unknown is not None:  # the rest may hold credentials and is not repeated
        raise PlanError(
            f"{unknown}:// addresses cannot be read; {', '.join(SCHEMES)} and local paths can"
        )
    if not any(schemes):
        return LocalFiles(tuple(map(_pattern, given)), suffixes, os.getcwd())
    if not all(schemes):
        raise PlanError("local paths and addresses cannot be read as one list: use sv.concat")
    from silva.io.objects.addresses import parse_address
    from silva.io.objects.files import ObjectFiles

    return ObjectFiles(tuple(map(parse_address, given)), suffixes)


def _pattern(path: Any) -> str:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise PlanError(f"a path is a non-empty str or os.PathLike, not {type(path).__name__}")
    return os.path.expanduser(text)
