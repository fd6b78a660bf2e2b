"""How much memory a process and its children hold, watched from outside (Linux)."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import psutil

_INTERVAL = 0.02
_REFRESH = 5
"""Looks for new children once in so many samples: that is the costly part."""


class PeakWatch:
    """Samples a process tree until stopped; `peak` is the largest sum of bytes seen."""

    def __init__(self, pid: int, shared_once: bool) -> None:
        self.peak = 0
        self.seen: set[psutil.Process] = set()
        """All processes that were in the tree, also those whose parent has ended since."""
        self._pid = pid
        self._measure = held_bytes if shared_once else resident_bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._tree()

    def _watch(self) -> None:
        pids, count = [self._pid], 0
        while not self._stop.wait(_INTERVAL):
            if count % _REFRESH == 0:
                pids = self._tree()
            count += 1
            self.peak = max(self.peak, self._measure(pids))

    def _tree(self) -> list[int]:
        """The process and its descendants."""
        try:
            process = psutil.Process(self._pid)
            tree = [process, *process.children(recursive=True)]
        except psutil.Error:
            return [self._pid]
        self.seen.update(tree)
        return [each.pid for each in tree]


def resident_bytes(pids: list[int]) -> int:
    """The sum of resident sizes; shared pages count once a process."""
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:  # it ended
            continue
    return total * os.sysconf("SC_PAGE_SIZE")


def held_bytes(pids: list[int]) -> int:
    """Every page once: private memory, shares of shared memory, and segments nobody has mapped."""
    private, mapped = 0, 0
    segments: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            fields = _rollup(pid)
            segments.update(_segments(pid))
        except OSError:
            continue
        mapped += fields.get("Pss_Shmem", 0)
        private += fields.get("Pss", 0) - fields.get("Pss_Shmem", 0)
    return private + max(mapped, sum(segments.values()))


def _rollup(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}


def _segments(pid: int) -> dict[tuple[int, int], int]:
    """Allocated bytes of the shared-memory files that a process has open, by identity."""
    found = {}
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(entry.path).startswith(("/memfd:", "/dev/shm/")):
                status = os.stat(entry.path)
                found[status.st_dev, status.st_ino] = status.st_blocks * 512
        except OSError:  # closed just now
            continue
    return found
