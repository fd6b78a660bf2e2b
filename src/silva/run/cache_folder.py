"""A cache folder looked after: what is in it, and what of it may go."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from silva.errors import PlanError
from silva.io.addresses import scheme_of
from silva.run.eviction import shrink
from silva.run.kept import Kept, Removed, ending, list_kept, remove_files, remove_stale
from silva.run.open_shelf import shelf_at
from silva.run.rowfiles import is_sound
from silva.run.shelf import SUFFIX, UNFINISHED, Shelf

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def default_folder() -> Path:
    """The folder that all pipelines of this user may share, on a disk of this machine."""
    named = os.environ.get("SILVA_CACHE")
    if named and not scheme_of(named):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "silva" / "rows"


def shared_place() -> str | Path:
    """Where all pipelines of this user keep rows that they share: a folder, or an address."""
    named = os.environ.get("SILVA_CACHE", "")
    return named if scheme_of(named) else default_folder()


def contents(place: str | Path) -> list[Kept]:
    """What is kept for each fingerprint, the most recently used first.

    >>> import silva as sv, tempfile
    >>> rows = sv.from_columns({"x": range(30)}).derive(y=lambda x: x * x)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (batch,) = rows.cache(folder).batch(30).loader(workers=0)
    ...     [(kept.entries, kept.about.columns) for kept in contents(folder)]
    [(30, ['x', 'y'])]
    """
    return sorted(list_kept(_checked(place)), key=lambda kept: -kept.used)


def _checked(place: str | Path) -> Shelf:
    """Refuses what is no cache folder, so that a slip of the hand deletes nothing."""
    shelf = shelf_at(place)
    if not scheme_of(str(place)) and Path(place).exists() and not Path(place).is_dir():
        raise PlanError(f"{str(place)!r} is not a folder")
    if shelf.is_foreign():
        raise PlanError(f"{shelf.shown!r} is not a cache folder of silva: no rows are kept in it")
    return shelf


def find(place: str | Path, fingerprint: str) -> Kept:
    """What is kept for the fingerprint that begins so."""
    found = [kept for kept in contents(place) if kept.fingerprint.startswith(fingerprint)]
    if not found or not fingerprint:
        raise PlanError(f"{str(place)!r} keeps no rows of {fingerprint!r}")
    if len(found) > 1:
        names = ", ".join(kept.fingerprint for kept in found)
        raise PlanError(f"{fingerprint!r} may be any of {names}: give more of it")
    return found[0]


def remove(kept: Kept) -> Removed:
    """Removes the rows of a fingerprint; a loader that reads them computes them again."""
    shelf = kept.shelf
    with shelf.locked():
        gone = remove_files(shelf, ending(shelf.items(kept.fingerprint), SUFFIX, UNFINISHED))
        shelf.remove_empty(kept.fingerprint)
    return gone


def collect_garbage(
    place: str | Path, *, limit: int | None = None, older: float | None = None
) -> Removed:
    """Removes what is of no use: unfinished files of processes that are gone, damaged files, rows
    that were not used for `older` seconds, and empty folders. Then, if there is a limit, what is
    worth least, until the folder holds at most so many bytes. Every file is read to check it."""
    gone, shelf = Removed(), _checked(place)
    for kept in list_kept(shelf):
        gone += remove_stale(shelf, kept.items)
        if older is not None and time.time() - kept.used > older:
            gone += remove(kept)
        else:
            unsound = [file.item for file in kept.files if not is_sound(shelf, file.item)]
            gone += remove_files(shelf, [*kept.damaged, *unsound])
    if not shelf.fingerprints():
        return gone
    with shelf.locked():
        if limit is not None:
            gone += shrink(shelf, limit)
        for fingerprint in shelf.fingerprints():
            shelf.remove_empty(fingerprint)
    return gone


def parse_age(text: str) -> float:
    """Seconds from text such as `90m`, `12h`, `30d` or `2w`.

    >>> parse_age("2h")
    7200.0
    """
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise PlanError(f"not a time: {text!r} (write e.g. '30d' or '12h')")
    return float(found[1]) * _AGES[found[2]]
