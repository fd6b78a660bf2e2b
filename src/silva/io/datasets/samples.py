"""Converts samples of other libraries' datasets (dicts, tuples, single values) to columns."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from silva.columns import Column, Values
from silva.columns.owned import without_shared_containers
from silva.errors import SourceError

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
