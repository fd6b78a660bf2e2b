"""The trainer of the chaos tests: run as a script, it reads one pipeline for ever.

It prints a line for each batch (epoch, place in the epoch, digest), keeps its state in a file, and
goes on from that file when it is started again. After an error of silva's it says so and goes on
with a new loader. Its step obeys an order that lies in a folder, once: that is how a row comes to
exhaust memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from chaos_script import run_through, say, start

import silva as sv
from silva.run.seams import SlowTask
from silva.testing import digest

ROWS = 1600
BATCH = 8
MOMENT = 0.008
"""Seconds that a row takes while somebody disturbs it."""


def pipeline(folder: str | None) -> sv.Pipeline:
    """Rows that lie on a disk for a while, then take a moment each; blocks of 4 are 128 KiB, so
    that Ray keeps them in its object store."""
    rows = sv.from_columns({"x": range(ROWS)}).derive(note=noted)
    rows = rows if folder is None else rows.cache(folder)
    return rows.shuffle(seed=3).derive(y=work, wide=array).batch(BATCH)


def noted(x: int) -> str:
    return f"{x:0256}"


def work(x: int, rng: Any) -> int:
    orders = os.environ.get("CHAOS_ORDERS")
    if orders is not None:
        obey(Path(orders))
        time.sleep(MOMENT)
    return x + int(rng.integers(1 << 30))


def array(x: int) -> np.ndarray:
    return np.full((64, 64), x)


def obey(orders: Path) -> None:
    """Does what an order says, where there is one; who takes it away is the one to obey."""
    for order, act in (("exhaust", exhaust), ("killed", killed)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(orders / order)
            act()


def exhaust() -> None:
    """Takes more memory than this process may have."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
    try:
        held = [bytearray(16 << 20) for _ in range(64)]
        raise AssertionError(f"{len(held)} pieces of memory were had")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def killed() -> None:
    """What Linux does to a process when memory is short."""
    held = bytearray(64 << 20)
    os.kill(os.getpid(), signal.SIGKILL)
    del held


def loader_of(told: dict[str, Any]) -> Any:
    if "service" in told:
        where, deadline = told["service"], told["deadline"]
        return sv.connect(where, "it", token=told["token"], memory="1MiB", deadline=deadline)
    loader = pipeline(told["cache"]).loader(deadline=told["deadline"], **told["loader"])
    return loader.with_seams(block_sizes=[4], slow=SlowTask(seconds=1.0))


def train(told: dict[str, Any]) -> None:
    """Reads until a file says stop."""
    kept, stop = Path(told["state"]), Path(told["stop"])
    while not stop.exists():
        try:
            with loader_of(told) as loader:
                epoch, place = 0, 0
                if kept.exists():
                    found = json.loads(kept.read_text())
                    epoch, place = found["place"]
                    loader.load_state_dict(found["state"])
                say("begin", epoch, place)
                read(loader, epoch, place, kept, stop)
        except sv.SilvaError as error:
            say("error", type(error).__name__, str(error).splitlines()[0])


def read(loader: Any, epoch: int, place: int, kept: Path, stop: Path) -> None:
    while not stop.exists():
        for batch in loader:
            say("batch", epoch, place, digest(batch))
            place += 1
            whole = json.dumps({"place": (epoch, place), "state": loader.state_dict()})
            partly = kept.with_suffix(".part")
            partly.write_text(whole)
            os.replace(partly, kept)
            if stop.exists():
                return
        epoch, place = epoch + 1, 0


def print_digests() -> None:
    """Epoch after epoch, as fast as somebody reads them."""
    loader = pipeline(None).loader(backend="inline")
    while True:
        say("epoch", [digest(batch) for batch in loader])


if __name__ == "__main__":
    told = start()
    if told:
        run_through(lambda: train(told), sockets=told["loader"]["backend"] != "ray")
    else:
        print_digests()
