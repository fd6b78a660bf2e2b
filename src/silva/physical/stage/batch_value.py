"""A batch as the user gets it; it depends on its rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Block, Column, Ragged, Values
from silva.columns.codes import rows_at, together
from silva.columns.column import Strings, is_masked_array
from silva.columns.number_runs import offsets_of
from silva.columns.ragged import Grouped, filled
from silva.columns.union import Union, typed_rows
from silva.columns.values import PLAIN, batch_of_rows, common_dtype, plain_item
from silva.errors import ColumnError
from silva.physical.stage.raised import in_words

_PADDED = ((int, float, complex), str, bytes)
"""Kinds of items that numpy holds as objects and that are padded with their like."""


@dataclass(frozen=True, eq=False)
class BatchValue:
    """One batch as the user gets it, and the identity of its first row."""

    values: dict[str, Any]
    rows: int
    id: int
    place: int | None

    @property
    def nbytes(self) -> int:
        return sum(map(nbytes_of, self.values.values()))

    def __len__(self) -> int:
        return 1


def nbytes_of(value: Any) -> int:
    """About the bytes of a value; `nbytes` of a user's object may raise anything."""
    try:
        return int(getattr(value, "nbytes", 64))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  a guess does for an estimate
        return 64


def batch_value(block: Block, pad: Any, grouped: tuple[tuple[str, ...], ...] = ()) -> BatchValue:
    """The batch of these rows; columns named in `grouped` hold each distinct row once."""
    columns = dict(block.columns)
    inverse: dict[str, np.ndarray] = {}
    later: dict[str, Grouped] = {}
    for names in grouped:
        from silva.columns.grouped_arrays import grouped_arrays

        arrays = grouped_arrays(names, block.columns, len(block))
        if arrays is not None:
            later |= {name: next(arrays.batches(name)) for name in names}
            continue
        first, number = _distinct(names, columns)
        columns |= {name: rows_at(columns[name], first) for name in names}
        inverse |= dict.fromkeys(names, number)
    values = {n: later[n] if n in later else column_batch(n, c, pad) for n, c in columns.items()}
    values |= {name: Grouped.of(values[name], number) for name, number in inverse.items()}
    place = None if block.places is None or not len(block) else int(block.places[0])
    return BatchValue(values, len(block), int(block.ids[0]) if len(block) else 0, place)


def batches_of(columns: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """The batches of columns that have the same number of them."""
    names = tuple(columns)
    if len(names) == 1:
        for value in columns[names[0]]:
            yield {names[0]: value}
        return
    for values in zip(*columns.values()):  # noqa: B905  `strict=` takes longer than all else here
        yield dict(zip(names, values))  # noqa: B905


def rows_together(data: np.ndarray, size: int, count: int) -> np.ndarray:
    """An array whose rows are batches: numpy yields them faster than slices."""
    return data[: size * count].reshape(count, size, *data.shape[1:])


def _distinct(names: tuple[str, ...], columns: dict[str, Column]) -> tuple[np.ndarray, np.ndarray]:
    try:
        return together([columns[name] for name in names])
    except ColumnError as error:
        shown = ", ".join(map(repr, names))
        raise ColumnError(f"batch(grouped=…), column {shown}: {error}") from None


def column_batch(name: str, column: Column, pad: Any) -> Any:
    """One column of a batch: padded if asked for, writable, and not shared with a source."""
    try:
        value = _padded(name, column, pad)
    except ColumnError as error:
        raise ColumnError(f"column {name!r}: {error}") from None
    except KeyboardInterrupt:
        raise
    except RecursionError:
        raise ColumnError(f"column {name!r}: lists are nested too deeply for a batch") from None
    except BaseException as error:  # objects of the user's are asked for their items and lengths
        raise ColumnError(
            f"column {name!r}: its rows cannot be put into one batch ({in_words(error)}); return "
            "arrays or plain lists, or give batch(collate=…) a function of your own"
        ) from error
    if _may_hold_arrays(value, column):
        for i, item in enumerate(value):  # a slice assignment would unpack arrays
            value[i] = writable(item)
    return writable(value)


def _may_hold_arrays(value: Any, column: Column) -> bool:
    """Whether a batch is an object array of rows that may be arrays."""
    if not isinstance(value, np.ndarray) or value.dtype != object or value.ndim != 1:
        return False
    return not isinstance(column, Strings) and not (
        isinstance(column, Values) and column.kinds <= PLAIN
    )


def writable(value: Any) -> Any:
    """The value with a copy in place of a read-only array."""
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else value.copy()
    if isinstance(value, Ragged) and isinstance(value.values, np.ndarray):
        return Ragged(writable(value.values), value.offsets)
    return value


def _padded(name: str, column: Column, pad: Any) -> Any:
    if pad is None or (isinstance(pad, dict) and name not in pad):
        return column.batch()
    fill = pad[name] if isinstance(pad, dict) else pad
    if isinstance(column, Values | Union):
        rows = [x for x in typed_rows(column) if x is not None]
        if any(_dims(x) > 1 for x in rows) and len({getattr(x, "shape", None) for x in rows}) > 1:
            return _pad_arrays(typed_rows(column), fill)
    value = column.batch()
    if isinstance(value, Ragged):
        return _pad_lists(value, fill)
    if type(value) is np.ndarray and value.dtype == object and not isinstance(column, Strings):
        rows = [plain_item(x) for x in typed_rows(column)]
        lists = [x for x in rows if x is not None]
        if lists and all(isinstance(x, list | tuple) or _dims(x) == 1 for x in lists):
            return _pad_with_nulls(value, lists, np.array([x is not None for x in rows]), fill)
    return value


def _pad_lists(lists: Ragged, fill: Any) -> np.ndarray:
    items = lists.values
    if isinstance(items, np.ndarray) and items.dtype == object:
        kind = next((k for k in _PADDED if all(isinstance(x, k) for x in items)), ())
        if not isinstance(fill, kind):
            shown = ", ".join(sorted({type(x).__name__ for x in items})[:4])
            raise ColumnError(
                f"lists of {shown} cannot be padded with {fill!r}: name the columns to pad, as in "
                "batch(pad={'tokens': 0})"
            )
    padded: np.ndarray = lists.padded(fill)
    return padded


def _pad_with_nulls(value: Any, lists: list[Any], valid: np.ndarray, fill: Any) -> Any:
    """Padded lists or vectors of which a part is null, or beside rows that are null: what is null
    is masked. `value` is the batch without padding, which rows without items keep."""
    items: Any
    if all(isinstance(x, np.ndarray) for x in lists):
        dtype = common_dtype({x.dtype for x in lists})
        masked = any(map(is_masked_array, lists))
        items = (np.ma.concatenate if masked else np.concatenate)(lists).astype(dtype)
    else:
        items = batch_of_rows(
            [x for row in lists for x in (row.tolist() if is_masked_array(row) else row)]
        )
    padded = _pad_lists(Ragged(items, offsets_of([len(x) for x in lists])), fill)
    if valid.all():
        return padded
    if not padded[:1].size:
        return value
    data = filled((len(valid), *padded.shape[1:]), fill, padded.dtype)
    out: np.ma.MaskedArray[Any, Any] = np.ma.MaskedArray(data, mask=np.ones(data.shape, bool))
    out[valid] = padded
    return out


def _dims(item: Any) -> int:
    return int(getattr(item, "ndim", 0))


def _pad_arrays(rows: list[Any], fill: Any) -> np.ndarray:
    """Arrays of different shapes in one array, each placed at the origin."""
    items = [plain_item(x) for x in rows]
    for item in items:
        if not isinstance(item, np.ndarray):
            what = "null" if item is None else type(item).__name__
            raise ColumnError(
                f"arrays of several dimensions cannot be padded together with a {what}: filter "
                "such rows, or make them arrays"
            )
    ranks = {x.ndim for x in items}
    if len(ranks) > 1:
        raise ColumnError(f"rows of {sorted(ranks)} dimensions cannot be padded to one shape")
    shape = np.max([x.shape for x in items], axis=0).tolist()
    dtype = common_dtype({x.dtype for x in items})
    out = filled((len(items), *shape), fill, dtype)
    missing = np.zeros(out.shape, bool)
    for row, hidden, x in zip(out, missing, items, strict=True):
        place = tuple(slice(0, n) for n in x.shape)
        row[place] = x
        if is_masked_array(x):
            hidden[place] = np.ma.getmaskarray(x)
    return np.ma.MaskedArray(out, mask=missing) if missing.any() else out
