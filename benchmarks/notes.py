"""Facts about a silva loader, gathered after the clock has stopped, that explain its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil


def notes_on(opened: Any) -> dict[str, Any]:
    """Where each stage ran and why, how many workers there are, how many of them loaded torch."""
    import silva as sv

    if not isinstance(opened, sv.Loader):
        return {}
    maps = [
        Path(f"/proc/{child.pid}/maps").read_text()
        for child in psutil.Process().children(recursive=True)
    ]
    return {
        "stages": {
            name: {key: value for key, value in stats.items() if key in ("backend", "reason")}
            for name, stats in opened.stats().items()
        },
        "workers": len(maps),
        "workers_with_torch": sum("libtorch" in text for text in maps),
    }
