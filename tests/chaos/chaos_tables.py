"""A table with three writers, a collector of garbage and a reader, all at once."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

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
from chaos_site import ENDED, SETTLED, Site, process_of, stopped, wait_for

SCRIPT = "chaos_table_work.py"
WRITERS = 3


class Tables(Site):
    """What writers note lies beside the small disk that the table is on."""

    name = "tables"
    steps = 3
    faults = 20
    disk_size = "24m"

    def start(self, folder: Path) -> None:
        self._told = {"table": str(self.disk / "table"), "notes": str(folder), "writers": WRITERS}
        self._round = folder
        self._alone("create")
        roles: list[tuple[str, dict[str, Any]]] = [
            *((f"writer-{i}", {"role": "writer", "number": i}) for i in range(WRITERS)),
            ("collector", {"role": "collector"}),
            ("reader", {"role": "reader"}),
        ]
        self.children = [Child(folder, name, SCRIPT, self._told | own) for name, own in roles]

    def _alone(self, role: str) -> None:
        child = Child(self._round, role, SCRIPT, self._told | {"role": role})
        self.children = [child]
        child.finish(SETTLED)
        self.children = []

    def look_for_files(self) -> None:
        self.children = []
        self._alone("last")
        super().look_for_files()


def fill_disk(site: Tables, chance: Random) -> None:
    """Until each writer was told so; readers go on, and so does who only deletes."""
    *writers, _, reader = site.children
    told = [len(writer.errors) for writer in writers]
    with filled(site.disk):
        wait_for(
            lambda: all(len(w.errors) > n for w, n in zip(writers, told, strict=True)),
            SETTLED,
            "an error of each writer's",
        )
        read = reader.done
        wait_for(lambda: reader.done > read + 2, SETTLED, "a reader of a table on a full disk")


def pause_all_writers(site: Tables, chance: Random) -> None:
    """Readers go on without them."""
    *writers, _, reader = site.children
    read = reader.done
    with stopped([process_of(writer) for writer in writers]):
        wait_for(lambda: reader.done > read + 2, ENDED, "a reader without writers")


ALL = (Tables,)
KINDS = (
    Kind("one of them is killed", kill_child, ALL, 8),
    Kind("one of them is killed as it starts", kill_starting, ALL, 1),
    Kind("all of them are killed", kill_all, ALL, 4),
    Kind("one of them is terminated", terminate, ALL, 2),
    Kind("Ctrl-C at one of them", interrupt, ALL, 4),
    Kind("one of them is paused", pause, ALL, 4),
    Kind("all writers are paused", pause_all_writers, ALL, 1),
    Kind("one of them is slow", slow, ALL, 2),
    Kind("the clock of one is wrong", move_clock, ALL, 2),
    Kind("the disk is full", fill_disk, ALL, 4, needs_disk=True),
)
