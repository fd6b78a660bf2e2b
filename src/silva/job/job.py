"""A training job: a pipeline, a module and a loss, on machines."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn

from silva.errors import PlanError
from silva.fabric.topology import Device, Link, Topology
from silva.job.facts import Facts
from silva.job.readers import Reader, batch_rows, check_readers, with_shards
from silva.job.run import Stop, seed_everything, steps_of
from silva.job.saving import Progress, Saver
from silva.pipeline import Pipeline
from silva.plan.arguments import natural, one_of, path_of
from silva.train.batches import Loss, MakeOptimizer
from silva.train.graph.trace import Caller
from silva.train.plan import Plan, plan
from silva.train.running.layout import start_ranks
from silva.train.running.trainer import Trainer

OnStep = Callable[[Facts], None]
"""Called after every step on the first rank, for logging of one's own."""


class Job:
    """Data, model and machines as one thing.

    The pipeline ends with `batch(n)`, where `n` is the number of rows of a step over all ranks. The
    model gets the columns that are named after the parameters of its `forward`; `loss(output,
    batch)` gives the sum of the losses and their count; `optimizer` makes one optimiser, or
    several, of named parameters.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        model: nn.Module | Callable[[], nn.Module],
        loss: Loss,
        *,
        optimizer: MakeOptimizer,
        inputs: Mapping[str, str] | None = None,
        call: Caller | None = None,
        schedule: Callable[[Any], Any] | None = None,
        step: Callable[[Trainer, Any], float] | None = None,
        precision: str | None = None,
        clip: float | None = None,
        compile: str | bool | None = None,
        seed: int = 0,
        device: str | None = None,
    ) -> None:
        if not isinstance(pipeline, Pipeline):
            raise PlanError(f"Job takes a silva pipeline, not {type(pipeline).__name__}")
        if not callable(optimizer):
            raise PlanError(
                "Job(optimizer=…) takes a function: lambda p: torch.optim.AdamW(p, 3e-4)"
            )
        self.pipeline, self.model, self.loss = pipeline, model, loss
        self.rows = batch_rows(pipeline)
        """Rows of a step over all ranks."""
        self._optimizer, self._inputs, self._call = optimizer, inputs, call
        self._schedule, self._own_step, self._seed = schedule, step, natural("Job(seed=…)", seed)
        self._options: dict[str, Any] = {
            "precision": precision,
            "clip": clip,
            "compile": compile,
            "device": device,
        }
        self._plan: Plan | None = None
        self._trainer: Trainer | None = None
        self._facts: Facts | None = None

    def __repr__(self) -> str:
        shown = str(self._plan.choice) if self._plan is not None else "not planned yet"
        return f"<Job: batches of {self.rows:,} rows, {shown}>"

    def plan(self, on: Topology | None = None, **more: Any) -> Plan:
        """Plans the job on a topology, by its first batch: `sv.train.plan` with that batch."""
        batch = self._first_batch()
        self._plan = plan(
            self.model, batch, loss=self.loss, on=on, global_batch=self.rows,
            inputs=self._inputs, call=self._call, **more,
        )  # fmt: skip
        return self._plan

    def use(self, plan: Plan) -> Job:
        """Runs by this plan: one that was changed, or loaded."""
        self._plan = plan
        return self

    def run(
        self,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        checkpoint: str | Path | None = None,
        every: int | None = None,
        keep: int = 3,
        evaluate: Pipeline | None = None,
        evaluate_every: int | None = None,
        on_step: OnStep | None = None,
        on_nan: str = "stop",
        verify: bool = True,
        progress: bool | None = None,
        **loader: Any,
    ) -> Facts:
        """Trains, in one process or in each rank of torchrun or Ray Train.

        It resumes from the last whole checkpoint in the folder, and writes one `every` so many
        steps and at the end. `loader` are arguments of `pipeline.loader`.
        """
        if epochs is None and steps is None:
            raise PlanError("run needs epochs=… or steps=…")
        for name, value in (("epochs", epochs), ("steps", steps), ("every", every), ("keep", keep)):
            if value is not None:
                natural(f"run({name}=…)", value, least=1)
        one_of("run(on_nan=…)", on_nan, "stop", "skip")
        folder = None if checkpoint is None else path_of("run(checkpoint=…)", checkpoint)
        start_ranks()
        chosen = self._ready()
        place = chosen.choice
        check_readers(self.rows, place.readers)
        trainer = self._build(chosen, verify)
        seed_everything(self._seed, trainer.layout.reader)
        pipeline = with_shards(self.pipeline, self.rows, place.readers)
        reader = Reader(pipeline, trainer.layout, epochs=epochs, **loader)
        schedules = [self._schedule(one) for one in trainer.optimizers] if self._schedule else []
        facts = self._facts = Facts(chosen)
        at = Progress()
        saver = None if folder is None else Saver(folder, trainer, reader, keep)
        if saver is not None and saver.resume(at, schedules):
            facts.resumed_at = at.step
        best = _Best(folder, trainer) if evaluate is not None and folder is not None else None
        shows = sys.stderr.isatty() if progress is None else progress
        saved = at.step
        with Stop().watching() as stop:
            try:
                taken = steps_of(
                    trainer, reader, at, facts, epochs=epochs, steps=steps, on_nan=on_nan,
                    schedules=schedules, step=self._own_step, stop=stop,
                )  # fmt: skip
                for _ in taken:
                    first = trainer.layout.rank == 0
                    if on_step is not None and first:
                        on_step(facts)
                    if shows and first:
                        print(f"\r{facts.line()}\x1b[K", end="", file=sys.stderr, flush=True)
                    if every is not None and saver is not None and at.step % every == 0:
                        saved = at.step if saver.save(at, schedules) else saved
                        facts.saved += 1
                    if evaluate is not None and evaluate_every and at.step % evaluate_every == 0:
                        found = self.evaluate(evaluate)
                        facts.evaluations.append((at.step, found))
                        if best is not None:
                            best.keep(found, at)
                if saver is not None and saved != at.step:
                    saver.save(at, schedules)
                    facts.saved += 1
            finally:
                reader.close()
                if shows:
                    print(file=sys.stderr)
        return facts

    def evaluate(self, pipeline: Pipeline, **loader: Any) -> float:
        """The mean loss of the module as it is now, on all rows of a pipeline that ends with
        `batch(n)`."""
        trainer = self._trainer or self._build(self._ready(), verify=True)
        batch_rows(pipeline)
        reader = Reader(
            pipeline, trainer.layout, evaluate=trainer.layout.choice.readers > 1, **loader
        )
        total = count = 0.0
        try:
            for batch in reader:
                one, number = trainer.sums(batch)
                total, count = total + float(one), count + float(number)
        finally:
            reader.close()
        if not count:
            raise PlanError("evaluate: the pipeline has no rows")
        return total / count

    def explain(self) -> str:
        """The plan, and what a run has measured: the pipeline's supply beside the steps' demand."""
        if self._facts is not None:
            return self._facts.explain()
        return self._ready().explain()

    def _first_batch(self) -> Any:
        loader = self.pipeline.loader(rank=0, world=1, workers=0, backend="inline")
        with loader:
            batch = next(iter(loader.to_torch()), None)
        if batch is None:
            raise PlanError("the pipeline of the job has no rows")
        return dict(batch)

    def _ready(self) -> Plan:
        if self._plan is None:
            world = dist.get_world_size() if dist.is_initialized() else 1
            self.plan(ranks(world))
        assert self._plan is not None
        return self._plan

    def _build(self, chosen: Plan, verify: bool) -> Trainer:
        if self._trainer is None or self._trainer_plan is not chosen:
            self._trainer = chosen.build(self._optimizer, verify=verify, **self._options)
            self._trainer_plan = chosen
        return self._trainer

    _trainer_plan: Plan | None = None


class _Best:
    """The best evaluation so far, whose module is kept beside the checkpoints."""

    def __init__(self, folder: Path, trainer: Trainer) -> None:
        self._folder, self._trainer, self._loss = folder / "best", trainer, float("inf")

    def keep(self, loss: float, at: Progress) -> None:
        if loss < self._loss:
            from silva.train.checkpoint.write import write

            self._loss = loss
            write(self._folder, self._trainer, at.step, keep=1)


def ranks(world: int) -> Topology:
    """A topology of the ranks of this job, which share a machine as far as is known."""
    if world == 1:
        return Topology.here(1)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    here = Topology.here(local)
    devices = tuple(
        Device(f"rank{i}", f"host{i // local}", "cluster", d.kind, d.memory, d.flops)
        for i, d in zip(range(world), itertools.cycle(here.devices))
    )
    inside = here.links[0] if here.links else Link("", "", 1e-4, 1e9)
    hosts = sorted({device.host for device in devices})
    links = [Link(host, host, inside.latency, inside.bandwidth) for host in hosts]
    links.append(Link("cluster", "cluster", 1e-4, 1e9))
    return Topology(
        devices, tuple(links), source="the ranks of this job; measure them for better plans"
    )
