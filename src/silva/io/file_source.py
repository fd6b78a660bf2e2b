"""What all file formats share: the files that a path means, and a source that reads them.

A path leads to disks of this machine (`LocalFiles`) or to an object store (`ObjectFiles`). A format
sees neither: it asks its `Files` for bytes by a file's place in the listing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from silva.errors import PlanError, SourceError
from silva.io.objects.addresses import SCHEMES, parse_address, scheme_of
from silva.io.paths import Files, LocalFiles, Paths, given_paths, local_files
from silva.io.source import kind_of
from silva.io.travel import Travels


class FileSource(Travels):
    """A source whose rows are those of `files`, one file after the other."""

    files: Files
    runs_user_code: ClassVar[bool] = False

    def describe(self) -> str:
        return f"{kind_of(self).name} {self.files.describe()}"

    def fingerprint(self) -> str:
        return self.files.fingerprint()


def local_files_of(source: object) -> LocalFiles | None:
    """The files that a source reads, where they are on disks of this machine."""
    files = source.files if isinstance(source, FileSource) else None
    return files if isinstance(files, LocalFiles) else None


@contextmanager
def naming_file(path: str, kind: str, errors: tuple[type[BaseException], ...]) -> Iterator[None]:
    """Turns what a decoder raises for a damaged file into a `SourceError` that names the file.

    >>> with naming_file("a.parquet", "a Parquet file", (ValueError,)):
    ...     raise ValueError("no footer")
    Traceback (most recent call last):
    silva.errors.SourceError: a.parquet is truncated, damaged or not a Parquet file: no footer
    """
    try:
        yield
    except SourceError:
        raise
    except errors as error:
        raise SourceError(f"{path} is truncated, damaged or not {kind}: {error}") from error


def files_at(paths: Paths, suffixes: tuple[str, ...] = ()) -> Files:
    """The files that paths mean; nothing is listed yet. A folder means the files in it
    whose names end in one of `suffixes`."""
    given = given_paths(paths)
    schemes = [scheme_of(path) for path in given]
    unknown = next((scheme for scheme in schemes if scheme and scheme not in SCHEMES), None)
    if unknown is not None:  # the rest may hold credentials and is not repeated
        raise PlanError(
            f"{unknown}:// addresses cannot be read; {', '.join(SCHEMES)} and local paths can"
        )
    if not any(schemes):
        return local_files(given, suffixes)
    if not all(schemes):
        raise PlanError("local paths and addresses cannot be read as one list: use sv.concat")
    from silva.io.objects.files import ObjectFiles

    return ObjectFiles(tuple(parse_address(os.fspath(path)) for path in given), suffixes)
