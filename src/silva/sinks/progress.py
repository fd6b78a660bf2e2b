"""How far a pipeline has been written: one small file, replaced as a whole."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from silva.errors import PlanError

FILE = "_silva.json"
_LOCK = "_silva.lock"


@dataclass(frozen=True)
class Progress:
    pipeline: str
    """The fingerprint of what is written."""
    settings: dict[str, Any]
    shards: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    """In each shard."""
    kept: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] | None = None
    """Of the loader, after the last row of the last shard; None where nothing was written."""
    done: bool = False


def read_progress(folder: Path) -> Progress | None:
    """What was written so far; None in a folder that holds nothing."""
    try:
        return Progress(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        pass
    except (ValueError, TypeError) as error:
        raise PlanError(f"{folder / FILE} is damaged: {error}") from error
    strangers = sorted(p.name for p in folder.iterdir() if not p.name.startswith((".", "_silva")))
    if strangers:
        raise PlanError(
            f"{folder} holds other files ({strangers[0]}, …): write into an empty or a new folder"
        )
    return None


def write_progress(folder: Path, progress: Progress) -> None:
    """Replaces the file at once: whoever looks sees the old one or the new one."""
    part = folder / f".{FILE}.part"
    with part.open("w", encoding="utf-8") as file:
        json.dump(asdict(progress), file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / FILE)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Makes names that appeared in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds the folder against other writers; a killed one holds nothing."""
    with (folder / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlanError(f"{folder} is being written by another process") from None
        yield
