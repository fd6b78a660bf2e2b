"""Files of rows that are being written to a shelf: at once, or beside the consumer."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from silva.run.about import About, encode_about
from silva.run.eviction import make_room
from silva.run.rowfiles import NewFile
from silva.run.shelf import Item, Shelf


@dataclass(frozen=True, eq=False)
class Upload:
    """A file that is being written."""

    new: NewFile
    numbers: list[int]
    """Of its pages."""
    done: Future[Item | None]
    """None where there is no room for it."""


class Uploads:
    def __init__(self, shelf: Shelf, fingerprint: str, about: About, limit: int | None) -> None:
        self._shelf = shelf
        self._fingerprint = fingerprint
        self._about = about
        self._limit = limit
        self._begun: list[Upload] = []

    @property
    def under_way(self) -> int:
        """Bytes of the files that are being written, or whose end nobody has noted."""
        return sum(upload.new.size for upload in self._begun)

    def begin(self, new: NewFile, numbers: list[int]) -> None:
        done = self._shelf.submit(lambda: self._written(new))
        self._begun.append(Upload(new, numbers, done))

    def ended(self) -> list[Upload]:
        """The files whose writing has ended since the last time."""
        found = [upload for upload in self._begun if upload.done.done()]
        self._begun = [upload for upload in self._begun if upload not in found]
        return found

    def _written(self, new: NewFile) -> Item | None:
        """Writes a file if it fits onto the shelf. It may run beside the consumer, so it knows of
        nothing that changes."""
        shelf, fingerprint = self._shelf, self._fingerprint
        with shelf.locked():
            if not make_room(shelf, new.size, new.seconds, fingerprint, self._limit):
                return None
            shelf.write_about(fingerprint, encode_about(self._about))
            shelf.reserve(fingerprint, new.name, new.size)
        return shelf.write(fingerprint, new.name, new.parts)
