"""Functions that use the global generators of `random`, `numpy.random` or `torch`.

They are found by comparing the generators' states after a block, not by reading names. A block in
which they moved is done again with the generators seeded per row; the states that the caller had
are put back.

The generators belong to the whole process, so a block that is seeded has them to itself: threads
that call other functions meanwhile wait at the `GATE`.

Copying the states of all generators takes 90 µs, more than many blocks do. A *mark* takes 2 µs: it
reads two words of each Mersenne Twister straight from memory, the position and a word that changes
when it wraps around. While marks are equal, the last full copy (`GlobalStates`) still holds. For a
generator of another kind, or one that holds a Gaussian back which it would give without moving, no
mark is taken and states are compared in full.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import numpy as np

from silva.errors import DeadlineError

_PATIENCE = 600.0
"""Seconds to wait for functions on other threads to return."""
_LOOK = 0.5
"""Seconds between two looks at whether those that are waited for are still there."""

_HEADER = object.__basicsize__
"""Where a `random.Random` object's own fields begin: (index, state[624])."""
_WORDS = 624


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
    """Whether two states of a bit generator of any kind are equal, with a cached Gaussian."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def _torch() -> Any:
    """torch, if it was imported completely; None otherwise."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "set_rng_state") else None


def _torch_state() -> Any:
    torch = _torch()
    return None if torch is None else torch.get_rng_state()


def _unused(torch: Any) -> Any:
    """The state of torch's generator before its first use: the watched function itself may import
    torch."""
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
    """A lock that many functions may share, or one thread has alone; reentrant.

    Ctrl-C may interrupt the main thread between any two steps, also while it enters or leaves. So
    who has to wait looks whether those inside still run a function that passes the gate; a thread
    that does not has left.
    """

    def __init__(self) -> None:
        self.passers: frozenset[CodeType] = frozenset()
        """The code of the functions that pass the gate."""
        self._changed = threading.Condition(threading.Lock())
        self._inside: dict[int, int] = {}
        """How many times each thread has entered."""
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
                self._inside[me] = self._inside.get(me, 1) - 1
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
                    self._alone = None if self._alone == me else self._alone
                    self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether a thread has it alone, or waits to, so that who comes now has to wait."""
        return self._alone is not None

    def forget(self, thread: int) -> None:
        """Lets others pass though this thread has not left: it hangs, and nobody awaits what it
        runs. Should it draw later, it may disturb the draws of another one at that moment."""
        with self._changed:
            self._inside.pop(thread, None)
            self._alone = None if self._alone == thread else self._alone
            self._changed.notify_all()

    def _await(self, holds: Any) -> None:
        if holds():
            return
        until = time.monotonic() + _PATIENCE
        while not holds():
            if self._changed.wait(_LOOK):
                continue
            self._forget_interrupted()
            if time.monotonic() > until and not holds():
                raise DeadlineError(
                    "a function that draws from a global random generator waited "
                    f"{_PATIENCE:.0f} s for functions on other threads to end; use "
                    "loader(backend='processes')"
                )

    def _forget_interrupted(self) -> None:
        """Forgets threads that Ctrl-C took out of the gate before they could say so."""
        stacks = sys._current_frames()
        for thread in list(self._inside):
            if not self._passes(stacks.get(thread)):
                del self._inside[thread]
        if self._alone is not None and not self._passes(stacks.get(self._alone)):
            self._alone = None

    def _passes(self, frame: FrameType | None) -> bool:
        while frame is not None and frame.f_code not in self.passers:
            frame = frame.f_back
        return frame is not None


GATE = Gate()
"""One for the process, like the generators."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The states of the generators, and the mark that shows whether they have changed."""

    states: GlobalStates
    mark: Any
    """None if only a full comparison can tell."""

    @staticmethod
    def take() -> Snapshot:
        states = GlobalStates.now()
        holds_back = bool(states.numpy.get("has_gauss")) or states.python[2] is not None
        return Snapshot(states, None if holds_back else mark())

    def holds(self) -> bool:
        """Whether no generator has moved since."""
        return self.mark is not None and self.mark == mark()

    def moved(self) -> frozenset[str]:
        """Which generators have moved since."""
        if self.holds():
            return frozenset()
        return self.states.moved_to(GlobalStates.now())


def mark() -> Any:
    """The position of every global generator; None if it cannot be read quickly."""
    bits = np.random.mtrand._rand._bit_generator
    if not _LAYOUT_IS_KNOWN or type(bits).__name__ != "MT19937":
        return None
    python = _words(id(random._inst) + _HEADER)
    address = bits.ctypes.state_address  # key[624], then the position in it
    position = ctypes.c_int32.from_address(address + 4 * _WORDS).value
    torch = getattr(sys.modules.get("torch"), "default_generator", None)
    state = None if torch is None else torch.get_state().numpy().tobytes()
    return python[0], python[2], address, position, _words(address)[1], state


def _words(address: int) -> Any:
    return (ctypes.c_uint32 * 3).from_address(address)


def _layout_is_known() -> bool:
    """Whether this Python lays a generator out as (index, state[624])."""
    if sys.implementation.name != "cpython":
        return False
    trial = random.Random(7)
    trial.random()
    state = trial.getstate()[1]
    words = _words(id(trial) + _HEADER)
    return (words[0], words[2]) == (state[-1], state[1])


_LAYOUT_IS_KNOWN = _layout_is_known()
