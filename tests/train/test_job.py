"""Jobs: data, model and optimiser together, saved and resumed as one."""

from __future__ import annotations

import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.train.ranks import Ranks
from torch import Tensor, nn

import silva as sv
from silva.fabric.topology import Device, Link, Topology
from silva.job.run import NotANumber
from silva.train.choice import Choice
from silva.train.plan import Plan
from silva.train.planning.module import Recipe, look, with_groups

ROWS = 96


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x))


def loss(output: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    return F.cross_entropy(output, batch["y"], reduction="sum"), len(output)


def rows(count: int = ROWS) -> sv.Pipeline:
    x = np.random.default_rng(0).normal(size=(count, 8)).astype(np.float32)
    return (
        sv.from_columns({"id": np.arange(count), "x": list(x)})
        .derive(y=lambda x: int(abs(x).sum() * 10) % 4)
        .shuffle(seed=0)
        .batch(12, drop_last=True)
    )


def job(pipeline: sv.Pipeline | None = None, **more: Any) -> sv.Job:
    torch.manual_seed(0)
    more.setdefault("optimizer", lambda p: torch.optim.AdamW(p, 1e-2))
    return sv.Job(pipeline or rows(), Net(), loss, **more)


def test_a_job_learns(tmp_path: Path) -> None:
    losses: list[float] = []
    made = job()
    facts = made.run(epochs=10, on_step=lambda f: losses.append(f.loss), workers=0)
    assert facts.steps == 80
    assert losses[-1] < losses[0] / 1.2
    assert "a step takes" in made.explain()
    assert math.isclose(made.evaluate(rows(), workers=0), losses[-1], rel_tol=0.5)


def taken(into: list[list[int]]) -> Any:
    """A step that notes the ids of its rows."""

    def step(trainer: Any, batch: Any) -> float:
        into.append(sorted(int(i) for i in batch["id"]))
        return float(trainer.step(batch))

    return step


@pytest.mark.parametrize("stop", [1, 5, 8, 11])
def test_a_resumed_job_goes_on_with_the_next_row_and_the_same_bits(
    tmp_path: Path, stop: int
) -> None:
    whole: list[list[int]] = []
    losses: list[float] = []
    job(step=taken(whole)).run(steps=20, on_step=lambda f: losses.append(f.loss), workers=0)
    parts: list[list[int]] = []
    again: list[float] = []
    for end in (stop, 20):
        job(step=taken(parts)).run(
            steps=end, checkpoint=tmp_path, on_step=lambda f: again.append(f.loss), workers=0
        )
    assert parts == whole
    assert again == losses


def test_a_loss_that_is_no_number_stops_the_job_and_names_what_is_wrong() -> None:
    def bad(output: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
        total, count = loss(output, batch)
        return total * (float("nan") if 7 in batch["id"] else 1.0), count

    torch.manual_seed(0)
    made = sv.Job(rows(), Net(), bad, optimizer=lambda p: torch.optim.SGD(p, 0.1))
    with pytest.raises(NotANumber, match=r"step \d+, rank 0: the loss is nan; .*rows .*on_nan"):
        made.run(epochs=1, workers=0)
    facts = made.run(epochs=1, on_nan="skip", workers=0)
    assert facts.skipped == 1
    assert all(bool(torch.isfinite(p).all()) for p in made.model.parameters())


def test_a_save_that_fails_is_said_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="was not written"):
        facts = job().run(steps=3, checkpoint=tmp_path / "file" / "below", workers=0)
    assert facts.steps == 3


def simple(model: nn.Module, own: Any) -> sv.Job:
    return sv.Job(rows(), model, own, optimizer=lambda p: torch.optim.SGD(p, 0.1))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sv.Job([1], Net(), loss, optimizer=torch.optim.SGD), "takes a silva pipeline"),
        (lambda: job(sv.from_columns({"x": range(4)})), "a job reads batches"),
        (lambda: job().run(), "epochs=… or steps="),
        (lambda: job().run(epochs=0), "from 1 up"),
        (lambda: simple(Net(), lambda o, b: o.mean()).run(steps=1, workers=0), r"\(sum, count\)"),
        (lambda: simple(nn.Linear(8, 4), loss).plan(), "needs input, and the batch has"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused(make: Any, said: str) -> None:
    with pytest.raises(sv.PlanError, match=said):
        make()


def run_on_ranks(folder: str, steps: int, choice: Choice) -> tuple[list[list[int]], list[float]]:
    seen: list[list[int]] = []
    losses: list[float] = []
    made = job(step=taken(seen))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = made._first_batch()
        module = with_groups(look(made.model, batch), choice.tp)
        topology = Topology(
            tuple(Device(f"rank{i}", "here") for i in range(choice.world)),
            (Link("here", "here", 1e-4, 1e9),),
        )
        made.use(Plan(Recipe(choice, module, loss, made.rows), topology))
        made.run(steps=steps, checkpoint=folder, on_step=lambda f: losses.append(f.loss), workers=0)
    return seen, losses


@pytest.mark.rest
def test_jobs_go_on_under_other_plans_with_the_same_rows_and_losses(
    ranks: Ranks, tmp_path: Path
) -> None:
    wanted, losses = run_on_ranks(str(tmp_path / "alone"), 12, Choice())
    rows_seen: list[list[int]] = []
    again: list[float] = []
    plans = [Choice(dp=2), Choice(tp=2), Choice(pp=2, microbatches=2), Choice(fsdp=2), Choice()]
    for number, choice in enumerate(plans, 1):
        steps = min(3 * number, 12)
        if choice.world == 1:
            found = [run_on_ranks(str(tmp_path / "moved"), steps, choice)]
        else:
            found = ranks.run(
                choice.world, __name__, "run_on_ranks", str(tmp_path / "moved"), steps, choice
            )
        readers = found if choice.readers > 1 else found[:1]
        together = zip(*(one[0] for one in readers), strict=True)
        rows_seen += [sorted(itertools.chain(*parts)) for parts in together]
        again += found[0][1]
    assert rows_seen == wanted
    assert np.allclose(again, losses, rtol=1e-5)
