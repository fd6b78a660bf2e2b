"""A job's checkpoint: data state, module, optimisers and generators of random numbers, together."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from silva.job.readers import Reader
from silva.train.checkpoint.manifest import CheckpointError
from silva.train.checkpoint.read import find, read
from silva.train.checkpoint.write import write
from silva.train.running.trainer import Trainer


@dataclass
class Progress:
    """Where a job stands."""

    step: int = 0
    epoch: int = 0


class Saver:
    """Writes and finds the checkpoints of a job in a folder."""

    def __init__(self, folder: Path, trainer: Trainer, reader: Reader, keep: int) -> None:
        self.folder, self.trainer, self.reader, self.keep = folder, trainer, reader, keep

    def save(self, progress: Progress, schedules: list[Any]) -> bool:
        """Writes a checkpoint. One that cannot be written is said loudly, and the run goes on."""
        extra = {
            "epoch": progress.epoch,
            "choice": vars(self.trainer.layout.choice),
            "random": _random_state(),
            "schedules": [_plain(one.state_dict()) for one in schedules],
        }
        try:
            data = self.reader.state()
            write(self.folder, self.trainer, progress.step, data=data, extra=extra, keep=self.keep)
        except CheckpointError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=3)
            return False
        return True

    def resume(self, progress: Progress, schedules: list[Any]) -> bool:
        """Puts back what the last whole checkpoint holds; False if there is none."""
        found = find(self.folder) if self.folder.exists() else None
        if dist.is_initialized():  # all ranks take the one that rank 0 has found
            name: list[Any] = [None if found is None else found[0].name]
            dist.broadcast_object_list(name, src=0)
            if name[0] is not None and (found is None or found[0].name != name[0]):
                raise CheckpointError(
                    f"rank 0 resumes from {name[0]}, which this rank does not see whole in "
                    f"{self.folder}: all ranks need the same folder"
                )
            if name[0] is None:
                return False
        if found is None:
            return False
        path, manifest = found
        read(path, manifest, self.trainer)
        if manifest.data is not None:
            self.reader.load(manifest.data)
        progress.step, progress.epoch = manifest.step, int(manifest.extra["epoch"])
        same = manifest.extra["choice"] == vars(self.trainer.layout.choice)
        if same:
            _put_random_state(manifest.extra["random"], self.trainer.layout.rank)
        for one, state in zip(schedules, manifest.extra["schedules"], strict=True):
            one.load_state_dict(state)
        return True


def _random_state() -> list[list[int]]:
    """The states of the generators of all ranks."""
    own = torch.get_rng_state().tolist()
    if not dist.is_initialized():
        return [own]
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    return every


def _put_random_state(states: list[list[int]], rank: int) -> None:
    if rank < len(states):
        torch.set_rng_state(torch.tensor(states[rank], dtype=torch.uint8))


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    kinds = (bool, int, float, str, list, type(None))
    return {name: value for name, value in state.items() if isinstance(value, kinds)}
