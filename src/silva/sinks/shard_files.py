"""Shards that are files: written under a hidden name, and renamed when they are complete."""

from __future__ import annotations

import contextlib
import os
from typing import BinaryIO

from silva.errors import PlanError
from silva.folders import OwnFolder


class ShardFiles:
    """The shards in one folder: `part-00000.parquet`, `part-00001.parquet` and so on."""

    def __init__(self, folder: OwnFolder, suffix: str) -> None:
        self._folder = folder
        self._suffix = suffix
        self._number = -1
        self._open: BinaryIO | None = None

    def begin(self, number: int) -> BinaryIO:
        """Opens the file that becomes the next shard."""
        self._number = number
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._open = open(self._folder.open_file(self._unfinished_name, new, make=True), "wb")  # noqa: SIM115
        return self._open

    @property
    def _name(self) -> str:
        return f"part-{self._number:05d}{self._suffix}"

    @property
    def _unfinished_name(self) -> str:
        return f".{self._name}.part"

    def complete(self) -> str:
        """Syncs the shard to disk and gives it its name."""
        assert self._open is not None
        self._open.flush()
        os.fsync(self._open.fileno())
        self._open.close()
        self._open = None
        with self._folder.opened() as folder:
            os.replace(self._unfinished_name, self._name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        return self._name

    def discard(self) -> None:
        """Removes the unfinished shard."""
        if self._open is not None:
            with contextlib.suppress(OSError):  # a full disk: the file is removed anyway
                self._open.close()
            self._open = None
        self._remove(".part-", f"{self._suffix}.part", [])

    def keep_only(self, shards: list[str]) -> None:
        """Removes shards that are not listed: a run was killed after it had completed them and
        before it had listed them. Their rows are written again."""
        self.discard()
        self._remove("part-", self._suffix, shards)

    def _remove(self, start: str, end: str, kept: list[str]) -> None:
        for entry in self._folder.entries():
            name = entry.name
            if not (name.startswith(start) and name.endswith(end)) or name in kept:
                continue
            if entry.is_dir(follow_symlinks=False):
                raise PlanError(
                    f"{str(self._folder.path / name)!r} is a folder: write into another folder"
                )
            self._folder.remove(name)
