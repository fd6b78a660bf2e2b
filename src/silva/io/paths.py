"""The files of a source and their bytes: the one place where a source meets storage.

A listing is made on first use and then frozen: sorted bytewise, without duplicates, with sizes. It
is pickled with the source, so that every worker has the listing of the parent. A file whose size
has changed since then is an error, never other rows. Formats read files by their index in the
listing and know nothing about storage: `LocalFiles` is here, `ObjectFiles` in
`silva.io.objects.files`.
"""

from __future__ import annotations

import errno
import functools
import glob
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Protocol, cast

import numpy as np

from silva.errors import SourceError
from silva.io.source import Travels

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""What every reader accepts: a path, a glob, a folder, an address, or several of these."""
SCHEMES = ("s3", "gs", "az", "http", "https")
"""The schemes of the addresses that silva reads."""


def scheme_of(path: object) -> str:
    """The scheme of an address; empty for a local path.

    >>> scheme_of("s3://bucket/key"), scheme_of("photos/1.jpg")
    ('s3', '')
    """
    scheme, separator, _ = path.partition("://") if isinstance(path, str) else ("", "", "")
    return scheme.lower() if separator else ""


@dataclass(frozen=True, eq=False)
class Listing:
    """The files of a source and their sizes."""

    paths: tuple[str, ...]
    """Sorted bytewise, as the user wrote them (relative patterns give relative paths)."""
    sizes: np.ndarray
    """int64, in bytes."""

    def __len__(self) -> int:
        return len(self.paths)


class Files(Protocol):
    """The files of a source; `file` is an index into the listing."""

    reads_at_once: ClassVar[bool]
    """Whether all files of one call are fetched together: many take hardly longer than one."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The paths as the user wrote them, without credentials."""

    @property
    def listing(self) -> Listing: ...

    @property
    def fingerprint(self) -> str:
        """Equal for equal relative paths, sizes and (if known) versions, wherever the files are."""

    def read(self, files: Sequence[int]) -> list[bytes]:
        """The bytes of whole files."""

    def read_range(self, file: int, start: int, length: int) -> bytes:
        """At most `length` bytes of a file, from byte `start` on."""

    def open(self, file: int) -> BinaryIO:
        """A buffered, seekable stream; the caller closes it."""

    def open_arrow(
        self, file: int, mapped: bool = False, ranges: Sequence[tuple[int, int]] = ()
    ) -> Any:
        """A `pyarrow.NativeFile`; the caller closes it. `mapped`: memory-mapped if possible.
        `ranges`: the ranges of bytes (start, stop) that will be read."""

    def array(
        self, file: int, dtype: np.dtype, shape: tuple[int, ...], offset: int, fortran: bool
    ) -> Any:
        """An array within a file, indexed by a slice or by positions like a numpy array; only the
        rows that are picked need to be read."""


@dataclass(frozen=True)
class LocalFiles(Travels):
    """Files on disks that this machine mounts."""

    reads_at_once: ClassVar[bool] = False
    carried: ClassVar[tuple[str, ...]] = ("listing",)

    patterns: tuple[str, ...]
    suffixes: tuple[str, ...]
    """The suffixes of the files that a *folder* means; a path or a glob may have any."""
    folder: str
    """The working directory when the source was made: relative paths keep their meaning."""

    def __getstate__(self) -> dict[str, Any]:
        _ = self.listing  # a worker must not list again: it could find other files
        return super().__getstate__()

    @functools.cached_property
    def listing(self) -> Listing:
        found = dict(pair for pattern in self.patterns for pair in self._expand(pattern))
        paths = sorted(found, key=os.fsencode)
        if len(self.patterns) > 1:  # ./a and a are the same file
            paths = list({self._full(path): path for path in reversed(paths)}.values())[::-1]
        return Listing(tuple(paths), np.array([found[path] for path in paths], dtype=np.int64))

    @functools.cached_property
    def fingerprint(self) -> str:
        full = [self._full(path) for path in self.listing.paths]
        parent = os.path.commonpath({os.path.dirname(path) for path in full})
        digest = hashlib.blake2b(digest_size=16)
        for path, size in zip(full, self.listing.sizes.tolist(), strict=True):
            relative = path[len(parent) :].lstrip(os.sep)
            digest.update(os.fsencode(relative) + b"\0%d\n" % size)
        return digest.hexdigest()

    def read(self, files: Sequence[int]) -> list[bytes]:
        return [self._read(file) for file in files]

    def _read(self, file: int) -> bytes:
        path, size = self.listing.paths[file], int(self.listing.sizes[file])
        with self._opened(path) as descriptor:
            data = _read_all(descriptor, size + 1)  # one byte more, to notice a file that has grown
        if len(data) != size:
            raise changed(path, size, self._status(path).st_size)
        return data

    def read_range(self, file: int, start: int, length: int) -> bytes:
        path, size = self.listing.paths[file], int(self.listing.sizes[file])
        with self._opened(path) as descriptor:
            actual = os.fstat(descriptor).st_size
            os.lseek(descriptor, start, os.SEEK_SET)
            data = _read_all(descriptor, length)
        if actual != size:
            raise changed(path, size, actual)
        return data

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """A file descriptor, which takes a third of the time of a stream."""
        try:
            descriptor = os.open(os.path.join(self.folder, path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            raise unreadable(path, error) from error

    def open(self, file: int) -> BinaryIO:
        return cast(BinaryIO, self._open_with(lambda full: open(full, "rb"), file))

    def open_arrow(
        self, file: int, mapped: bool = False, ranges: Sequence[tuple[int, int]] = ()
    ) -> Any:
        import pyarrow as pa

        opener = pa.memory_map if mapped and self.listing.sizes[file] else pa.OSFile
        return self._open_with(lambda full: opener(os.fsencode(full)), file)

    def _open_with(self, opener: Callable[[str], Any], file: int) -> Any:
        """A stream over a file, which must still have the size that was listed."""
        path, size = self.listing.paths[file], int(self.listing.sizes[file])
        try:
            stream = opener(os.path.join(self.folder, path))
            actual = stream.seek(0, os.SEEK_END)
            stream.seek(0)
        except OSError as error:
            raise unreadable(path, error) from error
        if actual != size:
            stream.close()
            raise changed(path, size, actual)
        return stream

    def array(
        self, file: int, dtype: np.dtype, shape: tuple[int, ...], offset: int, fortran: bool
    ) -> Any:
        if 0 in shape:
            return np.empty(shape, dtype)
        order: Any = "F" if fortran else "C"
        return np.memmap(self._full(self.listing.paths[file]), dtype, "r", offset, shape, order)

    def _full(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.folder, path))

    def _status(self, path: str) -> os.stat_result:
        try:
            return os.stat(os.path.join(self.folder, path))
        except OSError as error:  # also for a broken link: skipping it would silently lose a row
            raise unreadable(path, error) from error

    def _expand(self, pattern: str) -> Iterator[tuple[str, int]]:
        """The files that a pattern means, and their sizes.

        A path that exists means itself, even if it holds a `[`. A glob does not match hidden files.
        """
        full = os.path.join(self.folder, pattern)
        if os.path.isfile(full):
            yield pattern, self._status(pattern).st_size
            return
        inside = os.path.isdir(full)
        wild = os.path.join(glob.escape(pattern), "**") if inside else pattern
        found = False
        for path in glob.iglob(wild, root_dir=self.folder, recursive=True):
            if inside and not path.endswith(self.suffixes or ""):
                continue
            status = self._status(path)
            if stat.S_ISREG(status.st_mode):
                found = True
                yield path, status.st_size
        if not found:
            raise SourceError(self._nothing(pattern, inside))

    def _nothing(self, pattern: str, inside: bool) -> str:
        where = f"(working directory: {self.folder})"
        if inside:
            kind = " or ".join(self.suffixes)
            return f"the folder {pattern!r} holds no {kind + ' ' if kind else ''}files {where}"
        if "{" in pattern:
            return (
                f"there is no file {pattern!r} {where}; braces are not expanded: write a glob, "
                "'shard-*.tar', or a list of files"
            )
        if glob.has_magic(pattern):
            return f"no file matches {pattern!r} {where}"
        return f"there is no file {pattern!r} {where}"


def _read_all(descriptor: int, length: int) -> bytes:
    """Reads `length` bytes, or up to the end: a single `os.read` ends at 2 GiB."""
    data = os.read(descriptor, length)
    while 0 < len(data) < length:
        more = os.read(descriptor, length - len(data))
        if not more:
            break
        data += more
    return data


def unreadable(path: str, error: BaseException) -> SourceError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOENT:
        reason = "it does not exist (any more)"
    return SourceError(f"cannot read {path}: {reason}")


def changed(path: str, listed: int, actual: int) -> SourceError:
    return SourceError(
        f"{path} has changed since it was listed: it had {listed:,} bytes, now {actual:,}. "
        "Build the pipeline again to read the new files."
    )
