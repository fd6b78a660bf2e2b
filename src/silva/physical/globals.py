"""Functions that use the global generators of `random`, `numpy.random` or `torch`.

They are found by comparing the generators' states after a block, not by reading names. A block in which
they moved is done again with the generators seeded per row; the states that the caller had are put back.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class GlobalStates:
    """The states of all global generators at one moment."""

    python: tuple[Any, ...]
    numpy: dict[str, Any]
    torch: Any

    @staticmethod
    def now() -> GlobalStates:
        torch = sys.modules.get("torch")
        state = None
        if torch is not None and hasattr(torch, "get_rng_state"):
            state = torch.get_rng_state()
        return GlobalStates(random.getstate(), np.random.get_state(legacy=False), state)

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        if self.torch is not None:
            sys.modules["torch"].set_rng_state(self.torch)

    def moved_to(self, now: GlobalStates) -> frozenset[str]:
        """Which generators differ between this moment and `now`."""
        moved = set()
        if self.python != now.python:
            moved.add("random")
        before, after = self.numpy["state"], now.numpy["state"]
        if before["pos"] != after["pos"] or not np.array_equal(before["key"], after["key"]):
            moved.add("numpy")
        if now.torch is not None and (
            self.torch is None or not bool((self.torch == now.torch).all())
        ):
            moved.add("torch")
        return frozenset(moved)


def seeding(names: frozenset[str], seeds: Iterable[int]) -> Iterator[None]:
    """Seeds the named generators for one row at each step."""
    torch = sys.modules.get("torch")
    for seed in seeds:
        if "random" in names:
            random.seed(seed)
        if "numpy" in names:
            np.random.seed(seed & 0xFFFFFFFF)
        if "torch" in names and torch is not None:
            torch.manual_seed(seed)
        yield
