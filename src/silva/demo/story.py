"""Runs the demo from beginning to end and prints each step."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from silva.cost.machine import Machine
from silva.demo.model import Learner, new_learner, one_thread
from silva.demo.photos import make_photos
from silva.demo.pipelines import training
from silva.errors import SilvaError
from silva.loader import Loader
from silva.pipeline import Pipeline

EPOCHS = 3
REPORT = "silva-report.html"


def run_demo(
    folder: Path | None = None, photos: int = 3000, console: Console | None = None
) -> float:
    """Trains, stops in the middle, resumes in a new loader, and tests. Returns the accuracy."""
    out = Console(highlight=False) if console is None else console
    if photos < 200:
        raise SilvaError(f"the demo needs at least 200 photos to learn from, not {photos}")
    began = time.perf_counter()
    learner = new_learner()
    with _folder(folder) as where, one_thread():
        make_photos(where, photos)
        out.print(f"[bold]Photos[/]  {photos:,} crops of two photographs, in {where}")
        train, val = training(where)
        _explain(out, train)
        loader = _train(out, train, learner)
        accuracy = _test(out, val, learner)
        report = loader.report(Path(REPORT))
        loader.close()
    out.print(f"[bold]Report[/]  {report}")
    out.print(f"[dim]Done in {time.perf_counter() - began:.0f} s.[/]")
    return accuracy


@contextmanager
def _folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="silva-demo-") as made:
        yield Path(made)


def _explain(out: Console, train: Pipeline) -> None:
    out.print("[bold]Plan[/]    print(train.explain())\n")
    for line in train.explain().splitlines():
        title = line and not line.startswith(" ")
        out.print(Text("        " + line, style="green" if title else "dim"), soft_wrap=True)
    out.print()


def _train(out: Console, train: Pipeline, learner: Learner) -> Loader:
    """Trains all epochs; stops in the middle of the second and resumes it with another loader."""
    loader = train.loader(progress=True)
    out.print(f"[bold]Train[/]   {EPOCHS} epochs")
    count = sum(1 for batch in loader.to_torch() if learner.step(batch) >= 0)
    with tempfile.TemporaryDirectory(prefix="silva-demo-") as made:
        expected = _interrupt(loader, learner, Path(made), count // 2)
        out.print(
            f"[bold]Stop[/]    after step {count // 2} of epoch 1; the states are in two files"
        )
        loader = train.loader(workers=Machine.here().cpus + 1, progress=True)
        _restore(loader, learner, Path(made))
    for epoch in range(1, EPOCHS):
        for step, batch in enumerate(loader.to_torch()):
            if epoch == 1 and step == 0:
                _check_same(batch, expected)
            learner.step(batch)
        if epoch == 1:
            out.print(
                "[bold]Resume[/]  a new loader with another number of workers continued with the\n"
                "        next batch, equal to the last byte"
            )
    return loader


def _interrupt(loader: Loader, learner: Learner, folder: Path, steps: int) -> dict[str, Any]:
    """Trains for some steps of the next epoch, saves everything, and returns the next batch."""
    import torch

    batches = iter(loader.to_torch())
    for _ in range(steps):
        learner.step(next(batches))
    (folder / "loader.json").write_text(json.dumps(loader.state_dict()))
    torch.save(learner.state_dict(), folder / "model.pt")
    expected = {name: value.clone() for name, value in next(batches).items()}
    loader.close()
    return expected


def _restore(loader: Loader, learner: Learner, folder: Path) -> None:
    import torch

    loader.load_state_dict(json.loads((folder / "loader.json").read_text()))
    learner.load_state_dict(torch.load(folder / "model.pt", weights_only=True))


def _check_same(batch: dict[str, Any], expected: dict[str, Any]) -> None:
    import torch

    if not all(torch.equal(batch[name], expected[name]) for name in expected):
        raise SilvaError("the first batch after the restart differs from the expected one")


def _test(out: Console, val: Pipeline, learner: Learner) -> float:
    with val.loader(eval=True) as loader:
        right, total = learner.accuracy(loader.to_torch())
    share = right / max(total, 1)
    out.print(f"[bold]Test[/]    {right} of {total} photos correct: [bold green]{share:.1%}[/]")
    return share
