"""The decoders of answers that were kept and of indices, as targets of the fuzzer."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
from fuzz_decoder_targets import Target, read_value
from fuzz_mutations import spoil_bytes, spoil_json, spoil_msgpack

import silva as sv
from silva.errors import ColumnError, FolderError, SilvaError
from silva.serve.index.contents import Contents
from silva.serve.index.version import IndexFolder, Version
from silva.serve.models.answers import Answers
from silva.serve.models.codecs import Scores, Texts, Vectors
from silva.serve.models.model import Answer
from silva.store.versions.sealed import encode, seal, unseal

_KEY = b"k" * 32
_NAME = "answers.sqlite"


def _answers(folder: Path) -> Target:
    """Values of answers, as somebody else has written them under the right key."""
    codecs: list[Any] = [Texts(), Scores(), Vectors()]
    good = [Answer("text", "length", 1, 2, 3), 0.5, np.arange(5.0, dtype=np.float32)]
    seeds = [codec.encode(value) for codec, value in zip(codecs, good, strict=True)]

    def make(rng: Random) -> bytes:
        at = rng.randrange(len(seeds))
        spoil = spoil_bytes if at == 2 else spoil_msgpack
        return bytes([at]) + spoil(rng, seeds[at])

    def touch(found: Any) -> None:
        assert isinstance(found, Answer | float | np.ndarray)
        if isinstance(found, Answer):
            assert isinstance(found.text, str)
            found.text.encode()
        else:
            read_value(found)

    return Target(make, lambda data: codecs[data[0]].decode(data[1:]), FolderError, touch)


def _database(folder: Path) -> Target:
    """The file of answers, spoilt anywhere, and cells of other types."""
    kept = Answers(folder)
    kept.put({bytes([n]) * 32: bytes(50 * n) for n in range(60)} | {_KEY: b"v"}, seconds=None)
    kept.close()
    file = sqlite3.connect(folder / _NAME)
    file.execute("pragma journal_mode = delete")
    file.close()
    whole = (folder / _NAME).read_bytes()

    def decode(data: bytes) -> dict[bytes, bytes]:
        for path in folder.glob(f"{_NAME}*"):
            path.unlink()
        (folder / _NAME).write_bytes(data)
        opened = Answers(folder)
        try:
            found = opened.get([_KEY, *(bytes([n]) * 32 for n in range(60))])
            opened.put({b"new": b"value"}, seconds=None)
            return found
        finally:
            opened.close()

    return Target(lambda rng: spoil_bytes(rng, whole), decode, FolderError, read_value)


class _Parts:
    """A folder of an index in memory, whose parts have the digests that they should have."""

    def __init__(self, folder: IndexFolder, version: Version) -> None:
        self._good = {kind: folder.read(version, kind) for kind in version.parts}
        self.kinds = sorted(self._good)
        self.spoilt: dict[str, bytes] = {}

    def read(self, version: Version, kind: str) -> bytes:
        return {**self._good, **self.spoilt}[kind]


def _index(folder: Path) -> Target:
    """Parts of an index."""
    rows = sv.from_columns(
        {
            "id": ["d", "c", "b", "a"],
            "text": ["a red fox", "a hen", "", "grüße, red hen"],
            "year": [1999, None, 2001, 2000],
            "v": np.eye(4, 3, dtype=np.float32) + 0.5,
        }
    )
    made = rows.to_index(folder / "idx", keyword="text", vector="v", workers=0)
    opened = IndexFolder(made.path)
    version = opened.version(1)
    parts = _Parts(opened, version)
    where = sv.col("year") > 1999

    def make(rng: Random) -> bytes:
        at = rng.randrange(len(parts.kinds))
        good = parts.read(version, parts.kinds[at])
        spoil = spoil_json if parts.kinds[at] == "keyword.words" else spoil_bytes
        return bytes([at]) + spoil(rng, good)

    def decode(data: bytes) -> list[Any]:
        parts.spoilt = {parts.kinds[data[0]]: data[1:]}
        contents = Contents(parts, version)  # type: ignore[arg-type]
        query = np.ones(3, np.float32)
        with np.errstate(all="ignore"):
            return [
                contents.search("keyword", "red fox hen", None, 2, None),
                contents.search("vector", None, query, 9, None),
                contents.search("hybrid", "red fox", query, 2, where.term),
                contents.lookup(["a", "d"]),
            ]

    return Target(make, decode, (SilvaError, ColumnError), read_value)


def _version(folder: Path) -> Target:
    """The file of a version, with the right seal."""
    made = sv.from_columns({"text": ["a red fox", "a hen"]}).to_index(
        folder / "idx", keyword="text", workers=0
    )
    good = encode(IndexFolder(made.path).version(1))
    name = folder / "idx" / "versions" / "0000000001.json"

    def make(rng: Random) -> bytes:
        if rng.random() < 0.2:
            return spoil_bytes(rng, name_bytes)
        spoilt = spoil_json(rng, good)
        try:
            return seal(msgspec.json.decode(spoilt))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return spoilt

    name_bytes = name.read_bytes()

    def decode(data: bytes) -> list[Any]:
        version: Version = unseal(data, Version, "the version")
        name.write_bytes(data)
        index = sv.Index(made.path)
        contents = Contents(IndexFolder(made.path), version)
        return [
            [(one.number, one.time.year, one.what, one.rows) for one in index.versions()],
            contents.search("keyword", "red", None, 2, None),
            contents.lookup([0]),
        ]

    return Target(make, decode, SilvaError, read_value)
