"""Reads checkpoints, under whatever plan there is now."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from silva.train.checkpoint.manifest import CheckpointError, Manifest, Stored, decode
from silva.train.checkpoint.state import Held, apply, drop_states, held, make_states
from silva.train.checkpoint.write import committed, digest_of
from silva.train.running.boxes import boxes, slices, whole_shape
from silva.train.running.gradients import local
from silva.train.running.trainer import Trainer


def find(folder: Path) -> tuple[Path, Manifest] | None:
    """The last checkpoint that is whole; a damaged one gives way to the one before, with a
    warning."""
    for path in committed(folder):
        try:
            manifest = decode(path)
            check(path, manifest)
        except CheckpointError as error:
            warnings.warn(f"{error}; the checkpoint before is used", RuntimeWarning, stacklevel=2)
            continue
        return path, manifest
    return None


def check(folder: Path, manifest: Manifest) -> None:
    """Raises a `CheckpointError` if a file is not as it was written."""
    for name, digest in manifest.files.items():
        try:
            found = digest_of(folder / name)
        except OSError as error:
            raise CheckpointError(f"{folder / name} cannot be read: {error.strerror}") from error
        if found != digest:
            raise CheckpointError(f"{folder / name} is damaged: it is not what was written")


def read(folder: Path, manifest: Manifest, trainer: Trainer) -> None:
    """Puts what a checkpoint holds into a trainer: parameters, buffers and optimiser states."""
    make_states(trainer)
    with contextlib.ExitStack() as stack:
        files: dict[str, Any] = {}

        def opened(name: str) -> Any:
            if name not in files:
                files[name] = stack.enter_context(safe_open(folder / name, framework="pt"))
            return files[name]

        try:
            for one in held(trainer):
                if one.name in manifest.tensors or not one.name.startswith("optimizer."):
                    _fill(one, manifest, opened, trainer, folder)
        except SafetensorError as error:
            raise CheckpointError(f"{folder}: {error}") from error
    apply(trainer, manifest.optimizers)
    drop_states(trainer, set(manifest.tensors))


def _fill(one: Held, manifest: Manifest, opened: Any, trainer: Trainer, folder: Path) -> None:
    stored = manifest.tensors.get(one.name)
    if stored is None:
        raise CheckpointError(f"{folder} has no {one.name!r}: it is of another module or optimiser")
    layout = trainer.layout
    shape = whole_shape(one.tensor, one.shard, layout.choice.tp)
    if shape != stored.shape:
        raise CheckpointError(
            f"{folder}: {one.name!r} has the shape {stored.shape}, and the job's is {shape}"
        )
    tensor = local(one.tensor)
    with torch.no_grad():
        for box in boxes(one.tensor, one.shard, layout):
            left = 1
            for length in box.shape:
                left *= length
            for piece, common in _overlaps(stored, box):
                values = opened(piece.file).get_slice(piece.key) if common.shape else None
                if values is None:  # a number
                    found = opened(piece.file).get_tensor(piece.key)
                else:
                    found = values[slices(common.stored, common.shape)]
                tensor[slices(common.here, common.shape)] = found.to(tensor.dtype)
                left -= found.numel()
            if left > 0:
                raise CheckpointError(f"{folder}: a part of {one.name!r} is in none of its files")


def _overlaps(stored: Stored, box: Any) -> Iterator[tuple[Any, Any]]:
    for piece in stored.pieces:
        common = box.overlap(piece.start, piece.shape)
        if common is not None:
            yield piece, common
