"""Text to lists of tokens: all tokens of a block in one array, built once."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from silva.columns import Array, Column, Lists, Strings
from silva.operators._features.items import valid_text
from silva.operators._features.ragged import offsets_of
from silva.operators._text.read import read_text
from silva.operators._text.tokenizer import Rows

Params = dict[str, Any]


def tokenize(columns: list[Column], params: Params, draw: object) -> Column:
    text = read_text(columns[0])
    texts = text.drop_null().to_pylist() if text.null_count else text.to_pylist()
    tokenizer, special = params["tokenizer"], bool(params["special_tokens"])
    if params["strings"]:
        rows = tokenizer.strings(texts, special)
        flat: Column = Strings(pa.array([*chain.from_iterable(rows)], pa.large_string()))
    else:
        rows = tokenizer.ids(texts, special)
        flat = Array(_flat_ids(rows))
    valid = None
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    if text.null_count:
        valid = valid_text(text)
        present, lengths = lengths, np.zeros(len(text), np.int64)
        lengths[valid] = present
    return Lists(flat, offsets_of(lengths), valid)


def _flat_ids(rows: Rows) -> np.ndarray:
    if not rows:
        return np.empty(0, np.int32)
    if isinstance(rows[0], np.ndarray):
        return np.concatenate(rows).astype(np.int32, copy=False)
    return np.fromiter(chain.from_iterable(rows), np.int32, sum(map(len, rows)))
