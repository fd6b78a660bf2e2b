"""What a stage has done so far, counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from silva.io.incoming import NOTHING, Incoming
from silva.profile.costs import Cost


@dataclass
class LaneStats:
    """Counters of a stage, from the start of the loader."""

    blocks: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_out: int = 0
    busy: float = 0.0
    """Seconds that workers spent in the stage."""
    cpu: float = 0.0
    came: Incoming = NOTHING
    """Bytes from outside."""
    moved: int = 0
    """Bytes that were read from memory or written to it, at least."""
    keeping: float = 0.0
    """Seconds that the consumer spent on looking rows up in a cache and putting them into it."""
    elapsed: float = 0.0
    """Seconds that the stage was being read, the consumer's own time included."""
    starved: float = 0.0
    """Seconds that the consumer waited for the stage."""
    blocked: int = 0
    """Times that the stage could not go ahead because its share of memory was full."""
    most_bytes: int = 0
    """The most bytes of finished blocks that were ever waiting for the consumer."""
    queue_fill: float = 0.0
    """Blocks done and waiting when the consumer came, on average."""
    ready: int = 0
    """Rows done and waiting for the consumer now."""
    followed: int = 0
    """Blocks since the stage became what it is."""
    again: int = 0
    """Of these, blocks that were done again in the order written, because a row failed."""
    steps: list[Cost] = field(default_factory=list)
    """What reading took, and then each step."""
    late: Cost = field(default_factory=Cost)
    """What reading took of columns that were left until after a filter."""
