"""A trainer in a process of its own, and whoever holds what it prints against what should come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from chaos_child import Child

SCRIPT = "chaos_stream.py"


class Undisturbed:
    """The digests of the stream as it should be, epoch by epoch, from a process of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._epochs: list[list[str]] = []
        self._lock = threading.Lock()

    def __getitem__(self, epoch: int) -> list[str]:
        with self._lock:
            if self._process is None:
                words = [sys.executable, str(Path(__file__).with_name(SCRIPT))]
                calm = {k: v for k, v in os.environ.items() if k != "CHAOS_ORDERS"}
                self._process = subprocess.Popen(words, stdout=subprocess.PIPE, env=calm)
            assert self._process.stdout is not None
            while len(self._epochs) <= epoch:
                self._epochs.append(json.loads(self._process.stdout.readline())[1])
            return self._epochs[epoch]

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class Trainer(Child):
    """One stream, over as many processes as it takes; what it does are batches."""

    def __init__(
        self, folder: Path, expected: Undisturbed, told: dict[str, Any], name: str = "trainer"
    ) -> None:
        self._expected = expected
        self._last = self._next = (0, 0)
        super().__init__(folder, name, SCRIPT, told)

    def _on_begin(self, epoch: int, place: int) -> None:
        """It must go on where its state was saved, which may be one batch before it was killed, and
        at the very end of an epoch."""
        begins = self._after(epoch, place)
        if begins not in (self._last, self._next):
            self._on_wrong(f"it goes on with batch {begins}, but {self._next} was to come")
        self._next = begins

    def _after(self, epoch: int, place: int) -> tuple[int, int]:
        return (epoch + 1, 0) if place == len(self._expected[epoch]) else (epoch, place)

    def _on_batch(self, epoch: int, place: int, found: str) -> None:
        expected = self._expected[epoch]
        if (epoch, place) != self._next or found != expected[place]:
            self._on_wrong(
                f"batch {place} of epoch {epoch} is {found}; batch {self._next} was to come, "
                f"and should be {expected[place]}"
            )
        self._last, self._next = (epoch, place), self._after(epoch, place + 1)
        self.done += 1
