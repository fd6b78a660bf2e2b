"""Trainers of one machine: their steps run inline, on threads, or in worker processes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import psutil
from chaos_site import Site, alive
from chaos_trainer import Trainer

DEADLINE = 15.0
"""Of every loader: seconds without a result after which it must give up."""


class Streaming(Site):
    """A trainer that keeps rows on the small disk."""

    loader: dict[str, Any]

    def start(self, folder: Path) -> None:
        told = {"cache": str(self.disk / "rows"), "deadline": DEADLINE, "loader": self.loader}
        self.children = [Trainer(folder, self.expected, told)]

    @property
    def trainer(self) -> Trainer:
        (trainer,) = self.children
        assert isinstance(trainer, Trainer)
        return trainer


class Inline(Streaming):
    name = "inline"
    steps = 10
    loader = {"backend": "inline"}  # noqa: RUF012  read only


class OnThreads(Streaming):
    name = "threads"
    loader = {"backend": "threads", "workers": 2}  # noqa: RUF012  read only


class InProcesses(Streaming):
    """Worker processes of the trainer's machine."""

    name = "processes"
    workers = 2
    loader = {"backend": "processes", "workers": 2}  # noqa: RUF012  read only

    def actors(self) -> list[psutil.Process]:
        return workers_below(self.children[0].process.pid) if self.children else []


def workers_below(pid: int) -> list[psutil.Process]:
    """Worker processes that a process has started."""
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(pid).children()
        return [p for p in children if alive(p) and "worker.py" in " ".join(p.cmdline())]
    return []
