"""Costs that earlier runs measured, kept by fingerprint: a pipeline that was run before is planned
before its first row.

One small JSON file a step, in `$SILVA_PROFILES` or the user's cache folder. Nothing depends on them
but speed: what is missing, damaged or cannot be written is measured again.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

from silva.profile.costs import Cost
from silva.profile.line import Line

_MOST_FILES = 4096
_WEIGHT_ROWS = 10_000
"""A step's history counts as so many rows at most, so that what is new soon outweighs it."""


def default_folder() -> Path:
    """Where costs are kept unless somebody says otherwise."""
    chosen = os.environ.get("SILVA_PROFILES")
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "silva" / "profiles"


class Book:
    """
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book = Book(Path(folder))
    ...     book.put("f00d", Cost(rows=100, kept=50, seconds=2.0, cpu=1.0))
    ...     Book(Path(folder)).get("f00d").selectivity
    0.5
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or default_folder()

    def get(self, key: str) -> Cost | None:
        """What is known of a step; None where nothing is, or nothing that makes sense."""
        try:
            data = json.loads(self._path(key).read_bytes())
            return Cost(
                rows=int(data["rows"]),
                kept=int(data["kept"]),
                seconds=float(data["seconds"]),
                cpu=float(data["cpu"]),
                columns={str(k): int(v) for k, v in data["columns"].items()},
                operators={
                    str(name): (float(seconds), int(rows), int(nbytes))
                    for name, (seconds, rows, nbytes) in data["operators"].items()
                },
                by_size=Line(*map(float, data["by_size"])),
                grows=Line(*map(float, data["grows"])),
                disk=int(data["disk"]),
                network=int(data["network"]),
                moved=int(data["moved"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, key: str, cost: Cost) -> None:
        """Keeps a cost in place of what was known."""
        share = min(1.0, _WEIGHT_ROWS / max(cost.rows, 1))
        data = {
            "rows": max(round(cost.rows * share), 1),
            "kept": round(cost.kept * share),
            "seconds": cost.seconds * share,
            "cpu": cost.cpu * share,
            "columns": {name: round(n * share) for name, n in cost.columns.items()},
            "operators": cost.operators,
            "by_size": cost.by_size.scaled(share),
            "grows": cost.grows.scaled(share),
            "disk": round(cost.disk * share),
            "network": round(cost.network * share),
            "moved": round(cost.moved * share),
        }
        with contextlib.suppress(OSError):
            self._write(self._path(key), json.dumps(data))

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.replace(aside, path)
        except BaseException:
            os.unlink(aside)
            raise

    def tidy(self) -> None:
        """Removes the oldest files, where there are too many."""
        with contextlib.suppress(OSError):
            files = [(e.stat().st_mtime, e.path) for e in os.scandir(self._folder)]
            for _, path in sorted(files)[: max(len(files) - _MOST_FILES, 0)]:
                os.unlink(path)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"
