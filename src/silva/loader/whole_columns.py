"""Whole columns of a plan, read before its first row: weights of a sample, and sides of joins."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from silva.columns import Block, Column, Dictionary, Values
from silva.options import LoaderOptions
from silva.plan.fingerprint import fingerprint
from silva.plan.node import Batch, Node, Select, without_shuffles

_READ_ROWS = 4096
"""Rows that are read at a time."""


@dataclass
class ColumnValues:
    """Reads columns as arrays, each once."""

    seed: int
    _read: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def __call__(self, plan: Node, name: str) -> np.ndarray:
        key = (fingerprint(plan), name)
        if key not in self._read:
            self._read[key] = _read_array(plan, name, self.seed)
        return self._read[key]


def _read_array(plan: Node, name: str, seed: int) -> np.ndarray:
    from silva.loader.loader import Loader  # a loader needs such columns to be made

    picked = Batch(Select(without_shuffles(plan), (name,)), _READ_ROWS)
    parts = [batch[name] for batch in Loader(picked, LoaderOptions(backend="inline", seed=seed))]
    if not parts:
        return np.empty(0)
    return np.ma.concatenate(parts) if any(map(np.ma.is_masked, parts)) else np.concatenate(parts)  # type: ignore[no-untyped-call]


def read_columns(plan: Node, names: tuple[str, ...]) -> dict[str, Column]:
    """Whole columns of the first epoch of a plan."""
    from silva.loader.loader import Loader  # a loader needs such columns to be made

    picked = Batch(Select(plan, names), _READ_ROWS)
    with Loader(picked, LoaderOptions(backend="inline")) as loader:
        blocks = list(loader.blocks())
    if not blocks:
        return {name: Values([]) for name in names}
    whole = Block.concat(blocks).columns
    plain = {n: c.expand() if isinstance(c, Dictionary) else c for n, c in whole.items()}
    return {name: column.settled() for name, column in plain.items()}
