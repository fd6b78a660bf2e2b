"""What a format is to the sinks."""

from __future__ import annotations

from typing import Any, Protocol

from silva.columns import Block


class Writer(Protocol):
    """Makes shards, one at a time: open, write some chunks, close."""

    def settings(self) -> dict[str, Any]:
        """What decides the bytes, as JSON: shards of other settings are not continued."""

    def resume(self, shards: list[str], kept: dict[str, Any]) -> None:
        """Begins after these shards, which are complete; removes whatever else it had begun.
        `kept` is what `keep` gave for them."""

    def keep(self) -> dict[str, Any]:
        """What later shards must agree with, as JSON: a schema, say."""

    def open(self, number: int) -> None:
        """Begins a shard."""

    def write(self, chunk: Block) -> int:
        """Adds rows to the open shard; gives about how many bytes it has by now. The same chunks
        must give the same number, or shards would be cut elsewhere after a kill."""

    def close(self) -> str:
        """Completes the open shard; on the disk, and under the name that is given back."""

    def discard(self) -> None:
        """Gives up the open shard, if there is one."""
