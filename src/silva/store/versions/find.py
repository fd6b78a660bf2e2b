"""Looks up a version by its number, a tag or a time."""

from __future__ import annotations

from datetime import datetime

from silva.errors import PlanError, TableError
from silva.store.versions.manifest import Version
from silva.store.versions.table_folder import Folder

Which = int | str | datetime


def find_version(folder: Folder, head: Version, which: Which) -> Version:
    """The version with this number, tag or time: one that led to `head`, or any with a tag."""
    if isinstance(which, str):
        return _tagged(folder, which)
    if isinstance(which, datetime):
        return _as_old_as(folder, head, which)
    if isinstance(which, bool) or not isinstance(which, int):
        raise PlanError(f"a version must be a number, a tag or a datetime, not {which!r}")
    for entry in folder.history(head):
        if entry.number == which:
            return folder.version(entry.branch, which)
    return folder.version(head.branch, which)


def _tagged(folder: Folder, name: str) -> Version:
    tag = folder.tag(name)
    if tag is None:
        names = ", ".join(map(repr, folder.all_tags())) or "(none)"
        raise TableError(f"{str(folder)!r} has no tag {name!r}; its tags are {names}")
    return folder.version(tag.branch, tag.number)


def _as_old_as(folder: Folder, head: Version, when: datetime) -> Version:
    time = when.timestamp()
    for entry in folder.history(head):
        if isinstance(entry, Version) and entry.time <= time:
            return entry
    raise TableError(f"{str(folder)!r} has no version from {when} or before")
