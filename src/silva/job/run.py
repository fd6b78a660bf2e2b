"""The loop of a job on one rank."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from silva.errors import SilvaError
from silva.job.facts import Facts, Stopwatch
from silva.job.readers import Reader
from silva.job.saving import Progress
from silva.train.running import gradients
from silva.train.running.trainer import Trainer


class NotANumber(SilvaError):
    """A loss or a gradient that is NaN or infinite."""


class Stop:
    """Whether the process was told to end: SIGTERM saves and leaves after the present step."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def watching(self) -> Iterator[Stop]:
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = signal.signal(signal.SIGTERM, lambda *_: setattr(self, "asked", True))
        try:
            yield self
        finally:
            signal.signal(signal.SIGTERM, before)


def what_is_wrong(trainer: Trainer, loss: float, step: int, batch: Any) -> str:
    """What is no number after a backward pass, on which rank, in which module and rows."""
    found = [] if math.isfinite(loss) else [f"the loss is {loss}"]
    name = gradients.first_wrong(trainer.parts)
    if name is not None:
        found.append(f"the gradient of {name!r} is no number")
    mine = "; ".join(found) + rows_named(batch) if found else ""
    every: list[Any] = [mine]
    if dist.is_initialized():
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, mine)
    rank, said = next(
        ((i, one) for i, one in enumerate(every) if one), (0, "a gradient is no number")
    )
    return f"step {step}, rank {rank}: {said}"


def seed_everything(seed: int, reader: int) -> None:
    """Ranks that read the same rows draw the same dropout masks."""
    torch.manual_seed((seed << 16) + reader)


def rows_named(batch: Any, most: int = 8) -> str:
    """The rows of a batch by their column `id`, if there is one."""
    ids = batch.get("id") if isinstance(batch, dict) else None
    if ids is None:
        return ""
    shown = [str(one) for one in list(ids)[:most]]
    return f", rows {', '.join(shown)}{', …' if len(ids) > most else ''}"


def steps_of(
    trainer: Trainer,
    reader: Reader,
    progress: Progress,
    facts: Facts,
    *,
    epochs: int | None,
    steps: int | None,
    on_nan: str,
    schedules: list[Any],
    step: Callable[[Trainer, Any], float] | None,
    stop: Stop,
) -> Iterator[float]:
    """Takes steps until the epochs or the steps are over, and yields each loss."""
    watch = Stopwatch()
    while (epochs is None or progress.epoch < epochs) and _goes_on(progress, steps):
        for batch in reader:
            waited = watch.lap()
            trainer.asks_to_stop = stop.asked
            loss = _step(trainer, batch, progress.step, facts, on_nan, step)
            for schedule in schedules:
                schedule.step()
            progress.step += 1
            rows = next((len(v) for v in batch.values()), 0) * trainer.layout.choice.readers
            facts.add(waited, watch.lap(), rows, loss)
            yield loss
            if trainer.told_to_stop or not _goes_on(progress, steps):
                return  # before the next batch is taken, which a checkpoint would leave out
            watch.lap()
        progress.epoch += 1


def _goes_on(progress: Progress, steps: int | None) -> bool:
    return steps is None or progress.step < steps


def _step(
    trainer: Trainer,
    batch: Any,
    number: int,
    facts: Facts,
    on_nan: str,
    step: Callable[[Trainer, Any], float] | None,
) -> float:
    if step is not None:
        return step(trainer, batch)
    loss = trainer.backward(batch)
    if math.isfinite(loss) and gradients.are_numbers(trainer.parts, trainer.layout):
        trainer.update()
        return loss
    if on_nan == "stop":
        raise NotANumber(
            f"{what_is_wrong(trainer, loss, number, batch)}: lower the learning rate, clip "
            "gradients, or pass on_nan='skip' to leave such steps out"
        )
    facts.skipped += 1
    return loss
