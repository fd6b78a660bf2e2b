"""Keys of JSON objects as columns: nested objects become dotted names.

A column is found in a row by its *path*, the keys that lead to it. The dotted name is only for
display, so that a key that itself holds a dot is still found.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

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
