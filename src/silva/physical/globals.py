"""Functions that use the global generators of `random`, `numpy.random` or `torch`.

They are found by comparing the generators' states after a block, not by reading names. A block in
which they moved is done again with the generators seeded per row; the states that the caller had
are put back.

The generators belong to the whole process, so a block that is seeded has them to itself: threads
that call other functions meanwhile wait at the `GATE`.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.errors import DeadlineError

_PATIENCE = 600.0
"""Seconds to wait for functions on other threads to come to an end."""


@dataclass(frozen=True)
class GlobalStates:
    """The states of all global generators at one moment."""

    python: tuple[Any, ...]
    numpy: dict[str, Any]
    torch: Any

    @staticmethod
    def now() -> GlobalStates:
        return GlobalStates(random.getstate(), np.random.get_state(legacy=False), _torch_state())

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch = _torch()
        if torch is not None:
            torch.set_rng_state(self.torch if self.torch is not None else _unused(torch))

    def moved_to(self, now: GlobalStates) -> frozenset[str]:
        """Which generators differ between this moment and `now`."""
        moved = set()
        if self.python != now.python:
            moved.add("random")
        if not _same(self.numpy, now.numpy):
            moved.add("numpy")
        if now.torch is not None:
            before = self.torch if self.torch is not None else _unused(_torch())
            if not bool((before == now.torch).all()):
                moved.add("torch")
        return frozenset(moved)


def _same(a: Any, b: Any) -> bool:
    """Equality of a bit generator's state, of whatever kind it is. A cached Gaussian counts too."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def _torch() -> Any:
    """torch, where somebody has imported it (to the end: not while it is being imported)."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "set_rng_state") else None


def _torch_state() -> Any:
    torch = _torch()
    return None if torch is None else torch.get_rng_state()


def _unused(torch: Any) -> Any:
    """The state that torch's generator has when nobody has used it: it may be imported by the very
    function that is watched."""
    return torch.Generator().get_state()


def seeding(names: frozenset[str], seeds: Iterable[int]) -> Iterator[None]:
    """Seeds the named generators for one row at each step."""
    for seed in seeds:
        if "random" in names:
            random.seed(seed)
        if "numpy" in names:
            np.random.seed(seed & 0xFFFFFFFF)
        if "torch" in names:
            torch = _torch()
            if torch is not None:
                torch.manual_seed(seed)
        yield


ALL = frozenset(("random", "numpy", "torch"))


class Gate:
    """Lets functions pass together, or one thread alone. A thread may pass again while inside."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside: dict[int, int] = {}
        """Thread → how many times it is inside."""
        self._alone: int | None = None

    @contextmanager
    def together(self) -> Iterator[None]:
        me = threading.get_ident()
        with self._changed:
            self._await(lambda: self._alone in (None, me))
            self._inside[me] = self._inside.get(me, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._inside[me] -= 1
                if not self._inside[me]:
                    del self._inside[me]
                    self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        me = threading.get_ident()
        with self._changed:
            again = self._alone == me
            if not again:
                self._await(lambda: self._alone is None)
                self._alone = me  # nobody new comes in from here on
                try:
                    self._await(lambda: not self._inside.keys() - {me})
                except DeadlineError:
                    self._alone = None
                    self._changed.notify_all()
                    raise
        try:
            yield
        finally:
            if not again:
                with self._changed:
                    self._alone = None
                    self._changed.notify_all()

    def _await(self, holds: Any) -> None:
        if holds():
            return
        until = time.monotonic() + _PATIENCE
        while not holds():
            if not self._changed.wait(until - time.monotonic()) and not holds():
                raise DeadlineError(
                    "a function that draws from a global random generator waited "
                    f"{_PATIENCE:.0f} s for functions on other threads to end; use "
                    "loader(backend='processes')"
                )


GATE = Gate()
"""Of this process: so are the generators."""
