"""Who read what: a line of JSON for each epoch that a loader begins, in the table's own folder.

It is written for people and for `Table.optimize`, which counts how often columns are read. It must
never keep anybody from reading: where nothing can be written, nothing is.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping

import msgspec

from silva.store.folder import Folder

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
    """That were read or derived."""


def note(folder: Folder, read: Read) -> None:
    """Adds a line; a table on a disk that is full or read-only goes without."""
    try:
        folder.audit.mkdir(exist_ok=True)
        day = time.strftime("%Y-%m-%d", time.gmtime(read.time))
        handle = os.open(
            folder.audit / f"{day}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666
        )
        try:
            os.write(handle, msgspec.json.encode(read) + b"\n")
        finally:
            os.close(handle)
    except OSError:
        pass


def job_name() -> str:
    """What runs here, for people."""
    return os.environ.get("SILVA_JOB") or os.path.basename(sys.argv[0]) or "python"


def reads(folder: Folder) -> Iterator[Read]:
    """What was read so far, the oldest first; lines that are cut short are left out."""
    if not folder.audit.is_dir():
        return
    for path in sorted(folder.audit.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                yield msgspec.json.decode(line, type=Read)
            except msgspec.MsgspecError:
                continue


def observed(folder: Folder, now: float) -> Mapping[str, float]:
    """How often each column was read; what is long ago counts for less."""
    found: dict[str, float] = {}
    for read in reads(folder):
        weight = 0.5 ** (max(now - read.time, 0.0) / _HALF_LIFE)
        for name in read.columns:
            found[name] = found.get(name, 0.0) + weight
    return found
