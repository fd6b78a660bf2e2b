"""JSON files of a table with their format and a checksum.

    {"format":2,"hash":"<of the body's bytes>","body":{…}}

Lists and schemas need no seal: they are named by the hash of their contents, and a version names
them. Tables of 0.1 hold bare bodies in format 1, which `unseal` reads as well; they have no
checksum, so only invalid JSON is noticed. Newer data files have checksums too (`File.sums`).
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from silva.errors import TableError

FORMAT = 2
"""The format that is written now."""
_START = b'{"format":'


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    hash: str
    body: msgspec.Raw


def name_of(data: bytes) -> str:
    """The hash of a file's contents, which is the name of some files."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def seal(value: Any) -> bytes:
    body = encode(value)
    return encode(Sealed(FORMAT, name_of(body), msgspec.Raw(body)))


def unseal(data: bytes, kind: Any, what: str) -> Any:
    """The value in a sealed file; `what` names the file in errors."""
    if not data.startswith(_START):
        return decode(data, kind, what)
    sealed: Sealed = decode(data, Sealed, what)
    if sealed.format > FORMAT:
        raise TableError(
            f"{what} has format {sealed.format}, and this silva reads formats up to {FORMAT}: a "
            "newer silva wrote it. Upgrade silva to read it"
        )
    body = bytes(sealed.body)
    if sealed.format != FORMAT or name_of(body) != sealed.hash:
        raise TableError(f"{what} is damaged: its contents have changed")
    return decode(body, kind, what)


def decode(data: bytes, kind: Any, what: str) -> Any:
    """JSON of exactly this type; TableError for anything else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TableError(f"{what} is damaged: {error}") from error
