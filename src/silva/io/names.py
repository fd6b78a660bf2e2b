"""Names of columns as users pass them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from silva.errors import PlanError, SourceError
from silva.plan.arguments import several, shown


def chosen(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """The argument `columns=` of a reader: names without duplicates, or None for all."""
    if columns is None:
        return None
    if isinstance(columns, str):
        raise PlanError(f"columns= is a list of names, not one string: write columns=[{columns!r}]")
    columns = several("columns=", columns)
    for name in columns:
        check_name(name)
    if not columns:
        raise PlanError("columns= names no column; leave it out to read all")
    return tuple(dict.fromkeys(columns))


def check_columns(wanted: Collection[str], there: Collection[str], where: str) -> None:
    """Raises for a column that a file or table does not have; `where` names it."""
    for name in wanted:
        if name not in there:
            raise SourceError(f"{where} has no column {name!r}; it has: {', '.join(there)}")


def check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise PlanError(f"a column's name is a non-empty string, not {shown(name)}")
