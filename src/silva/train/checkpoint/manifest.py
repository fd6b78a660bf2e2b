"""The file that makes a checkpoint count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from silva.errors import SilvaError

VERSION = 1
NAME = "manifest.json"


class CheckpointError(SilvaError):
    """A checkpoint that cannot be written or read."""


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A box of a tensor in a file."""

    file: str
    key: str
    start: tuple[int, ...]
    shape: tuple[int, ...]


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor of the unmodified module, or of the state of an optimiser."""

    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[Piece, ...]


class Digest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nbytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint holds."""

    version: int
    step: int
    files: dict[str, Digest]
    tensors: dict[str, Stored]
    optimizers: list[dict[str, Any]]
    """What an optimiser has beside tensors: its groups, and numbers by parameter."""
    data: dict[str, Any] | None
    """The state of the data, of each reader together."""
    extra: dict[str, Any]
    """The job's own: the epoch, the generators of random numbers, the plan."""


def decode(folder: Path) -> Manifest:
    """Reads the manifest of a checkpoint."""
    file = folder / NAME
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Manifest)
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} is no manifest of a checkpoint: {error}") from error
    if found.version != VERSION:
        raise CheckpointError(
            f"{file} has the format {found.version}, and this silva reads {VERSION}"
        )
    for name in found.files:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise CheckpointError(f"{file} names a file outside of its folder: {name!r}")
    for key, tensor in found.tensors.items():
        for piece in tensor.pieces:
            fits = len(piece.start) == len(piece.shape) == len(tensor.shape) and all(
                a >= 0 and n >= 0 and a + n <= size
                for a, n, size in zip(piece.start, piece.shape, tensor.shape, strict=True)
            )
            if not fits or piece.file not in found.files:
                raise CheckpointError(f"{file}: a piece of {key!r} does not fit the tensor")
    return found
