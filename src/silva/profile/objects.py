"""What Python objects cost to travel to another process: they are written down and read again."""

from __future__ import annotations

import pickle
import time

import numpy as np

from silva.columns import Block, Column, Values

_TRIED = 32
_SIMPLE = (np.ndarray, np.generic, bool, int, float, str, bytes, type(None))


def holds_objects(column: Column) -> bool:
    """Whether the rows of a column are lists, dicts or objects of the user's: they are slow to
    travel, if they can.

    >>> holds_objects(Values([["a", "b"]])), holds_objects(Values(["a"]))
    (True, False)
    """
    first = column.items[:1] if isinstance(column, Values) else []
    return bool(first) and not isinstance(first[0], _SIMPLE)


def object_seconds(block: Block) -> float:
    """Seconds for a row, tried on a few of them. Arrays travel as they are, and cost nothing here.

    >>> words = Values([["a", "few", "words"]] * 9)
    >>> object_seconds(Block({"words": words}, np.arange(9, dtype=np.uint64))) > 0
    True
    """
    found = [c.items[:_TRIED] for c in block.columns.values() if isinstance(c, Values)]
    objects = [items for items in found if items and not hasattr(items[0], "nbytes")]
    if not objects:
        return 0.0
    began = time.perf_counter()
    try:
        pickle.loads(pickle.dumps(objects, protocol=5))  # noqa: S301  written just now, by us
    except Exception:  # noqa: BLE001  what does not travel is told where it is tried in earnest
        return 0.0
    return (time.perf_counter() - began) / len(objects[0])
