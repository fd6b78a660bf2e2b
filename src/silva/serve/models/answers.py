"""Answers that are kept by their content, within a process and on disk.

The key of an answer is a digest of all that it depends on: the model, the rendered prompt, every
setting, and the tenant that asked. Neither prompts nor secrets are stored, only this digest. The
file is SQLite, readable by its owner alone; several processes may use it at once. What was
committed survives a kill of the process; a power failure may take the latest answers, and never
damages the file. What is read from it is decoded as data of a known type.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from silva.errors import FolderError
from silva.folders import OwnFolder, by_descriptor

_MEMORY_BYTES = 64 << 20
"""Bytes of answers that a process keeps in memory beside the file."""
_DISK_BYTES = 1 << 30
"""Bytes of answers in a file above which the oldest are dropped."""
_AT_ONCE = 500
"""Keys in one statement: SQLite allows at least 999."""
_VERSION = 1
_NAME = "answers.sqlite"
_WAIT = 30.0
"""Seconds that a statement waits for another process that writes."""
_NOTED = 1 << 16
"""Pairs of a request and an answer that are known to be in the file, in memory."""
_TABLES = """
create table if not exists answers (
    key blob primary key, value blob not null, made real not null, expires real
) without rowid;
create index if not exists by_age on answers (made);
create index if not exists by_end on answers (expires) where expires is not null;
create table if not exists requests (id text, key blob, primary key (id, key)) without rowid;
create table if not exists forgotten (times integer);
"""


def default_folder() -> Path:
    """The folder of answers: `$SILVA_ANSWERS`, or one in the user's cache folder."""
    named = os.environ.get("SILVA_ANSWERS")
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if named else Path(caches) / "silva" / "answers"


def damaged(why: str, folder: Path | None = None) -> FolderError:
    """The error about answers that cannot be read."""
    shown = str(default_folder() if folder is None else folder)
    return FolderError(
        f"the answers in {shown!r} cannot be used: {why}. Remove the folder, or set $SILVA_ANSWERS "
        "to another one"
    )


class Answers:
    """The answers in one folder, with the latest ones in memory; without a folder, these alone."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else OwnFolder(folder)
        self._lock = threading.Lock()
        self._recent: OrderedDict[bytes, tuple[bytes, float | None]] = OrderedDict()
        self._bytes = 0
        self._file: sqlite3.Connection | None = None
        self._process = 0
        self._noted: set[tuple[str, bytes]] = set()
        self._version = 0
        """The state of the file, as SQLite counts the changes of other processes."""
        self._forgotten = 0
        """How often some process has forgotten a request, when the file was last looked at."""

    def recent(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Those of the values that are in memory."""
        now = time.time()
        with self._lock:
            return self._recent_values(keys, now)

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that have one that has not expired."""
        now, asked = time.time(), list(keys)
        with self._lock:
            self._forget_with_others()
            found = self._recent_values(asked, now)
            missing = [key for key in asked if key not in found]
            if missing and self._folder is not None:
                with self._opened() as file:
                    self._read(file, missing, now, found)
        return found

    def put(self, values: Mapping[bytes, bytes], *, seconds: float | None) -> dict[bytes, bytes]:
        """Keeps values for so many seconds (None: for good), and returns what is kept. The first
        value of a key is the value, whichever process has stored it. They are in the file when this
        returns."""
        if not values:
            return {}
        now = time.time()
        expires = None if seconds is None else now + seconds
        with self._lock:
            kept = self._recent_values(values, now)
            new = {key: value for key, value in values.items() if key not in kept}
            if new and self._folder is not None:
                with self._opened() as file, file:
                    file.execute("delete from answers where expires < ?", (now,))
                    rows = [(key, value, now, expires) for key, value in new.items()]
                    file.executemany("insert or ignore into answers values (?, ?, ?, ?)", rows)
                    self._read(file, list(new), now, kept)
                    _make_room(file)
            for key, value in new.items():
                if key not in kept:
                    kept[key] = value
                    self._remember(key, value, expires)
        return kept

    def _recent_values(self, keys: Iterable[bytes], now: float) -> dict[bytes, bytes]:
        found = {}
        for key in keys:
            value, expires = self._recent.get(key, (None, None))
            if value is not None and (expires is None or expires >= now):
                self._recent.move_to_end(key)
                found[key] = value
        return found

    def _read(
        self, file: sqlite3.Connection, keys: Sequence[bytes], now: float, found: dict[bytes, bytes]
    ) -> None:
        """Adds the values of the file to those found."""
        for start in range(0, len(keys), _AT_ONCE):
            for key, value, expires in _select(file, keys[start : start + _AT_ONCE], now):
                found[key] = value
                self._remember(key, value, expires)

    def note(self, pairs: Iterable[tuple[str, bytes]]) -> None:
        """Notes which requests have had which answers, for `forget`."""
        with self._lock:
            new = set(pairs) - self._noted
            if not new or self._folder is None:
                return
            with self._opened() as file, file:
                file.executemany("insert or ignore into requests values (?, ?)", new)
            if len(self._noted) > _NOTED:
                self._noted.clear()
            self._noted |= new

    def forget(self, request: str) -> int:
        """Deletes the answers that a request had, in every process; returns their number. Nothing
        of them is left in the file."""
        with self._lock:
            self._drop_memory()
            if self._folder is None:
                return 0
            with self._opened() as file:
                with file:
                    gone = file.execute(
                        "delete from answers where key in (select key from requests where id = ?)",
                        (request,),
                    ).rowcount
                    file.execute("delete from requests where id = ?", (request,))
                    file.execute("insert into forgotten values (1)")
                file.execute("pragma wal_checkpoint(truncate)")
        return gone

    def _forget_with_others(self) -> None:
        """Drops what is in memory once another process has forgotten a request."""
        if self._folder is None:
            return
        with self._opened() as file:
            (version,) = file.execute("pragma data_version").fetchone()
            if version == self._version:
                return
            self._version = version
            (times,) = file.execute("select count(*) from forgotten").fetchone()
        if times != self._forgotten:
            self._forgotten = times
            self._drop_memory()

    def _drop_memory(self) -> None:
        self._recent.clear()
        self._noted.clear()
        self._bytes = 0

    def close(self) -> None:
        with self._lock:
            if self._file is not None and self._process == os.getpid():
                self._file.close()
            self._file = None

    def _remember(self, key: bytes, value: bytes, expires: float | None) -> None:
        before = self._recent.pop(key, None)
        self._bytes += len(value) - (0 if before is None else len(before[0]))
        self._recent[key] = value, expires
        while self._bytes > _MEMORY_BYTES:
            _, (oldest, _) = self._recent.popitem(last=False)
            self._bytes -= len(oldest)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """The file, opened anew in each process: SQLite forbids a connection to cross a fork."""
        assert self._folder is not None
        try:
            if self._file is None or self._process != os.getpid():
                self._file, self._process = _open(self._folder), os.getpid()
            yield self._file
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise damaged(str(error), self._folder.path) from error


def _open(folder: OwnFolder) -> sqlite3.Connection:
    os.close(folder.open_file(_NAME, os.O_RDWR | os.O_CREAT, make=True))
    with folder.opened() as opened:
        os.chmod(_NAME, 0o600, dir_fd=opened, follow_symlinks=False)  # its journal gets the same
        path = by_descriptor(opened) / _NAME
        file = sqlite3.connect(path, timeout=_WAIT, check_same_thread=False)
        try:
            _prepare(file)
        except BaseException:
            file.close()
            raise
    return file


def _prepare(file: sqlite3.Connection) -> None:
    file.execute("pragma trusted_schema = off")
    file.execute("pragma journal_mode = wal")
    file.execute("pragma synchronous = normal")
    file.execute("pragma secure_delete = on")  # what is forgotten is overwritten
    (version,) = file.execute("pragma user_version").fetchone()
    if version not in (0, _VERSION):
        raise sqlite3.DatabaseError(f"their format is {version}, and this silva reads {_VERSION}")
    with file:
        file.executescript(_TABLES)
        file.execute(f"pragma user_version = {_VERSION}")


def _select(
    file: sqlite3.Connection, keys: Sequence[bytes], now: float
) -> list[tuple[bytes, bytes, float | None]]:
    marks = ", ".join("?" * len(keys))
    query = f"select key, value, expires from answers where key in ({marks})"
    rows = file.execute(f"{query} and (expires is null or expires >= ?)", (*keys, now)).fetchall()
    for key, value, expires in rows:
        if not (isinstance(key, bytes) and isinstance(value, bytes)):
            raise sqlite3.DatabaseError("a value is not bytes")
        if not (expires is None or isinstance(expires, float)):
            raise sqlite3.DatabaseError("a time is not a number")
    return rows


def _make_room(file: sqlite3.Connection) -> None:
    """Deletes the oldest tenth of the answers while the file is over its bound."""
    (pages,) = file.execute("pragma page_count").fetchone()
    (free,) = file.execute("pragma freelist_count").fetchone()
    (size,) = file.execute("pragma page_size").fetchone()
    if (pages - free) * size > _DISK_BYTES:
        oldest = (
            "select key from answers order by made limit (select count(*) / 10 + 1 from answers)"
        )
        file.execute(f"delete from answers where key in ({oldest})")
        file.execute("delete from requests where key not in (select key from answers)")
