"""Names of columns as users give them."""

from __future__ import annotations

from collections.abc import Sequence

from silva.errors import PlanError


def chosen(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """The `columns=` of a reader: names without duplicates, or None for all."""
    if columns is None:
        return None
    if isinstance(columns, str):
        raise PlanError(f"columns= is a list of names, not one string: [{columns!r}]")
    for name in columns:
        check_name(name)
    if not columns:
        raise PlanError("columns= names no column; leave it out to read all")
    return tuple(dict.fromkeys(columns))


def check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise PlanError(f"a column's name is a non-empty string, not {name!r}")
