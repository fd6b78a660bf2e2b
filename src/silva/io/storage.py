"""Where paths lead: to disks of this machine, or to an object store."""

from __future__ import annotations

import os

from silva.errors import PlanError
from silva.io.addresses import SCHEMES, parse_address, scheme_of
from silva.io.paths import Files, Paths, given_paths, local_files


def files_at(paths: Paths, suffixes: tuple[str, ...] = ()) -> Files:
    """The files that a reader was asked for; nothing is listed yet. Of a folder, those are meant
    whose names end in one of `suffixes`."""
    given = given_paths(paths)
    schemes = [scheme_of(path) for path in given]
    unknown = next((scheme for scheme in schemes if scheme and scheme not in SCHEMES), None)
    if unknown is not None:  # the rest may hold credentials and is not repeated
        raise PlanError(
            f"{unknown}:// addresses cannot be read; {', '.join(SCHEMES)} and local paths can"
        )
    if not any(schemes):
        return local_files(given, suffixes)
    if not all(schemes):
        raise PlanError("local paths and addresses cannot be read as one list: use sv.concat")
    from silva.io.objects import ObjectFiles

    return ObjectFiles(tuple(parse_address(os.fspath(path)) for path in given), suffixes)
