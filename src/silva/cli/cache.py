"""`silva cache ls | rm | gc`: manages a cache folder from the command line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from silva.cache import inspect_folder as cache_folder
from silva.cache.open_store import place_of
from silva.cache.shelf_index import KeptRows, RemovedRows
from silva.cost.machine import parse_bytes
from silva.errors import PlanError
from silva.facts.formatting import plural, seconds, size, tidy
from silva.io.paths import scheme_of

app = App(name="cache", help="Manage the rows that pipelines keep in a cache folder.")

_DIGITS = 10
"""The minimum number of digits that are shown of a fingerprint."""
_AGES = ((86400, "day"), (3600, "hour"), (60, "minute"))


@app.command
def ls(folder: str | None = None) -> None:
    """List the pipelines with cached rows, the most recently used first.

    Parameters
    ----------
    folder
        The cache folder or its address; by default the shared cache.
    """
    where = _folder(folder)
    found = cache_folder.contents(where)
    if not found:
        print(f"{where} holds no rows")
        return
    _print_table(found)
    total = sum(kept.size for kept in found)
    print(f"{plural(len(found), 'pipeline')}, {size(total)} in {where}")


def _print_table(found: list[KeptRows]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = _digits([kept.fingerprint for kept in found])
    table = Table(box=None, pad_edge=False)
    table.add_column("fingerprint", no_wrap=True)
    for name in ("rows", "size", "time per row", "last used"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("steps")
    for kept in found:
        cost = seconds(kept.seconds / kept.entries) if kept.entries else "–"
        cells = (kept.fingerprint[:shown], f"{kept.entries:,}", size(kept.size), cost, _ago(kept))
        table.add_row(*cells, Text(_what(kept)))
    Console(highlight=False).print(table)


def _digits(names: list[str]) -> int:
    """Returns how many digits of each fingerprint must be shown so that all differ."""
    shown = _DIGITS
    while len({name[:shown] for name in names}) < len(names):
        shown += 1
    return shown


def _ago(kept: KeptRows) -> str:
    age = max(time.time() - kept.used, 0)
    for length, name in _AGES:
        if age >= length:
            return f"{plural(int(age // length), name)} ago"
    return "just now"


def _what(kept: KeptRows) -> str:
    about = kept.about
    if about is None:
        return "(unknown)"
    return tidy(" → ".join([about.source, *about.steps]))


@app.command
def rm(
    fingerprint: str | None = None,
    folder: str | None = None,
    *,
    all: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Remove the rows of one pipeline, or of all pipelines. Running loaders compute them again.

    Parameters
    ----------
    fingerprint
        The fingerprint that `silva cache ls` shows; a unique prefix is enough. Omit it with --all.
    folder
        The cache folder or its address; by default the shared cache.
    all
        Remove the rows of all pipelines.
    """
    if all:
        if folder is None and fingerprint is not None:
            folder = fingerprint
        elif fingerprint is not None:
            raise PlanError("pass a fingerprint or --all, not both")
        found = cache_folder.contents(_folder(folder))
    elif fingerprint is None:
        raise PlanError("name the rows to remove: a fingerprint, or --all")
    else:
        found = [cache_folder.find(_folder(folder), fingerprint)]
    _print_removed(sum(map(cache_folder.remove, found), RemovedRows()))


@app.command
def gc(
    folder: str | None = None, *, limit: str | None = None, older_than: str | None = None
) -> None:
    """Remove unfinished and damaged files, then old rows, then the least valuable rows.

    Parameters
    ----------
    folder
        The cache folder or its address; by default the shared cache.
    limit
        The maximum size of the folder afterwards, e.g. 10GiB.
    older_than
        Remove rows that have not been used for this long, e.g. 30d.
    """
    size_limit = None if limit is None else parse_bytes(limit)
    age = None if older_than is None else cache_folder.parse_age(older_than)
    _print_removed(cache_folder.collect_garbage(_folder(folder), limit=size_limit, older=age))


def _folder(given: str | None) -> str | Path:
    if given is None:
        return cache_folder.shared_place()
    if not scheme_of(given) and not Path(given).exists():
        raise PlanError(f"there is no folder {given!r}")
    return place_of(given)


def _print_removed(removed: RemovedRows) -> None:
    print(f"removed {plural(removed.files, 'file')}, {size(removed.size)}")
