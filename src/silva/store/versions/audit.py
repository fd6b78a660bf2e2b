"""The audit log: a line of JSON for each epoch that a loader starts, in the table's own folder.

It is written for people and for `Table.optimize`, which counts how often columns are read. It must
never stop a reader: where it cannot be written, it is left out.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping

import msgspec

from silva.store.versions.table_folder import Folder

_HALF_LIFE = 30 * 86400.0
"""Seconds after which a read counts for half."""


class Read(msgspec.Struct, frozen=True):
    time: float
    job: str
    pid: int
    branch: str
    version: int
    epoch: int
    columns: tuple[str, ...]
    """The columns that were read or derived."""


def note(folder: Folder, read: Read) -> None:
    """Adds a line, unless the disk is full or read-only."""
    try:
        day = time.strftime("%Y-%m-%d", time.gmtime(read.time))
        add = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        handle = folder.own.below("audit").open_file(f"{day}.jsonl", add, make=True)
        try:
            os.write(handle, msgspec.json.encode(read) + b"\n")
        finally:
            os.close(handle)
    except OSError:
        pass


def job_name() -> str:
    """The name of this program, for people."""
    return os.environ.get("SILVA_JOB") or os.path.basename(sys.argv[0]) or "python"


def reads(folder: Folder) -> Iterator[Read]:
    """All reads so far, the oldest first; truncated lines are left out."""
    for name in folder.names("audit"):
        if not name.endswith(".jsonl"):
            continue
        for line in (folder.read("audit", name) or b"").splitlines():
            try:
                yield msgspec.json.decode(line, type=Read)
            except msgspec.MsgspecError:
                continue


def count_reads(folder: Folder, now: float) -> Mapping[str, float]:
    """How often each column was read; older reads count for less."""
    found: dict[str, float] = {}
    for read in reads(folder):
        weight = 0.5 ** (max(now - read.time, 0.0) / _HALF_LIFE)
        for name in read.columns:
            found[name] = found.get(name, 0.0) + weight
    return found
