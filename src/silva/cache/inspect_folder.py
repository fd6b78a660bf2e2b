"""Maintains cache folders: where the shared one is, what a folder holds, what may be removed."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from silva.cache.eviction import shrink
from silva.cache.open_store import shelf_at
from silva.cache.row_files import is_sound
from silva.cache.shelf import SUFFIX, UNFINISHED, Shelf
from silva.cache.shelf_index import (
    KeptRows,
    RemovedRows,
    list_kept,
    remove_files,
    remove_stale,
    with_suffix,
)
from silva.errors import PlanError
from silva.io.paths import scheme_of

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def default_folder() -> Path:
    """The folder on this machine that all pipelines of this user may share."""
    named = os.environ.get("SILVA_CACHE")
    if named and not scheme_of(named):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "silva" / "rows"


def shared_place() -> str | Path:
    """The place of the rows that all pipelines of this user share: a folder, or an address."""
    named = os.environ.get("SILVA_CACHE", "")
    return named if scheme_of(named) else default_folder()


def contents(place: str | Path) -> list[KeptRows]:
    """The rows of each fingerprint, the most recently used first.

    >>> import silva as sv, tempfile
    >>> rows = sv.from_columns({"x": range(30)}).derive(y=lambda x: x * x)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (batch,) = rows.cache(folder).batch(30).loader(workers=0)
    ...     [(kept.entries, kept.about.columns) for kept in contents(folder)]
    [(30, ['x', 'y'])]
    """
    return sorted(list_kept(_checked(place)), key=lambda kept: -kept.used)


def _checked(place: str | Path) -> Shelf:
    """The shelf at a place; refuses a folder of other things, so that a typo deletes nothing."""
    shelf = shelf_at(place)
    if not scheme_of(str(place)) and Path(place).exists() and not Path(place).is_dir():
        raise PlanError(f"{str(place)!r} is a file, not a cache folder")
    if shelf.is_foreign():
        raise PlanError(f"{shelf.shown!r} is not a cache folder of silva: it keeps no rows")
    return shelf


def find(place: str | Path, fingerprint: str) -> KeptRows:
    """The rows of the one fingerprint that starts like this."""
    found = [kept for kept in contents(place) if kept.fingerprint.startswith(fingerprint)]
    if not found or not fingerprint:
        raise PlanError(
            f"{str(place)!r} keeps no rows of {fingerprint!r}; `silva cache ls` lists fingerprints"
        )
    if len(found) > 1:
        names = ", ".join(kept.fingerprint for kept in found)
        raise PlanError(f"{fingerprint!r} may be any of {names}: give more digits")
    return found[0]


def remove(kept: KeptRows) -> RemovedRows:
    """Removes the rows of a fingerprint; loaders that read them compute them again."""
    shelf = kept.shelf
    with shelf.locked():
        items = with_suffix(shelf.items(kept.fingerprint), SUFFIX, UNFINISHED)
        removed = remove_files(shelf, items)
        shelf.remove_empty(kept.fingerprint)
    return removed


def collect_garbage(
    place: str | Path, *, limit: int | None = None, older: float | None = None
) -> RemovedRows:
    """Removes unfinished files of dead processes, damaged files, rows that were not used for
    `older` seconds, and empty folders. Then evicts the rows that are worth least, until the folder
    holds at most `limit` bytes. Every file is read to check it."""
    removed, shelf = RemovedRows(), _checked(place)
    for kept in list_kept(shelf):
        removed += remove_stale(shelf, kept.items)
        if older is not None and time.time() - kept.used > older:
            removed += remove(kept)
        else:
            unsound = [file.item for file in kept.files if not is_sound(shelf, file.item)]
            removed += remove_files(shelf, [*kept.damaged, *unsound])
    if not shelf.fingerprints():
        return removed
    with shelf.locked():
        if limit is not None:
            removed += shrink(shelf, limit)
        for fingerprint in shelf.fingerprints():
            shelf.remove_empty(fingerprint)
    return removed


def parse_age(text: str) -> float:
    """Seconds from text such as `90m`, `12h`, `30d` or `2w`.

    >>> parse_age("2h")
    7200.0
    """
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise PlanError(f"not a time: {text!r} (write for example '30d' or '12h')")
    return float(found[1]) * _AGES[found[2]]
