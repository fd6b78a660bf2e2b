"""Programs that write pipelines to files and tables, each with workers of its own kind."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import psutil
from chaos_child import Child
from chaos_faults import (
    Kind,
    filled,
    interrupt,
    kill_all,
    kill_child,
    kill_starting,
    move_clock,
    pause,
    slow,
    terminate,
)
from chaos_site import SETTLED, Site, wait_for
from chaos_streams import workers_below

SCRIPT = "chaos_sink_work.py"
JOBS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("parquet", {"backend": "inline"}),
    ("tar", {"backend": "threads", "workers": 2}),
    ("table", {"backend": "processes", "workers": 2}),
)


class Writing(Site):
    name = "sinks"
    steps = 1
    faults = 12
    disk_size = "16m"

    def start(self, folder: Path) -> None:
        told = {"disk": str(self.disk)}
        self.children = [
            Child(folder, kind, SCRIPT, told | {"kind": kind, "loader": loader})
            for kind, loader in JOBS
        ]

    def writers(self) -> list[psutil.Process]:
        return [w for child in self.children for w in workers_below(child.process.pid)]


def kill_a_worker(site: Writing, chance: Random) -> None:
    """They come and go with each pipeline that is written."""
    wait_for(site.writers, SETTLED, "a worker")
    if there := site.writers():
        victim = chance.choice(there)
        victim.kill()
        site.doomed.append(victim)


def fill_disk(site: Writing, chance: Random) -> None:
    """Until each was told so."""
    told = [len(child.errors) for child in site.children]
    with filled(site.disk):
        wait_for(
            lambda: all(len(c.errors) > n for c, n in zip(site.children, told, strict=True)),
            SETTLED,
            "an error of each writer's",
        )


ALL = (Writing,)
KINDS = (
    Kind("one of them is killed", kill_child, ALL, 8),
    Kind("one of them is killed as it starts", kill_starting, ALL, 1),
    Kind("all of them are killed", kill_all, ALL, 3),
    Kind("one of them is terminated", terminate, ALL, 2),
    Kind("Ctrl-C at one of them", interrupt, ALL, 4),
    Kind("one of them is paused", pause, ALL, 2),
    Kind("one of them is slow", slow, ALL, 1),
    Kind("the clock of one is wrong", move_clock, ALL, 2),
    Kind("a worker is killed", kill_a_worker, ALL, 3),
    Kind("the disk is full", fill_disk, ALL, 4, needs_disk=True),
)
