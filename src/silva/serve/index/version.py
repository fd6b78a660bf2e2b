"""The files of an index: versions, and the parts that they name.

    versions/0000000003.json    a version, sealed: the highest number is what the index is now
    parts/<digest>              rows, vectors, postings: named by the hash of their contents
    building/<pipeline>/        the shards of a build that is under way, or was killed

A version appears under its name as a whole, after its parts are on the disk. A kill at any moment
leaves the version before. Parts are read through descriptors, up to the size and with the digest
that the version states, before anything decodes them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from silva.errors import FolderError, PlanError, SilvaError
from silva.folders import OwnFolder, telling_full_disk
from silva.io.objects.addresses import local_folder
from silva.sinks.progress import alone
from silva.store.versions.sealed import encode, name_of, seal, unseal

FORMAT = 1
_MOST_BYTES = 1 << 20
"""The largest file of a version."""
_VERSION = re.compile(r"([0-9]{10})\.json")
_UNFINISHED = ".unfinished"
_FULL = "The index is unchanged. Free some space, and run it again"

_YEAR_9999 = 253370764800.0
"""The seconds until then, which is as far as dates go."""

Natural = Annotated[int, msgspec.Meta(ge=0)]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
Span = tuple[Natural, Natural]
"""Numbers from the first to before the second."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of an index."""

    name: Digest
    """The hash of its contents."""
    nbytes: Natural


class Recall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How good an approximate search is, measured when it was built."""

    floor: float
    """The share of the true neighbours that was asked for."""
    bound: float
    """The measured share is at least this, with 95 % confidence, for every k up to `most`."""
    measured: float
    queries: Natural
    """The number of passages that were used as queries."""
    most: Natural
    """The largest k that is searched approximately."""
    expansion: Natural
    """The number of candidates that the graph keeps while it searches."""


class Roles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which columns are what."""

    id: str
    text: str | None
    """The column that hits show."""
    keyword: str | None
    vector: str | None
    numbered: bool
    """Whether ids are the numbers of the rows, for want of a column."""
    embed: str | None
    """The identity of the model that made the vectors, where it is known."""
    floor: float | None
    """The recall floor of an approximate search; None for an exact one."""


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an index holds."""

    format: int
    number: Natural
    time: Annotated[float, msgspec.Meta(ge=0, lt=_YEAR_9999)]
    what: str
    """What made it: a build, an addition or a deletion."""
    pipeline: str
    """The fingerprint of the build that it holds, so that it is not built again."""
    roles: Roles
    rows: Natural
    dims: Natural
    next_id: Natural
    """The next number, where ids are numbers of rows."""
    recall: Recall | None
    parts: dict[str, Part]
    added: dict[str, Span] = {}
    """The numbers of the rows of each pipeline that it holds as a whole, where rows are numbered:
    so none is added twice."""

    @property
    def identity(self) -> str:
        """All that its answers depend on."""
        return name_of(encode([self.format, self.roles, self.recall, sorted(self.parts.items())]))


class IndexFolder:
    """The folder of an index."""

    def __init__(self, path: str | Path) -> None:
        self.path = local_folder(path, "indices")
        self.own = OwnFolder(self.path)
        self.building = self.own.below("building")

    def __repr__(self) -> str:
        return str(self.path)

    def numbers(self) -> list[int]:
        """The versions that there are, ascending."""
        names = [entry.name for entry in self.own.below("versions").entries()]
        return sorted(int(found[1]) for name in names if (found := _VERSION.fullmatch(name)))

    def head(self) -> Version | None:
        """The last version; None before the first."""
        numbers = self.numbers()
        return self.version(numbers[-1]) if numbers else None

    def version(self, number: int) -> Version:
        what = f"version {number} of the index {str(self.path)!r}"
        try:
            data = self.own.below("versions").read(_version_name(number), _MOST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            there = ", ".join(map(str, self.numbers())) or "none"
            raise SilvaError(f"there is no {what}; there are: {there}") from None
        found: Version = unseal(data, Version, what)
        if found.format != FORMAT:
            raise SilvaError(f"{what} has format {found.format}; this silva reads {FORMAT}")
        return found

    def read(self, version: Version, kind: str) -> bytes:
        """The bytes of a part, which are those that were written."""
        part = version.parts.get(kind)
        if part is None:
            raise SilvaError(f"the index {str(self.path)!r} is damaged: it has no part {kind!r}")
        shown = str(self.path / "parts" / part.name)
        try:
            data = self.own.below("parts").read(part.name, part.nbytes)
        except FileNotFoundError:
            raise SilvaError(
                f"{shown!r} is gone: version {version.number} was removed by gc(). "
                "Open the index again"
            ) from None
        except FolderError as error:
            raise SilvaError(str(error)) from error
        if name_of(data) != part.name:
            raise SilvaError(
                f"{shown!r} is damaged: its contents have changed. Build the index again"
            )
        return data

    def write(self, data: bytes) -> Part:
        """Writes a part; it is on the disk when this returns."""
        parts, name = self.own.below("parts"), name_of(data)
        with telling_full_disk(self.path, _FULL):
            if not parts.has(name):
                parts.write(name, data, _unfinished(), replace=True)
        return Part(name, len(data))

    def publish(self, version: Version) -> None:
        """Makes a version the last one. The caller holds the folder."""
        folder, name = self.own.below("versions"), _version_name(version.number)
        with telling_full_disk(self.path, _FULL):
            if not folder.write(name, seal(version), _unfinished(), replace=False):
                raise SilvaError(f"version {version.number} of {str(self.path)!r} exists already")

    def remove_unnamed(self, keep: Iterable[int]) -> int:
        """Removes all versions but some, and the files that no version names, such as those of a
        killed writer. Returns the bytes. The caller holds the folder."""
        kept, freed = set(keep), 0
        versions, parts = self.own.below("versions"), self.own.below("parts")
        named = {p.name for number in kept for p in self.version(number).parts.values()}
        for entry in versions.entries():
            found = _VERSION.fullmatch(entry.name)
            if found is None or int(found[1]) not in kept:
                freed += versions.remove(entry.name)[1]
        for entry in parts.entries():
            if entry.name not in named:
                freed += parts.remove(entry.name)[1]
        for entry in self.building.entries():
            with contextlib.suppress(PlanError), alone(self.building.below(entry.name)):
                freed += self.building.remove(entry.name)[1]
        return freed


def _version_name(number: int) -> str:
    return f"{number:010d}.json"


def _unfinished() -> str:
    return f".{os.getpid()}-{os.urandom(8).hex()}{_UNFINISHED}"
