"""Writes a pipeline: chunks of rows into shards, and after each shard where to go on.

Chunks have a fixed number of rows, whatever workers and blocks there are, so shards are cut at the
same rows in every run, also in one that was killed and begun again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from silva.errors import PlanError
from silva.loader import Loader
from silva.plan.fingerprint import fingerprint, opaque_parts
from silva.plan.node import Batch, Node, walk
from silva.plan.verify import is_batched
from silva.sinks.progress import Progress, alone, read_progress, write_progress
from silva.sinks.writer import Writer

_CHUNK = 256
"""Rows: few enough that photos fit into memory, enough that each costs little beside its rows."""


@dataclass(frozen=True)
class Limits:
    rows: int | None
    """In a shard; None for any number."""
    nbytes: int
    """After which a shard is closed."""

    @property
    def chunk(self) -> int:
        """Rows that are read and written at once: they fill a shard exactly, if they can."""
        if self.rows is None or self.rows % _CHUNK == 0:
            return _CHUNK
        if self.rows <= _CHUNK:
            return self.rows
        fitting = [n for n in range(_CHUNK, _CHUNK // 8, -1) if self.rows % n == 0]
        return fitting[0] if fitting else self.rows // -(-self.rows // _CHUNK)

    def reached(self, rows: int, nbytes: int) -> bool:
        """Whether a shard that holds so much is full."""
        full = self.rows is not None and rows + self.chunk > self.rows
        return full or nbytes >= self.nbytes


@dataclass(frozen=True)
class Written:
    """What a sink has made."""

    folder: Path
    shards: tuple[str, ...]
    """Names of files in the folder, in the order of their rows."""
    rows: int


def write(
    plan: Node, folder: Path, writer: Writer, limits: Limits, arguments: dict[str, Any]
) -> Written:
    """Writes all rows, or the rest of them where an earlier run was cut off."""
    if is_batched(plan):
        raise PlanError("what is written are rows: leave out batch")
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        **writer.settings(),
        "rows": limits.rows,
        "bytes": limits.nbytes,
        "seed": arguments.get("seed"),
    }
    with alone(folder):
        before = read_progress(folder)
        now = Progress(fingerprint(plan), settings)
        if before is not None:
            _check_same(folder, plan, before, now)
            now = before
        if not now.done:
            now = _Run(plan, folder, writer, limits, arguments).go_on(now)
    return Written(folder, tuple(now.shards), sum(now.rows))


class _Run:
    def __init__(
        self, plan: Node, folder: Path, writer: Writer, limits: Limits, arguments: dict[str, Any]
    ) -> None:
        self._folder, self._writer, self._limits = folder, writer, limits
        self._loader = Loader(Batch(plan, limits.chunk), **arguments)

    def go_on(self, progress: Progress) -> Progress:
        writer, loader = self._writer, self._loader
        writer.resume(progress.shards, progress.kept)
        write_progress(self._folder, progress)
        rows, is_open = 0, False
        try:
            if progress.state is not None:
                loader.load_state_dict(progress.state)
            for chunk in loader.blocks():
                if not is_open:
                    writer.open(len(progress.shards))
                    rows, is_open = 0, True
                nbytes = writer.write(chunk)
                rows += len(chunk)
                if self._limits.reached(rows, nbytes):
                    progress, is_open = self._closed(progress, rows), False
            if is_open:
                progress = self._closed(progress, rows)
        finally:
            writer.discard()
            loader.close()
        progress = replace(progress, done=True)
        write_progress(self._folder, progress)
        return progress

    def _closed(self, progress: Progress, rows: int) -> Progress:
        name = self._writer.close()
        progress = replace(
            progress,
            shards=[*progress.shards, name],
            rows=[*progress.rows, rows],
            kept=self._writer.keep(),
            state=self._loader.state_dict(),
        )
        write_progress(self._folder, progress)
        return progress


def _check_same(folder: Path, plan: Node, before: Progress, now: Progress) -> None:
    if before.pipeline != now.pipeline:
        steps = [getattr(node, "step", None) for node in walk(plan)]
        unstable = [name for step in steps for name in opaque_parts(step)]
        hint = f" ({unstable[0]} has another identity in every process)" if unstable else ""
        raise PlanError(
            f"{folder} holds {len(before.shards)} shards of another pipeline{hint}: write into a "
            "new folder"
        )
    for name, value in now.settings.items():
        if before.settings.get(name) != value:
            raise PlanError(
                f"{folder} was begun with {name}={before.settings.get(name)!r}, not {value!r}: go "
                "on with the same, or write into a new folder"
            )
