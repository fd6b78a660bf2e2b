"""JSON lines: one row an object, over byte ranges.

Which columns there are is decided once, by the first 1,000 lines; a key that turns up later is an
error, not a column that some batches have. A column that nobody asks for is skipped over without
making Python objects of it. Each line is decoded on its own: decoding many at once would be a third
faster, but accepts objects that span lines, which byte ranges would then cut in two.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from silva.columns import Array, Column, Values
from silva.errors import SourceError
from silva.io.json_keys import KeyMismatch, Path, find_paths, row_decoder, values_at
from silva.io.names import chosen
from silva.io.paths import Paths
from silva.io.ranges import COMPRESSED, LineUnits, check_unit_bytes
from silva.io.storage import files_at
from silva.io.travel import Travels

LOOK = 1000
"""Lines that decide which columns there are."""

_ANY_OBJECT: msgspec.json.Decoder[Any] = msgspec.json.Decoder(dict[str, Any])
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BAD = (msgspec.DecodeError, UnicodeDecodeError)


@dataclass(frozen=True)
class JsonLines(Travels):
    access: ClassVar[Literal["chunked"]] = "chunked"
    carried: ClassVar[tuple[str, ...]] = ("_paths",)
    ranges: LineUnits
    given: tuple[str, ...] | None
    """Columns chosen by the user: other keys are then ignored."""
    replays: bool
    """True where a compressed file was named: it is read from its start."""

    @functools.cached_property
    def _paths(self) -> dict[str, Path]:
        """The keys that lead to each column."""
        if self.given is not None and not any("." in name for name in self.given):
            return {name: (name,) for name in self.given}
        first = (
            row
            for unit in range(self.ranges.count())
            for offset, data in self.ranges.pieces(unit)
            for row in self._decode(data, unit, offset, _ANY_OBJECT)
        )
        try:
            found = find_paths(itertools.islice(first, LOOK))
        except KeyMismatch as error:
            raise SourceError(f"{self.describe()}: {error}") from error
        if self.given is None:
            return found
        return {name: found.get(name, tuple(name.split("."))) for name in self.given}

    def columns(self) -> tuple[str, ...]:
        return tuple(self._paths)

    def types(self) -> dict[str, str]:
        return {}

    def describe(self) -> str:
        return f"json {self.ranges.files.describe()}"

    def fingerprint(self) -> str:
        return f"json:{self.given}:{self.ranges.fingerprint()}"

    def length(self) -> None:
        return None

    def units(self) -> int:
        return self.ranges.count()

    def unit_rows(self) -> None:
        return None

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        tops = tuple(dict.fromkeys(path[0] for path in self._paths.values()))
        asked = frozenset(self._paths[name][0] for name in columns)
        decoder = row_decoder(tops, asked, self.given is None)
        fields = {name: f"f{tops.index(self._paths[name][0])}" for name in columns}
        for offset, data in self.ranges.pieces(unit):
            rows = self._decode(data, unit, offset, decoder)
            if len(rows) <= start:
                start -= len(rows)
                continue
            if start:
                rows, start = rows[start:], 0
            if columns:
                yield {n: self._column(n, rows, field, unit) for n, field in fields.items()}
            else:
                yield {"": Array(np.zeros(len(rows), dtype=bool))}

    def _column(self, name: str, rows: list[Any], field: str, unit: int) -> Column:
        items = [getattr(row, field) for row in rows]
        try:
            known = self._paths if self.given is None else None
            return Values(values_at(items, self._paths[name], known)).settled()
        except KeyMismatch as error:
            raise SourceError(f"{self._path(unit)}: {error}.{_HINT}") from error

    def _decode(
        self, data: bytes, unit: int, offset: int, decoder: msgspec.json.Decoder[Any]
    ) -> list[Any]:
        if offset == 0 and data.startswith(_BYTE_ORDER_MARK):
            data = b"   " + data[3:]  # spaces, so that offsets stay what they are
        lines = [line for line in data.split(b"\n") if line and not line.isspace()]
        try:
            return list(map(decoder.decode, lines))
        except _BAD as error:
            raise self._bad_line(data, unit, offset, decoder) from error

    def _bad_line(
        self, data: bytes, unit: int, offset: int, decoder: msgspec.json.Decoder[Any]
    ) -> SourceError:
        for line in data.split(b"\n"):
            try:
                if line and not line.isspace():
                    decoder.decode(line)
            except _BAD as error:
                hint = _HINT if "unknown field" in str(error) else ""
                return SourceError(
                    f"{self._path(unit)}: the line at byte {offset:,} cannot be read: {error}."
                    f"{hint} It starts with: {line[:80].decode(errors='replace')}"
                )
            offset += len(line) + 1
        raise AssertionError("a piece failed as a whole, but none of its lines does")

    def _path(self, unit: int) -> str:
        return self.ranges.files.listing.paths[self.ranges.place(unit)[0]]


_HINT = (
    f" The first {LOOK:,} lines decide which columns there are; name those that you want with "
    "columns=[…] to ignore other keys."
)


def read_json(
    paths: Paths, *, columns: Sequence[str] | None = None, unit_bytes: int | None = None
) -> JsonLines:
    """Rows with a column a key; a missing key is None.

    With `columns=`, other keys are ignored; an object named there comes as a dict.
    """
    check_unit_bytes(unit_bytes)
    files = files_at(paths, (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".json.gz"))
    replays = any(pattern.endswith(COMPRESSED) for pattern in files.patterns)
    return JsonLines(LineUnits(files, unit_bytes), chosen(columns), replays)
