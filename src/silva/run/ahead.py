"""The first batch of the next epoch, made while the trainer does what it does between epochs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

from silva.run.executor import nobody_waits
from silva.run.stream import Stream


class Ahead:
    """A stream whose first batch is being made on a thread of its own."""

    def __init__(self, epoch: int, stream: Stream) -> None:
        self.epoch = epoch
        self.stream = stream
        self._batches = iter(stream)
        self._first: list[Any] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._start, name="silva-ahead", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        nobody_waits.set(True)
        try:
            self._first = list(islice(self._batches, 1))
        except BaseException as error:  # noqa: BLE001  raised again when the epoch begins
            self._error = error

    def batches(self) -> Iterator[dict[str, Any]]:
        """The epoch, from its first batch on."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        yield from self._first
        yield from self._batches

    def drop(self) -> None:
        """Gives the epoch up."""
        self._thread.join()
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()
