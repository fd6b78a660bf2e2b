"""What the numbers were measured on; nothing that names a host, a user or a place."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("silva", "numpy", "torch", "pyarrow", "opencv-python-headless", "simplejpeg")


def describe_machine() -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.system(),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class OtherLoad:
    """The share of the machine that was busy, and not for us."""

    def __init__(self) -> None:
        self._times = psutil.cpu_times()

    def share(self, ours: float) -> float:
        """Since this was made; `ours` are the CPU seconds that we used ourselves."""
        now = psutil.cpu_times()
        spent = {name: getattr(now, name) - getattr(self._times, name) for name in now._fields}
        total = sum(spent.values()) - spent.get("guest", 0) - spent.get("guest_nice", 0)
        idle = spent["idle"] + spent.get("iowait", 0)
        return max(0.0, (total - idle - ours) / total) if total else 0.0
