"""What a cache folder holds: a subfolder a fingerprint, with files of rows.

Only subfolders that are named as a fingerprint are looked at, and in them only what silva writes:
whatever else lies there is somebody else's, and is neither counted nor touched.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from silva.run.about import About, last_used, read_about
from silva.run.rowfiles import SUFFIX, UNFINISHED, DamagedError, read_start

STALE_SECONDS = 3600.0
"""An unfinished file that is older was left by a process that is gone."""
_FINGERPRINT = re.compile(r"[0-9a-f]{32}(-[0-9a-f]{16})?")


@dataclass(frozen=True)
class Removed:
    """How many files went, and their bytes.

    >>> Removed(1, 10) + Removed(2, 5)
    Removed(files=3, size=15)
    """

    files: int = 0
    size: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.files + other.files, self.size + other.size)


@dataclass(frozen=True)
class KeptFile:
    path: Path
    size: int
    """Bytes on disk."""
    entries: int
    seconds: float
    """What computing the entries took."""


@dataclass(frozen=True)
class Kept:
    """The rows of one fingerprint."""

    folder: Path
    files: tuple[KeptFile, ...]
    damaged: tuple[Path, ...]
    """Named as files of rows, but not begun as one."""
    used: float
    """When somebody last used them, in seconds since 1970."""

    @property
    def fingerprint(self) -> str:
        return self.folder.name

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def entries(self) -> int:
        """Input rows that were computed; one that two processes computed counts twice."""
        return sum(file.entries for file in self.files)

    @property
    def seconds(self) -> float:
        return sum(file.seconds for file in self.files)

    @property
    def about(self) -> About | None:
        return read_about(self.folder)


def subfolders(folder: Path) -> list[Path]:
    """The subfolders of all fingerprints, by name.

    >>> subfolders(Path("nowhere"))
    []
    """
    try:
        with os.scandir(folder) as listing:
            found = [e.name for e in listing if _FINGERPRINT.fullmatch(e.name) and e.is_dir()]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(found)]


def list_kept(folder: Path) -> list[Kept]:
    """All that is kept; reads the first bytes of every file."""
    return [_kept(subfolder) for subfolder in subfolders(folder)]


def _kept(subfolder: Path) -> Kept:
    files, damaged = [], []
    for path in own_files(subfolder, SUFFIX):
        try:
            start = read_start(path)
            files.append(KeptFile(path, path.stat().st_size, start.entries, start.seconds))
        except DamagedError:
            damaged.append(path)
        except OSError:
            continue  # another process was faster, or does not want it read
    return Kept(subfolder, tuple(files), tuple(damaged), last_used(subfolder))


def own_files(subfolder: Path, *endings: str) -> list[Path]:
    """The files with one of these endings, by name."""
    try:
        names = sorted(os.listdir(subfolder))
    except FileNotFoundError:
        return []
    return [subfolder / name for name in names if name.endswith(endings)]


def bytes_held(folder: Path) -> int:
    """Bytes of all files of rows, also of those that are being written."""
    held = 0
    for subfolder in subfolders(folder):
        for path in own_files(subfolder, SUFFIX, UNFINISHED):
            with contextlib.suppress(OSError):
                held += path.stat().st_size
    return held


def remove_files(paths: Iterable[Path], enough: float = math.inf) -> Removed:
    """Removes files, in this order, until so many bytes were freed."""
    gone = Removed()
    for path in paths:
        if gone.size >= enough:
            break
        try:
            size = path.stat().st_size
            path.unlink()
        except OSError:
            continue  # gone already, or another user's, or read-only
        gone += Removed(1, size)
    return gone


def remove_stale(subfolder: Path) -> Removed:
    """Removes unfinished files whose writers are gone."""
    oldest = time.time() - STALE_SECONDS
    stale = []
    for path in own_files(subfolder, UNFINISHED):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                stale.append(path)
    return remove_files(stale)
