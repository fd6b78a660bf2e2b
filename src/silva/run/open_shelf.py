"""Which shelf a place means."""

from __future__ import annotations

from pathlib import Path

from silva.run.folder_shelf import FolderShelf
from silva.run.shelf import Shelf


def shelf_at(place: str | Path) -> Shelf:
    """
    >>> shelf_at("rows").shown.endswith("/rows")
    True
    """
    return FolderShelf(Path(place).absolute())
