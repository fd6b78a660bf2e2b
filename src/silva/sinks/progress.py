"""The progress of a write: one small file, replaced atomically."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from silva.errors import FolderError, PlanError
from silva.folders import OwnFolder, telling_full_disk

FILE = "_silva.json"
_PART = f".{FILE}.part"
_LOCK = "_silva.lock"
_MOST_BYTES = 1 << 26
"""The largest size of the file."""
_VERSION = 1


@dataclass(frozen=True)
class WriteProgress:
    pipeline: str
    """The fingerprint of the pipeline."""
    settings: dict[str, Any]
    shards: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    """The number of rows in each shard."""
    kept: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] | None = None
    """The loader's state after the last row of the last shard; None before the first shard."""
    done: bool = False
    version: int = _VERSION
    """The version of the file format, which 0.1 did not write."""


def read_progress(folder: OwnFolder) -> WriteProgress | None:
    """The progress in a folder; None in an empty folder."""
    try:
        found = msgspec.convert(json.loads(folder.read(FILE, _MOST_BYTES)), WriteProgress)
    except FileNotFoundError:
        pass
    except (ValueError, RecursionError, FolderError) as error:
        raise PlanError(f"{folder.path / FILE} is damaged: {error}") from error
    else:
        if found.version != _VERSION:
            raise PlanError(
                f"{folder.path / FILE} has format {found.version}, where this version of silva "
                f"knows format {_VERSION}: continue with the silva that wrote it, or write into a "
                "new folder"
            )
        return found
    names = [entry.name for entry in folder.entries()]
    strangers = sorted(name for name in names if not name.startswith((".", "_silva")))
    if strangers:
        raise PlanError(
            f"{folder.path} holds other files ({strangers[0]}, …): write into an empty or a new "
            "folder"
        )
    return None


def write_progress(folder: OwnFolder, progress: WriteProgress) -> None:
    """Replaces the file atomically: a reader sees the old one or the new one."""
    with suppress(FileNotFoundError):
        folder.remove(_PART)  # left by a run that was killed
    folder.write(FILE, json.dumps(asdict(progress)).encode(), _PART, replace=True)


@contextmanager
def alone(folder: OwnFolder) -> Iterator[None]:
    """Makes the folder and locks it against other writers. A killed writer leaves no lock."""
    with telling_full_disk(folder.path / _LOCK, "Free some room, and run it again"):
        lock = folder.open_file(_LOCK, os.O_WRONLY | os.O_CREAT, make=True)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlanError(
                f"{folder.path} is being written by another process: wait for it, or write into "
                "another folder"
            ) from None
        yield
    finally:
        os.close(lock)
