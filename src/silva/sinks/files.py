"""Shards that are files: made under a hidden name, and renamed when they are complete."""

from __future__ import annotations

import os
from pathlib import Path

from silva.sinks.progress import sync_folder


class ShardFiles:
    """The files of one folder: `part-00000.parquet`, and so on."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self._folder = folder
        self._suffix = suffix
        self._number = -1

    def begin(self, number: int) -> Path:
        """The path under which the next shard is made."""
        self._number = number
        return self._folder / f".{self._name}.part"

    @property
    def _name(self) -> str:
        return f"part-{self._number:05d}{self._suffix}"

    def complete(self) -> str:
        """Gives the shard its name, once all of it is on the disk."""
        part = self._folder / f".{self._name}.part"
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(self._folder / self._name)
        sync_folder(self._folder)
        return self._name

    def discard(self) -> None:
        """Removes what is not complete."""
        for path in self._folder.glob(f".part-*{self._suffix}.part"):
            path.unlink()

    def keep_only(self, shards: list[str]) -> None:
        """Removes shards that are not listed: complete, but of a run that was killed before it
        could say so. Their rows come again."""
        self.discard()
        for path in self._folder.glob(f"part-*{self._suffix}"):
            if path.name not in shards:
                path.unlink()
