"""A script that runs for ever in a process of its own, is ended and started again, and what it
says: a line of JSON each time that it has done something."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil


class Broken(AssertionError):
    """A promise that did not hold."""


def wait_for(holds: Callable[[], Any], seconds: float, what: str) -> Any:
    until = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > until:
            raise Broken(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.01)
    return found


class Child:
    """One job, over as many processes as it takes."""

    def __init__(self, folder: Path, name: str, script: str, told: dict[str, Any]) -> None:
        self.name, self._folder = name, folder
        self._script = str(Path(__file__).with_name(script))
        self._told = {
            **told,
            "state": str(folder / f"{name}.json"),
            "stop": str(folder / f"{name}.stop"),
        }
        self.done = 0
        """What it has done, in all of its processes."""
        self.errors: list[str] = []
        self.starts = 0
        self.any_end = False
        """It may end by itself, with any status."""
        self._sent: set[int] = set()
        """Signals that may end the process that there is now."""
        self._left: list[str] | None = None
        self._wrong: str | None = None
        self.start()

    def start(self) -> None:
        self.starts += 1
        self._sent, self._left = set(), None
        self._log = self._folder / f"{self.name}-{self.starts}.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, self._script, json.dumps(self._told)],
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

    def _on_done(self, *words: Any) -> None:
        self.done += 1

    def _on_error(self, kind: str, text: str) -> None:
        self.errors.append(f"{self.name}: {kind}: {text}")

    def _on_wrong(self, text: str) -> None:
        self._wrong = self._wrong or text

    def _on_end(self, left: list[str]) -> None:
        self._left = left
        if left:
            self._on_wrong(f"{self.name} left in its process: {left}")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    # What is done to it.

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def descendants(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def send(self, number: int) -> None:
        """A signal that may end it."""
        self._sent.add(number)
        self.process.send_signal(number)

    def again(self) -> None:
        """Starts it again once it has ended, from where it was."""
        self.ended()
        self.start()

    def ended(self) -> None:
        """Waits for its end, which must be one that it was sent."""
        self.process.wait()
        self._reader.join()
        self.check()
        code = self.process.returncode
        if not self.any_end and -code not in self._sent:
            raise Broken(f"{self.name} ended with {code}; sent to it: {sorted(self._sent)}")
        if -code == signal.SIGINT and self._left is None and not self.any_end:
            raise Broken(f"{self.name} was interrupted and did not clear up")

    # What comes of it.

    def check(self) -> None:
        if self._wrong is not None:
            raise Broken(f"{self.name}: {self._wrong}")

    def tell_stacks(self) -> None:
        for number in (signal.SIGUSR1, signal.SIGCONT):
            self.process.send_signal(number)

    def finish(self, seconds: float) -> None:
        """Tells it to end, and looks at what it left in itself."""
        Path(self._told["stop"]).touch()
        self._end_within(seconds)
        if self.process.returncode != 0:
            raise Broken(f"{self.name} was told to end, and did so with {self.process.returncode}")

    def interrupt(self, seconds: float) -> None:
        """Ctrl-C: it ends, and leaves nothing in itself."""
        self.send(signal.SIGINT)
        self._end_within(seconds)
        self.ended()

    def _end_within(self, seconds: float) -> None:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.tell_stacks()
            raise Broken(f"{self.name} did not end within {seconds:.0f} s") from None
        self._reader.join()
        self.check()

    def give_up(self) -> None:
        if self.is_running:
            self.process.kill()
        self.process.wait()
        self._reader.join()


def go_on(children: Sequence[Child], steps: int, seconds: float) -> None:
    """Waits until each has done so much more; starts those again that have ended."""
    goals = [child.done + steps for child in children]

    def there() -> bool:
        for child in children:
            child.check()
            if not child.is_running:
                child.again()
        return all(c.done >= goal for c, goal in zip(children, goals, strict=True))

    try:
        wait_for(there, seconds, f"{steps} more steps of {', '.join(c.name for c in children)}")
    except Broken as error:
        for child in children:
            child.tell_stacks()
        more = [c.done - goal + steps for c, goal in zip(children, goals, strict=True)]
        raise Broken(f"{error}; there were {', '.join(map(str, more))}") from None
