"""The CPUs and the memory that this process may use, within containers and CPU affinity."""

from __future__ import annotations

import os
import re
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

from silva.errors import PlanError

_PREFIXES = ("", "k", "m", "g", "t")
"""Each is 1000 times the one before; with an i, 1024 times."""


@dataclass(frozen=True)
class Machine:
    """The CPUs and the memory that this process may use."""

    cpus: int
    memory: int
    """Bytes that this process may still use."""

    @staticmethod
    def here() -> Machine:
        return Machine(_cpus(), _memory())


def _cpus() -> int:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _read("/sys/fs/cgroup/cpu.max")
    if quota and not quota.startswith("max"):
        used, period = quota.split()[:2]
        allowed = min(allowed or 1, max(1, round(int(used) / int(period))))
    return allowed or 1


def _memory() -> int:
    available = _available_memory()
    limit, used = _read("/sys/fs/cgroup/memory.max"), _read("/sys/fs/cgroup/memory.current")
    if limit and limit.isdigit() and used and used.isdigit():
        available = min(available, max(int(limit) - int(used), 0))
    return available


def _available_memory() -> int:
    """Bytes of the whole machine that can be used without swapping."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _read("/proc/meminfo") or "", re.MULTILINE)
    if found is not None:
        return int(found[1]) << 10
    import psutil  # where there is no /proc; it is slow to import

    return int(psutil.virtual_memory().available)


def queued_seconds() -> float:
    """Seconds that this thread was ready to run and waited for a core, since it began; 0 where the
    system does not say."""
    try:
        file: int = _THREAD.run_queue.file
    except AttributeError:
        try:
            _THREAD.run_queue = _RunQueue()
        except OSError:
            return 0.0
        file = _THREAD.run_queue.file
    found = os.pread(file, 80, 0).split()
    return int(found[1]) / 1e9 if len(found) > 1 else 0.0


class _RunQueue:
    """The file in which the system counts how long a thread waited for a core. It is read for every
    block, so it stays open until the thread ends."""

    def __init__(self) -> None:
        self.file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        weakref.finalize(self, os.close, self.file)


_THREAD = threading.local()
"""Its `run_queue` is that of the present thread."""
if hasattr(os, "register_at_fork"):
    # in the child, the file of the thread that forked is that of the parent's
    os.register_at_fork(after_in_child=lambda: _THREAD.__dict__.clear())


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _bytes_of(unit: str) -> int:
    """Bytes of a unit; a ValueError if there is none of this name.

    >>> _bytes_of(""), _bytes_of("m"), _bytes_of("ki")
    (1, 1000000, 1024)
    """
    prefix = unit[:1]
    if unit not in (prefix, f"{prefix}i") or unit == "i":
        raise ValueError(unit)
    base = 1000 if unit == prefix else 1024
    return int(base ** _PREFIXES.index(prefix))


def parse_bytes(text: str | int) -> int:
    """Bytes from a number or from text such as `512MB` or `4GiB`.

    >>> parse_bytes("4GiB")
    4294967296
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise PlanError(f"{text!r} is not an amount of memory: write e.g. '4GiB'")
    if isinstance(text, int):
        value = text
    else:
        cleaned = text.strip().lower().removesuffix("b") if text.strip().lower() != "b" else ""
        digits = cleaned.rstrip("kmgti").strip()
        unit = cleaned[len(cleaned.rstrip("kmgti")) :].strip()
        try:
            value = int(float(digits) * _bytes_of(unit))
        except (ValueError, OverflowError):
            raise PlanError(f"{text!r} is not an amount of memory: write e.g. '4GiB'") from None
    if value <= 0:
        raise PlanError(f"memory must be positive, not {text!r}")
    return value
