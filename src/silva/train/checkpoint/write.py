"""Writes checkpoints, so that one counts only after all of it is on the disk."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from safetensors.torch import save_file

from silva.train.checkpoint.manifest import (
    NAME,
    VERSION,
    CheckpointError,
    Digest,
    Manifest,
    Piece,
    Stored,
)
from silva.train.checkpoint.state import held, without_tensors
from silva.train.running.boxes import boxes, slices, whole_shape
from silva.train.running.gradients import local
from silva.train.running.trainer import Trainer

PREFIX = "step-"


def write(
    folder: Path,
    trainer: Trainer,
    step: int,
    *,
    data: dict[str, Any] | None = None,
    extra: dict[str, Any] | None = None,
    keep: int = 3,
) -> Path:
    """Writes a checkpoint of all ranks, and removes all but the last `keep`.

    Every rank calls it. If it fails on one of them, it fails on all, nothing of it is left, and the
    run may go on.
    """
    target = folder / f"{PREFIX}{step:09d}"
    rank = trainer.layout.rank
    error: str | None = None
    mine: dict[str, Stored] = {}
    files: dict[str, Digest] = {}
    if rank == 0:
        error = _try(lambda: _make_empty(target))
    _agree(error, target)
    optimizers: list[dict[str, Any]] = []
    error = _try(lambda: _write_own(target, trainer, rank, mine, files))
    error = error or _try(lambda: optimizers.extend(without_tensors(trainer)))
    every = _gather((error, mine, files, optimizers))
    failed = next((said for said, *_ in every if said is not None), None)
    if failed is None and rank == 0:
        tensors = _joined([one for _, one, *_ in every])
        digests = {name: digest for _, _, one, _ in every for name, digest in one.items()}
        options = _merged([one for *_, one in every])
        made = Manifest(VERSION, step, digests, tensors, options, data, extra or {})
        failed = _try(lambda: _commit(target, made))
    try:
        _agree(failed, target)
    except CheckpointError:
        if rank == 0:
            shutil.rmtree(target, ignore_errors=True)
        raise
    if rank == 0:
        for old in committed(folder)[keep:]:
            shutil.rmtree(old, ignore_errors=True)
    return target


def committed(folder: Path) -> list[Path]:
    """The checkpoints in a folder that count, the last one first."""
    found = [path for path in folder.glob(f"{PREFIX}*") if (path / NAME).is_file()]
    return sorted(found, key=lambda path: path.name, reverse=True)


def _make_empty(target: Path) -> None:
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)


def _write_own(
    target: Path, trainer: Trainer, rank: int, mine: dict[str, Stored], files: dict[str, Digest]
) -> None:
    """Writes what this rank owns into a file of its own."""
    file = f"rank-{rank:05d}.safetensors"
    values: dict[str, torch.Tensor] = {}
    for one in held(trainer):
        if not one.owner:
            continue
        tensor = local(one.tensor)
        pieces = []
        for number, box in enumerate(boxes(one.tensor, one.shard, trainer.layout)):
            key = f"{one.name}|{number}"
            values[key] = tensor[slices(box.here, box.shape)].contiguous().cpu().clone()
            pieces.append(Piece(file, key, box.there, box.shape))
        shape = whole_shape(one.tensor, one.shard, trainer.layout.choice.tp)
        dtype = str(tensor.dtype).removeprefix("torch.")
        mine[one.name] = Stored(shape, dtype, tuple(pieces))
    if not values:
        return
    path = target / file
    save_file(values, path)
    _sync(path)
    files[file] = digest_of(path)


def digest_of(path: Path) -> Digest:
    with path.open("rb") as opened:
        return Digest(path.stat().st_size, hashlib.file_digest(opened, "sha256").hexdigest())


def _commit(target: Path, manifest: Manifest) -> None:
    temporary = target / f"{NAME}.new"
    with temporary.open("wb") as file:
        file.write(msgspec.json.encode(manifest))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(target / NAME)
    for folder in (target, target.parent):
        _sync(folder)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _joined(each: list[dict[str, Stored]]) -> dict[str, Stored]:
    """The pieces of all ranks, each tensor once."""
    found: dict[str, Stored] = {}
    for one in each:
        for name, stored in one.items():
            before = found.get(name)
            pieces = stored.pieces if before is None else (*before.pieces, *stored.pieces)
            found[name] = Stored(stored.shape, stored.dtype, pieces)
    return found


def _merged(each: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The optimisers of all ranks: each stage of a pipeline has its own parameters in them."""
    found = []
    for ranks in zip(*each, strict=True):
        groups: list[dict[str, Any]] = []
        for one in ranks:
            for number, group in enumerate(one["groups"]):
                if number == len(groups):
                    groups.append({"options": group["options"], "params": []})
                names = groups[number]["params"]
                names.extend(name for name in group["params"] if name not in names)
        numbers = {name: found for one in ranks for name, found in one["numbers"].items()}
        found.append({"groups": groups, "numbers": numbers})
    return found


def _try(act: Any) -> str | None:
    try:
        act()
    except (OSError, CheckpointError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        if type(error).__name__ == "SafetensorError":  # which is how it says that a disk is full
            return f"{type(error).__name__}: {error}"
        raise
    return None


def _gather(value: Any) -> list[Any]:
    if not dist.is_initialized():
        return [value]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def _agree(error: str | None, target: Path) -> None:
    """Raises on all ranks what has failed on one."""
    failed = next((said for said in _gather(error) if said is not None), None)
    if failed is not None:
        raise CheckpointError(f"the checkpoint {target} was not written: {failed}")
