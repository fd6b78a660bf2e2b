"""PyTorch datasets: map-style ones are indexed, iterable ones are streams.

Any object with the same methods works; torch itself is not imported. The dataset is pickled for
workers. What it reads is not known to silva, so its fingerprint is only its type and length.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from silva.columns import Column, Values
from silva.columns.owned import without_shared_containers
from silva.errors import PlanError, SourceError
from silva.io.arrow_batches import RUN_BYTES, empty_run
from silva.io.datasets.replay import check_loader, first_sample, mark_of, replayed
from silva.io.names import chosen
from silva.io.source import Travels, kind_of, register_source

RUN_SAMPLES = 256
_UNSIZED = 1 << 10


@dataclass(frozen=True, eq=False)
class _Dataset(Travels):
    identifies_rows: ClassVar[bool] = False
    _cure: ClassVar[str] = (
        "Give every sample the same keys (None where a value is missing), or choose some with "
        "from_torch(…, columns=…)"
    )
    dataset: Any
    given: tuple[str, ...] | None
    """The columns that the user named."""

    @property
    def _names(self) -> tuple[str, ...]:
        raise NotImplementedError

    def describe(self) -> str:
        raise NotImplementedError

    def fingerprint(self) -> str:
        kind = type(self.dataset)
        return f"{kind.__module__}.{kind.__qualname__}:{self.length()}"

    def length(self) -> int | None:
        return len(self.dataset)

    def _check_keys(self, samples: Sequence[Any], places: Sequence[int]) -> None:
        """Raises for a key that the first sample lacks, and whose values would be lost."""
        if self.given is not None:
            return
        known = frozenset(self._names)
        for sample, place in zip(samples, places, strict=True):
            if isinstance(sample, dict) and not sample.keys() <= known:
                late = min(map(repr, sample.keys() - known))
                raise SourceError(
                    f"{self.describe()}: sample {place} has the key {late}, which the first sample "
                    f"lacks; its keys are {list(self._names)}. {self._cure}"
                )


@register_source("torch dataset", tag="torch")
@dataclass(frozen=True, eq=False)
class MapDataset(_Dataset):
    carried: ClassVar[tuple[str, ...]] = ("_names",)

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        if self.length() == 0:
            return self.given or ()
        return sample_names(self.dataset[0], self.given)

    def columns(self) -> tuple[str, ...]:
        return self._names

    def describe(self) -> str:
        return f"torch dataset {type(self.dataset).__name__} of {self.length():,} rows"

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        if not columns:
            return {}
        places = rows.tolist()
        if hasattr(self.dataset, "__getitems__"):  # torch's protocol for several samples at once
            samples = list(self.dataset.__getitems__(places))
            if len(samples) != len(places):
                raise SourceError(
                    f"{self.describe()}: __getitems__ returned {len(samples)} samples for "
                    f"{len(places)} indices"
                )
        else:
            samples = [self.dataset[i] for i in places]
        found = sample_columns(samples, self._names, columns)
        self._check_keys(samples, places)
        return found


@register_source("torch stream", tag="torch")
@dataclass(frozen=True, eq=False)
class IterableDataset(_Dataset):
    replays: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = ("_first",)

    @functools.cached_property
    def _first(self) -> tuple[tuple[str, ...], str | None]:
        """The columns, and the digest of the first sample."""
        first = first_sample(self.dataset)
        names = sample_names(first[0], self.given) if first else self.given or ()
        return names, mark_of(first)

    @property
    def _names(self) -> tuple[str, ...]:
        return self._first[0]

    def columns(self) -> tuple[str, ...]:
        return self._names

    def describe(self) -> str:
        return f"{kind_of(self).name} {type(self.dataset).__name__}"

    def length(self) -> int | None:
        try:
            return len(self.dataset)
        except TypeError:  # how torch reports that a stream has no length
            return None

    def units(self) -> int:
        return 1

    def unit_rows(self) -> np.ndarray | None:
        length = self.length()
        return None if length is None else np.array([length], dtype=np.int64)

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        """Runs of samples."""
        run: list[Any] = []
        nbytes, length = 0, self.length()
        for sample in replayed(self.dataset, self.describe(), self._first[1], start):
            if start + len(run) == length:
                raise self._wrong_length(length, "more")
            run.append(sample)
            nbytes += _size(sample)
            is_full = nbytes >= RUN_BYTES or len(run) >= RUN_SAMPLES
            if is_full and start + len(run) != length:  # else the end is looked for first
                yield self._run(run, columns, start)
                start += len(run)
                run, nbytes = [], 0
        if run:
            yield self._run(run, columns, start)
        if length is not None and start + len(run) < length:
            raise self._wrong_length(length, str(start + len(run)))

    def _wrong_length(self, length: int, found: str) -> SourceError:
        return SourceError(
            f"{self.describe()} has the length {length} (__len__), but yields {found} samples: "
            "give the dataset the right length, or none"
        )

    def _run(self, samples: list[Any], columns: tuple[str, ...], start: int) -> dict[str, Column]:
        found = sample_columns(samples, self._names, columns)
        self._check_keys(samples, range(start, start + len(samples)))
        return found if columns else empty_run(len(samples))


def _size(sample: Any) -> int:
    """The approximate size of a sample in bytes, to end a run in time."""
    if isinstance(sample, dict):
        return sum(map(_size, sample.values()))
    if isinstance(sample, tuple | list):
        return sum(map(_size, sample))
    if isinstance(sample, str | bytes):
        return len(sample)
    nbytes = getattr(sample, "nbytes", _UNSIZED)
    return nbytes if isinstance(nbytes, int) else _UNSIZED


def from_torch(
    dataset: Any, *, columns: Sequence[str] | None = None
) -> MapDataset | IterableDataset:
    """Rows of a dataset. Dicts have their keys as columns, tuples `columns=` or `item_0, …`."""
    given = chosen(columns)
    check_loader(dataset)
    if isinstance(dataset, Mapping):
        raise PlanError(
            "from_torch takes a dataset with a sample for each index: pass a dict of columns to "
            "from_columns"
        )
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dataset, torch.utils.data.IterableDataset):
        return IterableDataset(dataset, given)  # it has a __getitem__ that only raises
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


_NUMBERS = frozenset({bool, int, float})


def sample_names(sample: Any, given: tuple[str, ...] | None) -> tuple[str, ...]:
    """The columns of a sample: its keys, its field names, `item_0, item_1, …`, or `item`."""
    if isinstance(sample, dict):
        names = tuple(sample)
        for name in names:
            if not isinstance(name, str) or not name:
                raise SourceError(
                    f"a sample has the key {name!r}, but column names must be strings"
                )
        if given is not None and not set(given) <= set(names):
            missing = sorted(set(given) - set(names))
            raise SourceError(f"a sample has no {missing}; its keys are {list(names)}")
        return names if given is None else given
    if isinstance(sample, tuple | list):
        names = getattr(sample, "_fields", tuple(f"item_{i}" for i in range(len(sample))))
    else:
        names = ("item",)
    if given is not None and len(given) != len(names):
        raise SourceError(f"columns= has {len(given)} names, but a sample has {len(names)} values")
    return names if given is None else given


def sample_columns(
    samples: list[Any], names: tuple[str, ...], columns: tuple[str, ...]
) -> dict[str, Column]:
    """The columns of samples, which must all have the form of the first one."""
    out: dict[str, Column] = {}
    for name in columns:
        place = names.index(name)
        values = Values([plain(_pick(sample, name, place, names)) for sample in samples])
        # arrays are stacked only once, when the batch is made
        is_number = values.kinds <= _NUMBERS or all(issubclass(k, np.generic) for k in values.kinds)
        out[name] = values.settled() if is_number else without_shared_containers(values)
    return out


def _pick(sample: Any, name: str, place: int, names: tuple[str, ...]) -> Any:
    if isinstance(sample, dict):
        if name not in sample:
            raise SourceError(f"a sample has no {name!r}; it has {list(sample)}")
        return sample[name]
    if isinstance(sample, tuple | list):
        if len(sample) != len(names):
            raise SourceError(f"a sample has {len(sample)} values; the first had {len(names)}")
        return sample[place]
    return sample


def plain(value: Any) -> Any:
    """Converts tensors to numpy arrays that share their memory, also within lists and dicts."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value[()]
    if type(value) in (list, tuple):
        return type(value)(plain(item) for item in value)
    if type(value) is dict:
        return {key: plain(item) for key, item in value.items()}
    return value
