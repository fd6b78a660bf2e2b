"""A trainer in a process of its own, and whoever holds what it prints against what should come."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

SCRIPT = str(Path(__file__).with_name("chaos_stream.py"))


class Broken(AssertionError):
    """A promise that did not hold."""


def wait_for(holds: Callable[[], Any], seconds: float, what: str) -> Any:
    until = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > until:
            raise Broken(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.01)
    return found


class Undisturbed:
    """The digests of the stream as it should be, epoch by epoch, from a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, SCRIPT], stdout=subprocess.PIPE)
        self._epochs: list[list[str]] = []
        self._lock = threading.Lock()

    def __getitem__(self, epoch: int) -> list[str]:
        assert self._process.stdout is not None
        with self._lock:
            while len(self._epochs) <= epoch:
                self._epochs.append(json.loads(self._process.stdout.readline())[1])
            return self._epochs[epoch]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Trainer:
    """One stream, over as many processes as it takes."""

    def __init__(self, folder: Path, expected: Undisturbed, told: dict[str, Any]) -> None:
        self._folder, self._expected = folder, expected
        self._told = {**told, "state": str(folder / "state.json"), "stop": str(folder / "stop")}
        self.batches = 0
        """Of all of its processes."""
        self.errors: list[str] = []
        self.starts = 0
        self.left: list[str] | None = None
        self._wrong: str | None = None
        self._next = (0, 0)
        self._start()

    def _start(self) -> None:
        self.starts += 1
        self.log = self._folder / f"trainer-{self.starts}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, SCRIPT, json.dumps(self._told)],
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def _read(self, process: Any) -> None:
        for line in process.stdout:
            if not line.endswith("\n"):
                return  # killed while it wrote
            kind, *words = json.loads(line)
            getattr(self, f"_on_{kind}")(*words)

    def _on_begin(self, epoch: int, place: int) -> None:
        """It must go on where its state was saved, which may be one batch before it was killed, and
        at the very end of an epoch."""
        self._next = self._after(epoch, place)

    def _after(self, epoch: int, place: int) -> tuple[int, int]:
        return (epoch + 1, 0) if place == len(self._expected[epoch]) else (epoch, place)

    def _on_batch(self, epoch: int, place: int, found: str) -> None:
        expected = self._expected[epoch]
        if (epoch, place) != self._next or found != expected[place]:
            self._wrong = self._wrong or (
                f"batch {place} of epoch {epoch} is {found}; batch {self._next} was to come, "
                f"and should be {expected[place]}"
            )
        self._next = self._after(epoch, place + 1)
        self.batches += 1

    def _on_error(self, kind: str, text: str) -> None:
        self.errors.append(f"{kind}: {text}")

    def _on_end(self, left: list[str]) -> None:
        self.left = left

    def check(self) -> None:
        if self._wrong is not None:
            raise Broken(self._wrong)

    def goes_on(self, batches: int, seconds: float) -> None:
        """Waits for so many more batches; starts the trainer again if it has ended."""
        goal = self.batches + batches

        def there() -> bool:
            self.check()
            if self.process.poll() is not None:
                self.again()
            return self.batches >= goal

        try:
            wait_for(there, seconds, f"{batches} more batches")
        except Broken:
            self.process.send_signal(signal.SIGUSR1)
            self.process.send_signal(signal.SIGCONT)
            raise

    def again(self) -> None:
        """Starts it again once it has ended, from the state that it saved last."""
        self.process.wait()
        self._reader.join()
        self._start()

    def kill(self) -> list[psutil.Process]:
        """Kills it; the processes that it had started."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        return children

    def finish(self, seconds: float) -> None:
        """Tells it to end, and looks at what it left in itself."""
        Path(self._told["stop"]).touch()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR1)
            raise Broken("the trainer did not end when it was told to") from None
        self._reader.join()
        self.check()
        if self.process.returncode != 0 or self.left:
            raise Broken(f"the trainer ended with {self.process.returncode}, left {self.left}")

    def give_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
