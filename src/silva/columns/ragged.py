"""The values of a batch whose rows differ in length (`Ragged`) or repeat (`Grouped`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns.column import is_masked_array
from silva.columns.number_runs import gathered
from silva.errors import ColumnError


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row `i` is `values[offsets[i]:offsets[i + 1]]`.

    >>> tokens = Ragged(np.array([5, 6, 7]), np.array([0, 2, 3]))
    >>> [row.tolist() for row in tokens]
    [[5, 6], [7]]
    >>> tokens.padded(0).tolist()
    [[5, 6], [7, 0]]
    """

    values: Any
    """A numpy array, a tensor, or a `Ragged` of the next level."""
    offsets: Any
    """One more than there are rows, starting at 0: an array, or a tensor beside tensors."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        start, stop = int(self.offsets[row]), int(self.offsets[row + 1])
        return _rows(self.values, start, stop)

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> Any:
        """The number of items of each row, as an array or a tensor like `offsets`."""
        return self.offsets.diff() if is_tensor(self.offsets) else np.diff(self.offsets)

    def padded(self, value: Any = 0, length: int | None = None) -> Any:
        """A dense array, or tensor: rows shorter than `length` (default: the longest) end with
        `value`."""
        if isinstance(self.values, Ragged):
            raise ColumnError("only one ragged level can be padded; pad the inner lists first")
        lengths = self.lengths
        longest = int(lengths.max()) if len(self) else 0
        width = longest if length is None else length
        if longest > width:
            raise ColumnError(f"a row of length {longest} does not fit into pad length {width}")
        if is_tensor(self.values):
            return _padded_tensor(self.values, lengths, width, value)
        within = np.arange(width) < lengths[:, None]
        out = filled((len(self), width, *self.values.shape[1:]), value, self.values.dtype)
        out[within] = self.values
        if is_masked_array(self.values):
            missing = np.zeros(out.shape, np.ma.make_mask_descr(out.dtype))
            missing[within] = np.ma.getmaskarray(self.values)
            return np.ma.MaskedArray(out, mask=missing)
        return out


def _padded_tensor(values: Any, lengths: Any, width: int, value: Any) -> Any:
    """`Ragged.padded` for tensors, on their device."""
    import torch

    within = torch.arange(width, device=lengths.device) < lengths[:, None]
    try:
        out = values.new_full((len(lengths), width, *values.shape[1:]), value)
    except (RuntimeError, TypeError):
        raise ColumnError(f"rows of {values.dtype} cannot be padded with {value!r}") from None
    out[within.to(values.device)] = values
    return out


def _rows(values: Any, start: int, stop: int) -> Any:
    """Rows of one level, with their own items of the levels below."""
    if not isinstance(values, Ragged):
        return values[start:stop]
    offsets = values.offsets[start : stop + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    return Ragged(_rows(values.values, first, last), offsets - first)


def filled(shape: tuple[int, ...], value: Any, dtype: np.dtype) -> np.ndarray:
    """An array full of a pad value."""
    try:
        return np.full(shape, value, dtype=dtype)
    except (OverflowError, TypeError, ValueError):
        raise ColumnError(f"rows of {dtype} cannot be padded with {value!r}") from None


@dataclass(frozen=True, eq=False)
class Grouped:
    """Row `i` is the distinct row `inverse[i]`; distinct rows come in the order in which they
    first appear. Columns that were grouped together share one `inverse`.

    >>> import silva as sv
    >>> log = sv.from_items([{"hist": [5, 6]}, {"hist": [5, 6]}, {"hist": [7]}])
    >>> hist = log.batch(3, grouped="hist").head(1)[0]["hist"]
    >>> hist.values.tolist(), hist.offsets.tolist(), hist.inverse.tolist()
    ([5, 6, 7], [0, 2, 3], [0, 0, 1])
    >>> [row.tolist() for row in hist.expand()]
    [[5, 6], [5, 6], [7]]
    """

    values: Any
    """The items of the distinct rows, end to end; or, without offsets, the distinct rows."""
    offsets: Any
    """Where each distinct row begins, and where the last one ends; None for rows of one shape."""
    inverse: Any

    @staticmethod
    def of(unique: Any, inverse: Any) -> Grouped:
        """From distinct rows as a batch holds them."""
        if isinstance(unique, Ragged):
            return Grouped(unique.values, unique.offsets, inverse)
        return Grouped(unique, None, inverse)

    @property
    def unique(self) -> Any:
        """The distinct rows as a batch of them would hold them."""
        return self.values if self.offsets is None else Ragged(self.values, self.offsets)

    @property
    def factor(self) -> float:
        """Rows per distinct row."""
        return len(self) / max(len(self.unique), 1)

    @property
    def nbytes(self) -> int:
        parts = (self.values, self.offsets, self.inverse)
        return sum(int(getattr(part, "nbytes", 0)) for part in parts)

    def __len__(self) -> int:
        return len(self.inverse)

    def __getitem__(self, row: int) -> Any:
        return self.unique[int(self.inverse[row])]

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def expand(self) -> Any:
        """Every row, as an ungrouped batch holds them."""
        return _take(self.unique, self.inverse)

    def to_torch(self) -> Grouped:
        """The same as tensors, which share the memory.

        >>> hist = Grouped(np.array([5, 6, 7]), np.array([0, 2, 3]), np.array([0, 0, 1]))
        >>> hist.to_torch().inverse
        tensor([0, 0, 1])
        """
        offsets = None if self.offsets is None else _tensor(self.offsets)
        return Grouped(_tensor(self.values), offsets, _tensor(self.inverse))

    def to_kjt(self, key: str, others: Mapping[str, Grouped] | None = None) -> Any:
        """A torchrec `KeyedJaggedTensor` of the distinct rows, with the inverse indices by which
        torchrec's embedding modules expand pooled values; `others` are further keys."""
        import torch
        from torchrec import KeyedJaggedTensor

        found = {name: _jagged(name, g) for name, g in {key: self, **(others or {})}.items()}
        _check_alike(found)
        filled = [g.values for g in found.values() if len(g.values)]
        return KeyedJaggedTensor(
            keys=list(found),
            values=torch.cat(filled or [g.values for g in found.values()]),
            lengths=torch.cat([g.offsets.diff() for g in found.values()]),
            stride_per_key_per_rank=[[len(g.offsets) - 1] for g in found.values()],
            inverse_indices=(list(found), torch.stack([g.inverse for g in found.values()])),
        )


def _jagged(name: str, grouped: Grouped) -> Grouped:
    if grouped.offsets is None or isinstance(grouped.values, Ragged):
        raise ColumnError(
            f"column {name!r}: a KeyedJaggedTensor holds lists of numbers; leave batch(pad=…) out"
        )
    return grouped if is_tensor(grouped.values) else grouped.to_torch()


def _check_alike(found: Mapping[str, Grouped]) -> None:
    """Raises for keys of different batches, and where ids would become floats."""
    rows = {name: len(grouped) for name, grouped in found.items()}
    if len(set(rows.values())) > 1:
        raise ColumnError(f"a KeyedJaggedTensor holds columns of one batch, not {rows} rows")
    kinds = {n: g.values.is_floating_point() for n, g in found.items() if len(g.values)}
    if len(set(kinds.values())) > 1:
        names = " and ".join(repr(n) for kind in (True, False) for n in kinds if kinds[n] is kind)
        raise ColumnError(f"a KeyedJaggedTensor holds one type, floats or ids, not both: {names}")


def _tensor(value: Any) -> Any:
    import torch

    if isinstance(value, Ragged):
        return Ragged(_tensor(value.values), _tensor(value.offsets))
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
        raise ColumnError(
            "text and objects cannot be tensors: leave the column out of batch(grouped=…)"
        )
    return torch.as_tensor(value)


def _take(rows: Any, picked: Any) -> Any:
    """The rows at these indices, for numpy, torch and jax."""
    if isinstance(rows, list):
        return [rows[i] for i in picked.tolist()]
    if not isinstance(rows, Ragged):
        return rows[picked]
    if is_tensor(rows.offsets):
        positions, offsets = _gathered_tensors(rows.offsets, picked)
    else:
        bounds, index = np.asarray(rows.offsets), np.asarray(picked)
        positions, offsets = gathered(bounds[:-1][index], np.diff(bounds)[index])
        offsets = rows.offsets.__array_namespace__().asarray(offsets)
    return Ragged(_take(rows.values, positions), offsets)


def _gathered_tensors(offsets: Any, picked: Any) -> tuple[Any, Any]:
    """`gathered` for tensors, on their device."""
    import torch

    lengths = offsets.diff()[picked]
    ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    away = torch.repeat_interleave(offsets[:-1][picked] - ends[:-1], lengths)
    return torch.arange(len(away), device=away.device) + away, ends


def is_tensor(value: Any) -> bool:
    """Whether a value is a torch tensor; does not import torch."""
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)
