"""PyTorch datasets: map-style ones are indexed, iterable ones are streams.

Anything with the same methods will do; torch itself is not imported. The dataset travels to
workers by pickling, and what it reads there is its own affair: its fingerprint is its type and
length only.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from silva.columns import Array, Column
from silva.errors import PlanError
from silva.io.batches import RUN_BYTES
from silva.io.names import chosen
from silva.io.samples import sample_columns, sample_names
from silva.io.travel import Travels

RUN_SAMPLES = 256
_UNSIZED = 1 << 10


@dataclass(frozen=True, eq=False)
class MapDataset(Travels):
    access: ClassVar[Literal["indexed"]] = "indexed"
    runs_user_code: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = ("_names",)
    dataset: Any
    given: tuple[str, ...] | None

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        if self.length() == 0:
            return self.given or ()
        return sample_names(self.dataset[0], self.given)

    def columns(self) -> tuple[str, ...]:
        return self._names

    def types(self) -> dict[str, str]:
        return {}

    def describe(self) -> str:
        return f"torch dataset {type(self.dataset).__name__} of {self.length():,} rows"

    def fingerprint(self) -> str:
        return f"torch:{_qualified(self.dataset)}:{self.length()}"

    def length(self) -> int:
        return len(self.dataset)

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        if not columns:
            return {}
        places = rows.tolist()
        if hasattr(self.dataset, "__getitems__"):  # torch's own protocol for many at once
            samples = list(self.dataset.__getitems__(places))
        else:
            samples = [self.dataset[i] for i in places]
        return sample_columns(samples, self._names, columns)


@dataclass(frozen=True, eq=False)
class IterableDataset(Travels):
    access: ClassVar[Literal["chunked"]] = "chunked"
    replays: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = ("_names",)
    dataset: Any
    given: tuple[str, ...] | None
    library: str = "torch"
    """Whose dataset it is, for showing."""

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        for sample in self.dataset:
            return sample_names(sample, self.given)
        return self.given or ()

    def columns(self) -> tuple[str, ...]:
        return self._names

    def types(self) -> dict[str, str]:
        return {}

    def describe(self) -> str:
        return f"{self.library} stream {type(self.dataset).__name__}"

    def fingerprint(self) -> str:
        return f"{self.library}:{_qualified(self.dataset)}:{self.length()}"

    def length(self) -> int | None:
        try:
            return len(self.dataset)
        except TypeError:  # torch's way to say that a stream has no length
            return None

    def units(self) -> int:
        return 1

    def unit_rows(self) -> np.ndarray | None:
        length = self.length()
        return None if length is None else np.array([length], dtype=np.int64)

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        run: list[Any] = []
        held = 0
        for sample in itertools.islice(iter(self.dataset), start, None):
            run.append(sample)
            held += _size(sample)
            if held >= RUN_BYTES or len(run) >= RUN_SAMPLES:
                yield self._run(run, columns)
                run, held = [], 0
        if run:
            yield self._run(run, columns)

    def _run(self, samples: list[Any], columns: tuple[str, ...]) -> dict[str, Column]:
        if not columns:
            return {"": Array(np.zeros(len(samples), dtype=bool))}
        return sample_columns(samples, self._names, columns)


def _size(sample: Any) -> int:
    """Bytes of a sample, close enough to end a run in time."""
    if isinstance(sample, dict):
        return sum(map(_size, sample.values()))
    if isinstance(sample, tuple | list):
        return sum(map(_size, sample))
    if isinstance(sample, str | bytes):
        return len(sample)
    nbytes = getattr(sample, "nbytes", _UNSIZED)
    return nbytes if isinstance(nbytes, int) else _UNSIZED


def _qualified(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def from_torch(
    dataset: Any, *, columns: Sequence[str] | None = None
) -> MapDataset | IterableDataset:
    """Rows of a dataset: dicts give their keys, tuples `columns=` or `item_0, item_1, …`."""
    given = chosen(columns)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dataset, torch.utils.data.IterableDataset):
        return IterableDataset(dataset, given)  # its __getitem__ is there, but only raises
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return MapDataset(dataset, given)
    if hasattr(dataset, "__iter__") and not hasattr(dataset, "__next__"):
        return IterableDataset(dataset, given)
    what = f"not {type(dataset).__name__}"
    if hasattr(dataset, "__next__"):
        what = f"not the iterator {type(dataset).__name__}, which can be read only once"
    raise PlanError(
        f"from_torch takes a dataset with __getitem__ and __len__, or one with __iter__; {what}"
    )
