"""A cache folder looked after: what is in it, and what of it may go."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from silva.errors import PlanError
from silva.run import about
from silva.run.eviction import locked, shrink
from silva.run.kept import (
    Kept,
    Removed,
    list_kept,
    own_files,
    remove_files,
    remove_stale,
    subfolders,
)
from silva.run.rowfiles import SUFFIX, UNFINISHED, DamagedError, read_header

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def default_folder() -> Path:
    """The folder that all pipelines of this user may share."""
    named = os.environ.get("SILVA_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "silva" / "rows"


def contents(folder: Path) -> list[Kept]:
    """What is kept for each fingerprint, the most recently used first.

    >>> import silva as sv, tempfile
    >>> rows = sv.from_columns({"x": range(30)}).derive(y=lambda x: x * x)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (batch,) = rows.cache(folder).batch(30).loader(workers=0)
    ...     [(kept.entries, kept.about.columns) for kept in contents(Path(folder))]
    [(30, ['x', 'y'])]
    """
    _check(folder)
    return sorted(list_kept(folder), key=lambda kept: -kept.used)


def _check(folder: Path) -> None:
    """Refuses what is no cache folder, so that a slip of the hand deletes nothing."""
    if folder.exists() and not folder.is_dir():
        raise PlanError(f"{str(folder)!r} is not a folder")
    if folder.exists() and os.listdir(folder) and not subfolders(folder):
        raise PlanError(f"{str(folder)!r} is not a cache folder of silva: no rows are kept in it")


def find(folder: Path, fingerprint: str) -> Kept:
    """What is kept for the fingerprint that begins so."""
    found = [kept for kept in contents(folder) if kept.fingerprint.startswith(fingerprint)]
    if not found or not fingerprint:
        raise PlanError(f"{str(folder)!r} keeps no rows of {fingerprint!r}")
    if len(found) > 1:
        names = ", ".join(kept.fingerprint for kept in found)
        raise PlanError(f"{fingerprint!r} may be any of {names}: give more of it")
    return found[0]


def remove(kept: Kept) -> Removed:
    """Removes the rows of a fingerprint; a loader that reads them computes them again."""
    with locked(kept.folder.parent):
        gone = remove_files(own_files(kept.folder, SUFFIX, UNFINISHED))
        _remove_empty(kept.folder)
    return gone


def collect_garbage(
    folder: Path, *, limit: int | None = None, older: float | None = None
) -> Removed:
    """Removes what is of no use: unfinished files of processes that are gone, damaged files, rows
    that were not used for `older` seconds, and empty folders. Then, if there is a limit, what is
    worth least, until the folder holds at most so many bytes. Every file is read to check it."""
    gone = Removed()
    for kept in contents(folder):
        gone += remove_stale(kept.folder)
        if older is not None and time.time() - kept.used > older:
            gone += remove(kept)
        else:
            unsound = [file.path for file in kept.files if not is_sound(file.path)]
            gone += remove_files([*kept.damaged, *unsound])
    if not folder.exists():
        return gone
    with locked(folder):
        if limit is not None:
            gone += shrink(folder, limit)
        for subfolder in subfolders(folder):
            _remove_empty(subfolder)
    return gone


def is_sound(path: Path) -> bool:
    """Whether a file is what was written; one that is just being removed is."""
    try:
        pages, _ = read_header(path, path.parent.name)
        for page in pages:
            page.check()
    except DamagedError:
        return not path.exists()
    except OSError:
        return True
    return True


def _remove_empty(subfolder: Path) -> None:
    """Removes a subfolder without rows, unless it holds something that is not silva's."""
    with contextlib.suppress(OSError):
        if os.listdir(subfolder) in ([], [about.NAME]):
            (subfolder / about.NAME).unlink(missing_ok=True)
            subfolder.rmdir()


def parse_age(text: str) -> float:
    """Seconds from text such as `90m`, `12h`, `30d` or `2w`.

    >>> parse_age("2h")
    7200.0
    """
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise PlanError(f"not a time: {text!r} (write e.g. '30d' or '12h')")
    return float(found[1]) * _AGES[found[2]]
