"""Where something is disturbed: processes that work on a folder and on a small disk.

A site starts them, knows what belongs to them, and says what is left of those that ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from chaos_child import Broken, Child, go_on, wait_for
from chaos_trainer import Undisturbed

SETTLED = 90.0
"""Seconds that a site has to be as it was before a fault."""
ENDED = 20.0
"""Seconds in which a process ends that was told to."""


class Site:
    """What all sites have: a folder of orders, a small disk, processes that do something."""

    name = ""
    workers = 0
    """Processes that its own ones should have started."""
    steps = 20
    """After a fault, so much more must be done by each of its processes."""
    faults = 8
    """In one round, after which all is ended and looked at."""
    disk_size = "8m"
    has_scratch = True
    """Its processes have a folder of their own for temporary files; nothing may be left there."""

    def __init__(self, folder: Path, expected: Undisturbed) -> None:
        self.folder, self.expected = folder, expected
        self.orders, self.disk, self.scratch = folder / "orders", folder / "disk", folder / "tmp"
        for made in (self.orders, self.disk, self.scratch):
            made.mkdir()
        # For all that is started from here on.
        self._variables = {"CHAOS_ORDERS": str(self.orders)}
        if self.has_scratch:
            self._variables["TMPDIR"] = str(self.scratch)
        self._before = {name: os.environ.get(name) for name in self._variables}
        os.environ |= self._variables
        self.has_disk = mounted(self.disk, self.disk_size)
        self.children: list[Child] = []
        self._rounds = 0
        self.doomed: list[psutil.Process] = []
        """Processes that have no right to live any more."""

    def begin(self) -> None:
        """Starts a round, and waits until all of it goes on."""
        self._rounds += 1
        folder = self.folder / f"round-{self._rounds}"
        folder.mkdir()
        self.start(folder)
        self.settle()

    def start(self, folder: Path) -> None:
        """Starts what there is to disturb; `folder` is not on the small disk."""
        raise NotImplementedError

    def actors(self) -> list[psutil.Process]:
        """The workers, as far as they have started."""
        return []

    def belongings(self, child: Child) -> list[psutil.Process]:
        """The processes that have to end with one of the site's own."""
        return child.descendants()

    @property
    def all_children(self) -> list[Child]:
        """Also those that only answer others."""
        return self.children

    @property
    def errors(self) -> list[str]:
        return [error for child in self.children for error in child.errors]

    @property
    def starts(self) -> int:
        return sum(child.starts for child in self.all_children)

    def go_on(self, steps: int, seconds: float = SETTLED) -> None:
        go_on(self.children, steps, seconds)

    def settle(self) -> None:
        """Waits until all goes on, with all workers, and nothing is left of what was."""
        self.go_on(self.steps)
        self._wait(lambda: len(self.actors()) == self.workers, f"{self.workers} workers")
        self._wait(lambda: not any(map(alive, self.doomed)), "the end of what was doomed")
        self.doomed.clear()

    def _wait(self, holds: Any, what: str) -> None:
        def looked() -> Any:
            for child in self.children:
                child.check()
                if not child.is_running:
                    child.again()
            return holds()

        wait_for(looked, SETTLED, what)

    def end(self) -> None:
        """Ends the round; nothing may be left of it."""
        mine = [process for child in self.all_children for process in child.descendants()]
        for child in self.children:
            child.finish(ENDED)
        wait_for(lambda: not any(map(alive, mine)), SETTLED, "no process of theirs")
        wait_for(lambda: not self.actors(), SETTLED, "no worker without its owner")
        self.look_for_files()
        self.children = []

    def look_for_files(self) -> None:
        """What is on the small disk after a round may stay, but for what somebody began to write;
        it is then cleared."""
        begun = [*self.disk.rglob("*.tmp"), *self.disk.rglob("*.part"), *self.scratch.rglob("*")]
        if begun:
            raise Broken(f"files that somebody began to write: {begun}")
        for made in self.disk.iterdir():
            shutil.rmtree(made)

    def close(self) -> None:
        for child in self.all_children:
            child.give_up()
        for name, value in self._before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if self.has_disk:
            subprocess.run(["umount", "--lazy", str(self.disk)], check=True)


def mounted(folder: Path, size: str) -> bool:
    """Whether the folder is a small disk now."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def signalled(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def process_of(child: Child) -> psutil.Process:
    return psutil.Process(child.process.pid)


@contextlib.contextmanager
def stopped(processes: list[psutil.Process]) -> Iterator[None]:
    """The processes stand still for as long as this lasts."""
    try:
        for process in processes:
            signalled(process, signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            signalled(process, signal.SIGCONT)


class Slowed(threading.Thread):
    """Lets processes run a tenth of the time."""

    def __init__(self, processes: list[psutil.Process]) -> None:
        super().__init__(daemon=True)
        self._processes = processes
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            with stopped(self._processes):
                time.sleep(0.18)
            time.sleep(0.02)

    def end(self) -> None:
        self._over.set()
        self.join()
