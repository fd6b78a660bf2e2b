"""Folders of silva's own: silva reads, writes and deletes nothing outside them through them.

The path of such a folder is the user's, and may pass through symbolic links. Below it no link is
followed: otherwise, anyone who may write into a table, a cache or a folder of shards could make
silva read, overwrite or delete the user's files elsewhere. Folders are opened by descriptor, name
by name, so swapping a folder for a link at any moment has no effect. A link is deleted as a link,
never what it points to. Pipes and devices are refused: opening one could wait forever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from silva.errors import FolderError, SilvaError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEEPEST = 32
"""How deep folders may be nested to be deleted; silva nests at most 4."""
_FULL = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file has reached the largest size allowed here (see ulimit -f)",
}


def profiles_folder() -> Path:
    """The folder of costs of earlier runs: `$SILVA_PROFILES`, or one in the user's caches."""
    chosen = os.environ.get("SILVA_PROFILES")
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "silva" / "profiles"


@dataclass(frozen=True)
class OwnFolder:
    """A folder of silva's own, or one below it. It need not exist."""

    root: Path
    """The user's path, which may pass through links."""
    name: str = ""
    """The path of a folder below the root, `a/b`."""

    @property
    def path(self) -> Path:
        """The path for people; silva opens nothing by it."""
        return self.root / self.name

    def _check(self, *names: str) -> None:
        """Raises FolderError for a name that is not a plain name within a folder."""
        for name in names:
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise FolderError(f"{name!r} leads out of the folder {str(self.path)!r}")

    def below(self, name: str) -> OwnFolder:
        return OwnFolder(self.root, f"{self.name}/{name}" if self.name else name)

    # Opening.

    def open(self, *, make: bool = False) -> int:
        """A descriptor of the folder, which the caller closes; `make` creates missing folders."""
        names = self.name.split("/") if self.name else []
        self._check(*names)
        if make:
            self.root.mkdir(parents=True, exist_ok=True)
        if not make and names:  # one call less: follows links in the root, but not this name
            names[0] = os.path.join(self.root, names[0])
            folder = None
        else:
            folder = os.open(self.root, _FOLDER)
        for name in names:
            try:
                below = self._enter(folder, name, make)
            finally:
                if folder is not None:
                    os.close(folder)
            folder = below
        assert folder is not None
        return folder

    def _enter(self, folder: int | None, name: str, make: bool) -> int:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
        try:
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(name, folder):
                raise _link(self.path) from error
            raise

    @contextlib.contextmanager
    def opened(self, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder."""
        folder = self.open(make=make)
        try:
            yield folder
        finally:
            os.close(folder)

    def open_file(self, name: str, flags: int = os.O_RDONLY, *, make: bool = False) -> int:
        """A descriptor of a plain file of the folder, which the caller closes; `make` creates the
        folders above it."""
        self._check(name)
        with self.opened(make=make) as folder:
            try:
                file = os.open(name, flags | _FILE, 0o666, dir_fd=folder)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise _link(self.path / name) from error
                raise
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise FolderError(f"{str(self.path / name)!r} is not a plain file: remove it")
        return file

    # Reading.

    def read(self, name: str, most: int) -> bytes:
        """All bytes of a file; FolderError if there are more than `most`."""
        with open(self.open_file(name), "rb") as file:
            size = os.fstat(file.fileno()).st_size  # `most` may come from a file of somebody else
            data = file.read(min(size, most) + 1)
        if len(data) > most:
            raise FolderError(f"{str(self.path / name)!r} is damaged: it has over {most:,} bytes")
        return data

    def entries(self, *, sizes: bool = False) -> list[os.DirEntry[str]]:
        """The entries of the folder, by name; none where it does not exist. Ask an entry for
        `is_dir(follow_symlinks=False)`, since the default follows links; with `sizes`, its
        `stat(follow_symlinks=False)` is known too, at the cost of a system call each."""
        try:
            with self.opened() as folder, os.scandir(folder) as found:
                entries = []
                for entry in found:
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        look_up = entry.stat if sizes else entry.is_dir
                        look_up(follow_symlinks=False)  # the entry caches the answer
                        entries.append(entry)
                return sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def has(self, name: str) -> bool:
        """Whether there is a plain file with that name."""
        self._check(name)
        try:
            with self.opened() as folder:
                return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    # Writing and deleting.

    def write(
        self, name: str, data: bytes, unfinished: str, *, replace: bool, sync: bool = True
    ) -> bool:
        """Writes a file that appears as a whole: first under the name `unfinished`. Without
        `replace`, it appears only if there is no such file; returns whether it did. With `sync`, it
        is on the disk then."""
        self._check(name, unfinished)
        with self.opened(make=True) as folder:
            new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
            handle = os.open(unfinished, new, 0o666, dir_fd=folder)
            try:
                with open(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    if sync:
                        os.fsync(file.fileno())
                if replace:
                    os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
                else:
                    both = {"src_dir_fd": folder, "dst_dir_fd": folder}
                    os.link(unfinished, name, **both, follow_symlinks=False)
            except FileExistsError:
                return False
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(unfinished, dir_fd=folder)
            if sync:
                os.fsync(folder)
        return True

    def remove(self, name: str) -> tuple[int, int]:
        """Deletes a file, a link as such, or a folder with everything below it; returns the number
        of files and their bytes."""
        self._check(name)
        with self.opened() as folder:
            return _remove(folder, name, self.path / name, _DEEPEST)


def _remove(folder: int, name: str, shown: Path, depth: int) -> tuple[int, int]:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return 1, status.st_size if stat.S_ISREG(status.st_mode) else 0
    if not depth:
        raise FolderError(f"{str(shown)!r} is not deleted: silva does not nest folders that deeply")
    below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    try:
        if os.fstat(below).st_dev != os.fstat(folder).st_dev:
            raise FolderError(f"{str(shown)!r} is not deleted: another disk is mounted there")
        removed = [_remove(below, each, shown / each, depth - 1) for each in os.listdir(below)]
    finally:
        os.close(below)
    os.rmdir(name, dir_fd=folder)
    return sum(files for files, _ in removed), sum(size for _, size in removed)


def _is_link(name: str, folder: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _link(shown: Path) -> FolderError:
    return FolderError(
        f"{str(shown)!r} is a link, or below one: silva follows no links within its own folders. "
        "Replace it by what it points to, or remove it"
    )


def by_descriptor(descriptor: int) -> Path:
    """A path to an open file or folder, for libraries that take paths only. It names the same file
    whatever is renamed, and is valid while the descriptor is open."""
    return Path(f"/proc/self/fd/{descriptor}")


# Full disks.


@contextlib.contextmanager
def telling_full_disk(path: Path | str, advice: str) -> Iterator[None]:
    """Turns errors of a full disk into a FolderError: what could not be written, why, and what to
    do."""
    try:
        yield
    except SilvaError:
        raise
    except OSError as error:
        number = _why_full(error)
        if number is None:
            raise
        explained = FolderError(f"{str(path)!r} cannot be written: {_FULL[number]}. {advice}")
        explained.errno = number
        raise explained from error


def write_file(path: Path, text: str, advice: str) -> Path:
    """Writes a file that the user has named; what prevents it is a FolderError. `advice` is for a
    full disk."""
    try:
        with telling_full_disk(path, advice):
            path.write_text(text, encoding="utf-8")
    except FolderError:
        raise
    except OSError as error:
        explained = FolderError(
            f"{str(path)!r} cannot be written: {error.strerror}. Create its folder, or choose "
            "another path"
        )
        explained.errno = error.errno
        raise explained from error
    return path


def _why_full(error: OSError) -> int | None:
    """The error's number, if the disk is full; libraries in Rust have it in their text only."""
    if error.errno in _FULL:
        return error.errno
    return next((number for number in _FULL if f"(os error {number})" in str(error)), None)


def append_whole(path: Path, data: bytes) -> None:
    """Appends all bytes to a file, or none."""
    with open(path, "ab", buffering=0) as file:
        written = file.write(data)
        if written == len(data):
            return
        try:
            while written < len(data):  # the next call raises what stopped it
                written += file.write(data[written:])
        except OSError:
            if (end := os.fstat(file.fileno()).st_size) >= written:
                file.truncate(end - written)
            raise
