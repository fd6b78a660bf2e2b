"""JSON lines: one row per object, over byte ranges.

The columns are inferred once, from the first 1,000 lines. A key that first appears later is an
error, not a column that only some batches have. Columns that are not requested are skipped without
creating Python objects. Each line is decoded on its own: decoding many at once would be a third
faster, but would accept objects that span lines, which byte ranges would cut in two.

Nested objects become columns with dotted names. A column is found in a row by its *path*, the keys
that lead to it. The dotted name is only for display, so that a key that itself holds a dot is still
found.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from silva.columns import Column, Values
from silva.errors import SourceError
from silva.io.arrow_batches import empty_run
from silva.io.byte_ranges import COMPRESSED, LineSource
from silva.io.file_source import files_at
from silva.io.names import chosen
from silva.io.paths import Files, Paths
from silva.io.source import register_source

LOOK = 1000
"""The number of lines from which the columns are inferred."""

_ANY_OBJECT: msgspec.json.Decoder[Any] = msgspec.json.Decoder(dict[str, Any])
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@register_source("json")
@dataclass(frozen=True)
class JsonLines(LineSource):
    carried: ClassVar[tuple[str, ...]] = ("_paths",)
    files: Files
    unit_bytes: int | None
    given: tuple[str, ...] | None
    """The columns that the user chose: other keys are then ignored."""
    replays: bool
    """Whether a file is compressed: it is then read from its start."""

    @functools.cached_property
    def _paths(self) -> dict[str, Path]:
        """The keys that lead to each column."""
        if self.given is not None and not any("." in name for name in self.given):
            return {name: (name,) for name in self.given}
        first = (
            row
            for unit in range(self.units())
            for offset, data in self.pieces(unit)
            for row in self._decode(data, unit, offset, _ANY_OBJECT)
        )
        try:
            found = find_paths(itertools.islice(first, LOOK))
        except KeyMismatch as error:
            raise SourceError(f"{self.describe()}: {error}") from error
        except RecursionError:
            raise SourceError(
                f"{self.describe()}: objects are nested too deeply to become columns: choose the "
                "columns with columns=[…]"
            ) from None
        if self.given is None:
            return found
        return {name: found.get(name, tuple(name.split("."))) for name in self.given}

    def columns(self) -> tuple[str, ...]:
        return tuple(self._paths)

    def fingerprint(self) -> str:
        return f"{self.given}:{super().fingerprint()}"

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        tops = tuple(dict.fromkeys(path[0] for path in self._paths.values()))
        asked = frozenset(self._paths[name][0] for name in columns)
        decoder = row_decoder(tops, asked, self.given is None)
        fields = {name: f"f{tops.index(self._paths[name][0])}" for name in columns}
        for offset, data in self.pieces(unit):
            rows = self._decode(data, unit, offset, decoder)
            if len(rows) <= start:
                start -= len(rows)
                continue
            if start:
                rows, start = rows[start:], 0
            if columns:
                yield {n: self._column(n, rows, field, unit) for n, field in fields.items()}
            else:
                yield empty_run(len(rows))

    def _column(self, name: str, rows: list[Any], field: str, unit: int) -> Column:
        items = [getattr(row, field) for row in rows]
        try:
            known = self._paths if self.given is None else None
            return Values(values_at(items, self._paths[name], known)).settled()
        except KeyMismatch as error:
            raise SourceError(f"{self.path_of(unit)}: {error}.{_HINT}") from error

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
                hint = _HINT if "unknown field" in str(error) else _hint(line)
                why = "it is nested too deeply" if isinstance(error, RecursionError) else error
                return SourceError(
                    f"{self.path_of(unit)}: the line at byte {offset:,} cannot be read: {why}."
                    f"{hint} It starts with: {line[:80].decode(errors='replace')}"
                )
            offset += len(line) + 1
        raise AssertionError("a piece failed, but none of its lines fails alone")


_HINT = (
    f" The columns are inferred from the first {LOOK:,} lines: choose them with columns=[…] to "
    "ignore other keys."
)


_AS_ROWS = (
    " To treat such lines as rows that fail: sv.read_lines(…).derive(row=json.loads, "
    'reads="text").map_rows(lambda row: row["row"], into=[…]) with loader(on_error=sv.Skip()).'
)


def _hint(line: bytes) -> str:
    """Advice for a line that is not an object: the file may not be JSON lines at all."""
    start = line.strip()
    if start.startswith(b"[") or start in (b"{", b"{}") or not start.endswith(b"}"):
        return (
            " read_json reads one object per line (JSON lines). For a file that is one array, or "
            "that is pretty-printed: sv.from_items(json.load(file))." + _AS_ROWS
        )
    return _AS_ROWS


def read_json(
    paths: Paths, *, columns: Sequence[str] | None = None, unit_bytes: int | None = None
) -> JsonLines:
    """Rows with one column per key; a missing key is None.

    With `columns=`, other keys are ignored; an object chosen there is a column of dicts.
    """
    files = files_at(paths, (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".json.gz"))
    replays = any(pattern.endswith(COMPRESSED) for pattern in files.patterns)
    return JsonLines(files, unit_bytes, chosen(columns), replays)


Path = tuple[str, ...]


class KeyMismatch(Exception):
    """A value does not fit the columns; the message is a clause of an error for the user."""


def find_paths(rows: Iterable[dict[str, Any]]) -> dict[str, Path]:
    """The columns of these rows, in order of appearance.

    A key that was only ever null or `{}` is a column of its own, unless it was an object elsewhere.
    """
    seen: dict[Path, bool] = {}
    for row in rows:
        _look(seen, row, ())
    inner = {path[:depth] for path in seen for depth in range(1, len(path))}
    paths: dict[str, Path] = {}
    for path, has_value in seen.items():
        if has_value or path not in inner:
            name = ".".join(path)
            if paths.setdefault(name, path) != path:
                raise KeyMismatch(f"two different keys would both be called {name!r}")
    return paths


def _look(seen: dict[Path, bool], row: dict[str, Any], prefix: Path) -> None:
    for key, value in row.items():
        path = (*prefix, key)
        if type(value) is dict and value:
            _look(seen, value, path)
        else:
            has_value = value is not None and type(value) is not dict
            seen[path] = seen.get(path, False) or has_value


@functools.lru_cache(maxsize=256)
def row_decoder(
    tops: tuple[str, ...], asked: frozenset[str], strict: bool
) -> msgspec.json.Decoder[Any]:
    """Decodes one line into an object with attributes `f0, f1, …`, one for each of `tops`.

    Keys that are not requested are skipped; with `strict`, any other key is an error.
    """
    fields: list[Any] = [
        (f"f{i}", Any, None) if top in asked else (f"f{i}", msgspec.Raw, msgspec.Raw(b"null"))
        for i, top in enumerate(tops)
    ]
    names = {f"f{i}": top for i, top in enumerate(tops)}
    row = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=strict)
    return msgspec.json.Decoder(row)


def values_at(items: list[Any], path: Path, paths: Mapping[str, Path] | None) -> list[Any]:
    """The value at `path` of each item, where the items are values of the key `path[0]`.

    With `paths` (all columns there are) a value that would be in none of them is an error.
    """
    for depth in range(1, len(path)):
        if paths is not None:
            _check(items, path[:depth], paths)
        key = path[depth]
        items = [item.get(key) if type(item) is dict else None for item in items]
    if paths is not None and dict in set(map(type, items)):
        _check(items, path, paths)
        items = [None if type(item) is dict else item for item in items]
    return items


def _check(items: list[Any], prefix: Path, paths: Mapping[str, Path]) -> None:
    depth, name = len(prefix), ".".join(prefix)
    is_column = name in paths
    known = {p[depth] for p in paths.values() if len(p) > depth and p[:depth] == prefix}
    for item in items:
        if type(item) is dict:
            if not item.keys() <= known:
                late = min(item.keys() - known)
                raise KeyMismatch(f"unknown key {name + '.' + late!r}")
        elif item is not None and not is_column:
            raise KeyMismatch(f"{name!r} is {item!r:.40}, not an object as in the first lines")
