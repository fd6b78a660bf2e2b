"""Which shelf a place means: a folder of this machine's disks, or a prefix of an object store."""

from __future__ import annotations

import os
from pathlib import Path

from silva.errors import PlanError
from silva.io.addresses import SCHEMES, parse_address, scheme_of
from silva.run.folder_shelf import FolderShelf
from silva.run.shelf import Shelf

_WRITABLE = tuple(scheme for scheme in SCHEMES if not scheme.startswith("http"))


def place_of(given: str | os.PathLike[str]) -> str:
    """A place as plans hold it, without credentials; PlanError where no rows can be kept.

    >>> place_of("s3://bucket/rows/"), place_of("here/rows/")
    ('s3://bucket/rows', 'here/rows')
    """
    scheme = scheme_of(given)
    if not scheme:
        place = str(Path(given))
        if place.startswith(tuple(f"{each}:/" for each in SCHEMES)):
            raise PlanError("an address is given as text: a Path takes one of its slashes away")
        return place
    if scheme not in _WRITABLE:  # the rest may hold credentials and is not repeated
        raise PlanError(
            f"{scheme}:// addresses cannot keep rows, since they cannot be listed and written; "
            f"{', '.join(_WRITABLE)} and local folders can"
        )
    address = parse_address(os.fspath(given))
    return address.root.shown(address.key.strip("/")).rstrip("/")


def shelf_at(place: str | os.PathLike[str]) -> Shelf:
    """
    >>> shelf_at("rows").shown.endswith("/rows")
    True
    """
    found = place_of(place)
    if not scheme_of(found):
        return FolderShelf(Path(found).absolute())
    from silva.run.object_shelf import ObjectShelf

    return ObjectShelf(parse_address(found))
