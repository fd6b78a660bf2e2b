"""Writes a pipeline: chunks of rows into shards, and the progress after each shard.

Chunks have a fixed number of rows, however many workers and blocks there are, so shards are cut at
the same rows in every run, also in one that was killed and resumed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from silva.columns import Block
from silva.errors import PlanError
from silva.folders import OwnFolder, telling_full_disk
from silva.loader import Loader
from silva.options import LoaderOptions, WriteArguments
from silva.plan.fingerprint import fingerprint, opaque_parts
from silva.plan.node import Batch, Node, walk
from silva.plan.schema import is_batched
from silva.sinks.progress import WriteProgress, alone, read_progress, write_progress

_ADVICE = (
    "Complete shards are listed in _silva.json, and the unfinished one is removed. Free some space "
    "and run it again: it continues after the last complete shard"
)
_CHUNK = 256
"""Rows: few enough that photos fit into memory, enough that the cost per chunk is small."""


class ShardWriter(Protocol):
    """Writes shards one at a time: open, write some chunks, close."""

    def settings(self) -> dict[str, Any]:
        """The settings that determine the bytes, as JSON: a resumed run must have the same."""

    def resume(self, shards: list[str], kept: dict[str, Any]) -> None:
        """Continues after these complete shards, and removes unfinished ones. `kept` is what `keep`
        returned after the last of them."""

    def keep(self) -> dict[str, Any]:
        """What later shards must agree with, as JSON, e.g. a schema."""

    def open(self, number: int) -> None:
        """Starts a shard."""

    def write(self, chunk: Block) -> int:
        """Adds rows to the open shard and returns its approximate size in bytes. The same chunks
        must give the same size, or a resumed run would cut shards at other rows."""

    def close(self) -> str:
        """Completes the open shard, syncs it to disk, and returns its name."""

    def discard(self) -> None:
        """Discards the open shard, if there is one."""


@dataclass(frozen=True)
class Limits:
    rows: int | None
    """The most rows in a shard; None for any number."""
    nbytes: int
    """Bytes after which a shard is closed."""

    @property
    def chunk(self) -> int:
        """Rows that are read and written at once; if possible, chunks fill a shard exactly."""
        if self.rows is None or self.rows % _CHUNK == 0:
            return _CHUNK
        if self.rows <= _CHUNK:
            return self.rows
        fitting = [n for n in range(_CHUNK, _CHUNK // 8, -1) if self.rows % n == 0]
        return fitting[0] if fitting else self.rows // -(-self.rows // _CHUNK)

    def reached(self, rows: int, nbytes: int) -> bool:
        """Whether a shard with this many rows and bytes is full."""
        full = self.rows is not None and rows + self.chunk > self.rows
        return full or nbytes >= self.nbytes


@dataclass(frozen=True)
class Written:
    """The result of a write."""

    folder: Path
    shards: tuple[str, ...]
    """The names of the files in the folder, in the order of their rows."""
    rows: int


def write(
    plan: Node, folder: OwnFolder, writer: ShardWriter, limits: Limits, arguments: WriteArguments
) -> Written:
    """Writes all rows, or the remaining ones after an interrupted run."""
    if is_batched(plan):
        raise PlanError("rows are written, not batches: leave out batch")
    settings = {
        **writer.settings(),
        "rows": limits.rows,
        "bytes": limits.nbytes,
        "seed": arguments.get("seed"),
    }
    with alone(folder):
        before = read_progress(folder)
        now = WriteProgress(fingerprint(plan), settings)
        if before is not None:
            _check_same(folder, plan, before, now)
            now = before
        if not now.done:
            now = _ShardedWrite(plan, folder, writer, limits, arguments).go_on(now)
    return Written(folder.path, tuple(now.shards), sum(now.rows))


class _ShardedWrite:
    def __init__(
        self,
        plan: Node,
        folder: OwnFolder,
        writer: ShardWriter,
        limits: Limits,
        arguments: WriteArguments,
    ) -> None:
        self._folder, self._writer, self._limits = folder, writer, limits
        self._loader = Loader(Batch(plan, limits.chunk), LoaderOptions(**arguments))

    def go_on(self, progress: WriteProgress) -> WriteProgress:
        writer, loader = self._writer, self._loader
        writer.resume(progress.shards, progress.kept)
        self._note(progress)
        rows, is_open = 0, False
        try:
            if progress.state is not None:
                loader.load_state_dict(progress.state)
            for chunk in loader.blocks():
                with self._telling_full_disk():
                    if not is_open:
                        writer.open(len(progress.shards))
                        rows, is_open = 0, True
                    nbytes = writer.write(chunk)
                rows += len(chunk)
                if self._limits.reached(rows, nbytes):
                    progress, is_open = self._closed(progress, rows), False
            if is_open:  # with its end in one file: a state between them begins the next epoch
                progress = self._closed(progress, rows, done=True)
        finally:
            try:
                writer.discard()
            finally:
                loader.close()
        if not progress.done:
            progress = replace(progress, done=True)
            self._note(progress)
        return progress

    def _telling_full_disk(self) -> AbstractContextManager[None]:
        return telling_full_disk(self._folder.path, _ADVICE)

    def _note(self, progress: WriteProgress) -> None:
        with self._telling_full_disk():
            write_progress(self._folder, progress)

    def _closed(self, progress: WriteProgress, rows: int, *, done: bool = False) -> WriteProgress:
        with self._telling_full_disk():
            name = self._writer.close()
        progress = replace(
            progress,
            shards=[*progress.shards, name],
            rows=[*progress.rows, rows],
            kept=self._writer.keep(),
            state=self._loader.state_dict(),
            done=done,
        )
        self._note(progress)
        return progress


def unstable_parts(plan: Node) -> list[str]:
    """The parts of a plan whose fingerprint differs from process to process."""
    return [name for node in walk(plan) for name in opaque_parts(node.runs)]


def _check_same(folder: OwnFolder, plan: Node, before: WriteProgress, now: WriteProgress) -> None:
    if before.pipeline != now.pipeline:
        unstable = unstable_parts(plan)
        hint = f" ({unstable[0]} has another fingerprint in every process)" if unstable else ""
        raise PlanError(
            f"{folder.path} holds {len(before.shards)} shards of another pipeline{hint}: write "
            "into a new folder"
        )
    for name, value in now.settings.items():
        if before.settings.get(name) != value:
            raise PlanError(
                f"{folder.path} was begun with {name}={before.settings.get(name)!r}, not "
                f"{value!r}: continue with the same value, or write into a new folder"
            )
