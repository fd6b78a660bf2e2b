"""The interface of a format that pipelines are written in."""

from __future__ import annotations

from typing import Any, Protocol

from silva.columns import Block


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
