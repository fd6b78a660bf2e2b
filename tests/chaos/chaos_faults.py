"""The faults: what is done to a site at a random moment. Each is over when its function returns.

Those that any site knows are here; those of one site lie beside it.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil
from chaos_child import wait_for
from chaos_site import ENDED, SETTLED, Site, Slowed, process_of, signalled, stopped

Fault = Callable[[Any, Random], None]


@dataclass(frozen=True)
class Kind:
    name: str
    do: Fault
    sites: tuple[type[Site], ...]
    """Those that it makes sense for."""
    weight: int
    needs_disk: bool = False


# To one of a site's own processes.


def kill_child(site: Site, chance: Random) -> None:
    _ended(site, chance, signal.SIGKILL)


def terminate(site: Site, chance: Random) -> None:
    _ended(site, chance, signal.SIGTERM)


def _ended(site: Site, chance: Random, number: int) -> None:
    child = chance.choice(site.children)
    site.doomed += site.belongings(child)
    child.send(number)
    child.again()


def interrupt(site: Site, chance: Random) -> None:
    """Ctrl-C: it ends soon, and clears up first."""
    child = chance.choice(site.children)
    site.doomed += site.belongings(child)
    child.interrupt(ENDED)
    child.start()


def kill_all(site: Site, chance: Random) -> None:
    for child in site.children:
        site.doomed += site.belongings(child)
        child.send(signal.SIGKILL)
    for child in site.children:
        child.again()


def kill_starting(site: Site, chance: Random) -> None:
    """Once more before it has all that it needs."""
    kill_child(site, chance)
    time.sleep(chance.uniform(0.1, 2))
    kill_child(site, chance)


def pause(site: Site, chance: Random) -> None:
    with stopped([process_of(chance.choice(site.children))]):
        time.sleep(chance.uniform(0.1, 1.5))


def slow(site: Site, chance: Random) -> None:
    child = chance.choice(site.children)
    with _slowed([process_of(child), *child.descendants()]):
        time.sleep(chance.uniform(0.5, 2))


def move_clock(site: Site, chance: Random) -> None:
    """The clock of one process is wrong from now on, by up to a day."""
    chance.choice(site.children).process.send_signal(signal.SIGUSR2)


def fill_disk(site: Site, chance: Random) -> None:
    """Until all has gone on for a while without it."""
    full(site, site.disk)


def full(site: Site, disk: Path) -> None:
    with filled(disk):
        site.go_on(2 * site.steps)


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    ballast = disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        yield
    finally:
        ballast.unlink()


# To the workers that they have.


def kill_worker(site: Site, chance: Random) -> None:
    victim = chance.choice(site.actors())
    signalled(victim, signal.SIGKILL)
    site.doomed.append(victim)


def kill_all_workers(site: Site, chance: Random) -> None:
    for victim in site.actors():
        signalled(victim, signal.SIGKILL)
        site.doomed.append(victim)


def pause_worker(site: Site, chance: Random) -> None:
    """Until the stream has gone on for a while without it."""
    with stopped([chance.choice(site.actors())]):
        site.go_on(40)


def pause_all_workers(site: Site, chance: Random) -> None:
    """Until the stream has gone on for a while without them, after an error or not."""
    with stopped(site.actors()):
        site.go_on(40)


def slow_worker(site: Site, chance: Random) -> None:
    slowly(site, [chance.choice(site.actors())])


def slowly(site: Site, processes: list[psutil.Process]) -> None:
    with _slowed(processes):
        site.go_on(40)


@contextlib.contextmanager
def _slowed(processes: list[psutil.Process]) -> Iterator[None]:
    slowed = Slowed(processes)
    slowed.start()
    try:
        yield
    finally:
        slowed.end()


def exhaust_memory(site: Site, chance: Random) -> None:
    obeyed(site, "exhaust")


def out_of_memory(site: Site, chance: Random) -> None:
    obeyed(site, "killed")


def obeyed(site: Site, order: str) -> None:
    """Leaves an order; some row takes it."""
    (site.orders / order).touch()
    wait_for(lambda: not (site.orders / order).exists(), SETTLED, f"a row that is {order}")
