"""What the scripts of the chaos tests share: how they speak, show their stacks, read a clock that
jumps, and look for what is left in their process."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import gc
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

_DAY = 86_400.0
_JOINED = 2.0
"""Seconds in which threads that were told to end have done so."""


def start() -> dict[str, Any]:
    """What this script was told."""
    global _LINE
    _LINE = os.dup(1)
    os.dup2(2, 1)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGUSR2, _jump)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also of a job in the background
    warnings.simplefilter("ignore")  # of a full disk: that the work goes on is what counts
    return json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


def _jump(number: int, frame: object) -> None:
    """The clock of this process is wrong by up to a day from now on; that of others is not."""
    by = random.uniform(-_DAY, _DAY)
    time.time = lambda: time.clock_gettime(time.CLOCK_REALTIME) + by
    time.time_ns = lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) + int(by * 1e9)


def say(kind: str, *words: Any) -> None:
    """One line, at once or not at all; Ray prints what it likes to where everybody prints."""
    with os.fdopen(os.dup(_LINE), "wb") as line:
        line.write(json.dumps([kind, *words]).encode() + b"\n")


def run_through(work: Callable[[], Any], sockets: bool = True) -> None:
    """Says what is left when the work has ended, or was interrupted; anything else that ends it
    breaks a promise."""
    before, interrupted = _held(sockets), False
    try:
        work()
    except KeyboardInterrupt:
        interrupted = True  # raised again below: its frames may hold batches
    except BaseException:
        say("wrong", traceback.format_exc()[-3000:])
        raise
    say("end", left(before, sockets))
    if interrupted:
        raise KeyboardInterrupt


def left(before: set[str], sockets: bool) -> list[str]:
    """What closed work should not leave in its process; what only garbage holds (frames of an
    error that was caught, say) Python has not collected yet."""
    until = time.monotonic() + _JOINED
    while True:
        gc.collect()
        threads = {t.name for t in threading.enumerate() if t.name.startswith("silva-")}
        found = sorted(threads | (_held(sockets) - before))
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.02)


def _held(sockets: bool) -> set[str]:
    """Shared memory, sockets, deleted files and locks of this process."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    found = {line for line in maps if "memfd:silva" in line}
    kinds = ("memfd:", "(deleted)", *(["socket:"] if sockets else []))
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{fd}")
            found |= {f"fd {fd}: {target}"} if any(kind in target for kind in kinds) else set()
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] != "->" and words[4] == str(os.getpid()):
            found.add(" ".join(["lock", *words[1:4], words[5]]))
    return found


def is_full(error: BaseException | None) -> bool:
    """Whether an error says that a disk is full."""
    while error is not None:
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
            return True
        error = error.__cause__
    return False


def again_and_again(told: dict[str, Any], turn: Callable[[], Any]) -> None:
    """Does the work until a file says stop."""

    def work() -> None:
        while not os.path.exists(told["stop"]):
            turn()

    run_through(work)
