"""`silva cache ls | rm | gc`: looks after a cache folder, from the command line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from silva.errors import PlanError
from silva.insight.words import plural, seconds, size, tidy
from silva.io.addresses import scheme_of
from silva.profile.machine import parse_bytes
from silva.run import cache_folder
from silva.run.kept import Kept, Removed
from silva.run.open_shelf import place_of

app = App(name="cache", help="Look after the rows that pipelines keep on disk.")

_DIGITS = 10
"""Of a fingerprint, so many are shown at least."""
_AGES = ((86400, "day"), (3600, "hour"), (60, "minute"))


@app.command
def ls(folder: str | None = None) -> None:
    """List what is kept, the most recently used first.

    Parameters
    ----------
    folder
        The cache folder, or its address; the shared one unless given.
    """
    where = _folder(folder)
    found = cache_folder.contents(where)
    if not found:
        print(f"no rows are kept in {where}")
        return
    _print_table(found)
    total = sum(kept.size for kept in found)
    print(f"{plural(len(found), 'pipeline')}, {size(total)} in {where}")


def _print_table(found: list[Kept]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = _digits([kept.fingerprint for kept in found])
    table = Table(box=None, pad_edge=False)
    table.add_column("fingerprint", no_wrap=True)
    for name in ("rows", "size", "a row took", "last used"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what")
    for kept in found:
        cost = seconds(kept.seconds / kept.entries) if kept.entries else "–"
        cells = (kept.fingerprint[:shown], f"{kept.entries:,}", size(kept.size), cost, _ago(kept))
        table.add_row(*cells, Text(_what(kept)))
    Console(highlight=False).print(table)


def _digits(names: list[str]) -> int:
    """How much of each fingerprint is shown: enough to tell them apart."""
    shown = _DIGITS
    while len({name[:shown] for name in names}) < len(names):
        shown += 1
    return shown


def _ago(kept: Kept) -> str:
    age = max(time.time() - kept.used, 0)
    for length, name in _AGES:
        if age >= length:
            return f"{plural(int(age // length), name)} ago"
    return "just now"


def _what(kept: Kept) -> str:
    about = kept.about
    if about is None:
        return "(nobody said)"
    return tidy(" → ".join([about.source, *about.steps]))


@app.command
def rm(
    fingerprint: str | None = None,
    folder: str | None = None,
    *,
    all: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Remove the rows of one pipeline, or of all. Running loaders compute them again.

    Parameters
    ----------
    fingerprint
        As `silva cache ls` shows it; the first digits are enough if no other begins so. Left out
        with --all.
    folder
        The cache folder, or its address; the shared one unless given.
    all
        Remove the rows of all pipelines.
    """
    if all:
        if folder is None and fingerprint is not None:
            folder = fingerprint
        elif fingerprint is not None:
            raise PlanError("give a fingerprint or --all, not both")
        found = cache_folder.contents(_folder(folder))
    elif fingerprint is None:
        raise PlanError("say which rows to remove: a fingerprint, or --all")
    else:
        found = [cache_folder.find(_folder(folder), fingerprint)]
    _say(sum(map(cache_folder.remove, found), Removed()))


@app.command
def gc(
    folder: str | None = None, *, limit: str | None = None, older_than: str | None = None
) -> None:
    """Remove unfinished and damaged files, then what is old, then what is worth least.

    Parameters
    ----------
    folder
        The cache folder, or its address; the shared one unless given.
    limit
        Let the folder hold at most so much, e.g. 10GiB.
    older_than
        Remove rows that were not used for so long, e.g. 30d.
    """
    size_limit = None if limit is None else parse_bytes(limit)
    age = None if older_than is None else cache_folder.parse_age(older_than)
    _say(cache_folder.collect_garbage(_folder(folder), limit=size_limit, older=age))


def _folder(given: str | None) -> str | Path:
    if given is None:
        return cache_folder.shared_place()
    if not scheme_of(given) and not Path(given).exists():
        raise PlanError(f"there is no folder {given!r}")
    return place_of(given)


def _say(gone: Removed) -> None:
    print(f"removed {plural(gone.files, 'file')}, {size(gone.size)}")
