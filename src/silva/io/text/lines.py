"""Text files: one row per line, over byte ranges.

Lines are Arrow strings: splitting is twice as fast as `str.split`, passing them to a Python
function costs the same, and they move between processes as one buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from silva.columns import Column, Strings
from silva.errors import PlanError, SourceError
from silva.io.arrow_batches import empty_run
from silva.io.byte_ranges import COMPRESSED, LineSource
from silva.io.file_source import files_at
from silva.io.names import check_name
from silva.io.paths import Files, Paths
from silva.io.source import register_source


@register_source("lines")
@dataclass(frozen=True)
class Lines(LineSource):
    files: Files
    unit_bytes: int | None
    column: str
    errors: Literal["strict", "replace"]
    replays: bool
    """Whether a file is compressed: it is then read from its start."""

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def types(self) -> dict[str, str]:
        return {self.column: "str"}

    def fingerprint(self) -> str:
        return f"{self.errors}:{super().fingerprint()}"

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        for offset, data in self.pieces(unit):
            count = data.count(b"\n") + (not data.endswith(b"\n"))
            if count <= start:
                start -= count
                continue
            if columns:
                lines = Strings(_cut(self._valid(data, unit, offset)))
                yield {self.column: lines.slice(start, count)}
            else:
                yield empty_run(count - start)
            start = 0

    def _valid(self, data: bytes, unit: int, offset: int) -> bytes:
        """The data as valid utf-8, in which each line ends with one newline."""
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if self.errors == "replace":
                data = data.decode(errors="replace").encode()
            else:
                raise SourceError(
                    f"{self.path_of(unit)} is not utf-8 at byte {offset + error.start:,}: "
                    f"{error.reason}. "
                    'Use errors="replace" to read such bytes as "\N{REPLACEMENT CHARACTER}".'
                ) from error
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        return data if data.endswith(b"\n") else data + b"\n"


def _cut(data: bytes) -> object:
    """An Arrow array of the lines, without their newlines."""
    import pyarrow as pa

    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n"))
    offsets = np.zeros(len(ends) + 1, dtype=np.int64)
    np.subtract(ends, np.arange(len(ends)), out=offsets[1:])
    text = data.replace(b"\n", b"")
    return pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text))


def read_lines(
    paths: Paths,
    *,
    column: str = "text",
    errors: Literal["strict", "replace"] = "strict",
    unit_bytes: int | None = None,
) -> Lines:
    """Rows of one column, `text`: lines without `\\n` or `\\r\\n`. Empty lines are rows."""
    if errors not in ("strict", "replace"):
        raise PlanError(f'errors must be "strict" or "replace", not {errors!r}')
    check_name(column)
    files = files_at(paths)
    replays = any(pattern.endswith(COMPRESSED) for pattern in files.patterns)
    return Lines(files, unit_bytes, column, errors, replays)
