"""A service with worker processes, and three readers of one stream, over a line that can be cut."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import psutil
from chaos_child import Child, wait_for
from chaos_faults import (
    Kind,
    interrupt,
    kill_all,
    kill_child,
    kill_worker,
    move_clock,
    pause,
    slow,
    terminate,
)
from chaos_relay import Relay
from chaos_site import ENDED, SETTLED, Site, alive, free_port, process_of, stopped
from chaos_streams import workers_below
from chaos_trainer import Trainer, Undisturbed

READERS = 3
DEADLINE = 6.0
"""Seconds after which a reader gives up on a service that does not answer."""
WORKERS = {"backend": "processes", "workers": 2}


class Serving(Site):
    """The readers are its processes; the service only answers them."""

    name = "service"
    steps = 10
    faults = 12

    def __init__(self, folder: Path, expected: Undisturbed) -> None:
        super().__init__(folder, expected)
        self._port, self._token = free_port(), secrets.token_urlsafe()
        self.relay = Relay(self._port)
        self.server: Child | None = None

    def start(self, folder: Path) -> None:
        told = {"token": self._token, "loader": WORKERS}
        self.server = Child(folder, "server", "chaos_serve.py", told | {"port": self._port})
        wait_for(lambda: self.the_server.done, SETTLED, "a service")
        told |= {"service": f"http://127.0.0.1:{self.relay.port}", "deadline": DEADLINE}
        self.children = [
            Trainer(folder, self.expected, told, f"reader-{i}") for i in range(READERS)
        ]

    @property
    def the_server(self) -> Child:
        assert self.server is not None
        return self.server

    @property
    def all_children(self) -> list[Child]:
        return [*self.children, *([] if self.server is None else [self.server])]

    def actors(self) -> list[psutil.Process]:
        """Each of the service's runs has its own."""
        return [] if self.server is None else workers_below(self.server.process.pid)

    def settle(self) -> None:
        """As elsewhere; but how many workers there are depends on how many runs there are."""
        self.the_server.check()
        self.go_on(self.steps)
        self._wait(lambda: not any(map(alive, self.doomed)), "the end of what was doomed")
        self.doomed.clear()

    def end(self) -> None:
        for child in self.children:
            child.finish(ENDED)
        runs = self.the_server.descendants()
        self.the_server.interrupt(ENDED)
        self.server = None
        wait_for(lambda: not any(map(alive, runs)), SETTLED, "no process of the service's")
        super().end()

    def close(self) -> None:
        self.relay.close()
        super().close()


# To the service.


def kill_server(site: Serving, chance: Random) -> None:
    _server_ends(site, lambda server: server.send(signal.SIGKILL))


def terminate_server(site: Serving, chance: Random) -> None:
    _server_ends(site, lambda server: server.send(signal.SIGTERM))


def interrupt_server(site: Serving, chance: Random) -> None:
    _server_ends(site, lambda server: server.interrupt(ENDED))


def lose_server(site: Serving, chance: Random) -> None:
    """For longer than its readers wait: each is told."""
    _server_ends(site, lambda server: server.send(signal.SIGKILL), lambda: _all_told(site))


def _server_ends(
    site: Serving, end: Callable[[Child], None], meanwhile: Callable[[], None] = lambda: None
) -> None:
    server = site.the_server
    site.doomed += server.descendants()
    end(server)
    server.ended()
    meanwhile()
    server.start()


def pause_server(site: Serving, chance: Random) -> None:
    with stopped([process_of(site.the_server)]):
        time.sleep(chance.uniform(0.1, 2))


def stop_server(site: Serving, chance: Random) -> None:
    """For longer than its readers wait."""
    with stopped([process_of(site.the_server)]):
        _all_told(site)


def _all_told(site: Serving) -> None:
    told = [len(child.errors) for child in site.children]
    wait_for(
        lambda: all(len(c.errors) > n for c, n in zip(site.children, told, strict=True)),
        DEADLINE + 60,
        "an error of each reader's",
    )


# To the line.


def cut_line(site: Serving, chance: Random) -> None:
    site.relay.cut()


def reset_line(site: Serving, chance: Random) -> None:
    site.relay.reset()


def lose_line(site: Serving, chance: Random) -> None:
    """No connection is to be had for a moment."""
    site.relay.broken = True
    site.relay.cut()
    time.sleep(chance.uniform(0.1, 2))
    site.relay.broken = False


def silence_line(site: Serving, chance: Random) -> None:
    """Connections stand, and nothing comes."""
    site.relay.silence()
    time.sleep(chance.uniform(0.1, 2))
    site.relay.speak()


def lose_what_is_under_way(site: Serving, chance: Random) -> None:
    """Answers break off in the middle, again and again."""
    site.relay.most, site.relay.pause = 40_000, 0.01
    for _ in range(5):
        time.sleep(chance.uniform(0.05, 0.2))
        chance.choice((site.relay.cut, site.relay.reset))()
    site.relay.most, site.relay.pause = 1 << 16, 0.0


def slow_line(site: Serving, chance: Random) -> None:
    site.relay.most, site.relay.pause = 8_000, 0.005
    time.sleep(chance.uniform(0.5, 2))
    site.relay.most, site.relay.pause = 1 << 16, 0.0


ALL = (Serving,)
KINDS = (
    Kind("the service is killed", kill_server, ALL, 5),
    Kind("the service is terminated", terminate_server, ALL, 2),
    Kind("Ctrl-C at the service", interrupt_server, ALL, 4),
    Kind("the service is lost", lose_server, ALL, 1),
    Kind("the service is paused", pause_server, ALL, 3),
    Kind("the service stands still", stop_server, ALL, 1),
    Kind("a worker is killed", kill_worker, ALL, 3),
    Kind("the line is cut", cut_line, ALL, 4),
    Kind("the line is reset", reset_line, ALL, 4),
    Kind("the line is lost", lose_line, ALL, 2),
    Kind("the line is silent", silence_line, ALL, 2),
    Kind("answers break off", lose_what_is_under_way, ALL, 3),
    Kind("the line is slow", slow_line, ALL, 2),
    Kind("a reader is killed", kill_child, ALL, 4),
    Kind("all readers are killed", kill_all, ALL, 2),
    Kind("a reader is terminated", terminate, ALL, 1),
    Kind("Ctrl-C at a reader", interrupt, ALL, 4),
    Kind("a reader is paused", pause, ALL, 3),
    Kind("a reader is slow", slow, ALL, 1),
    Kind("the clock of a reader is wrong", move_clock, ALL, 1),
)
