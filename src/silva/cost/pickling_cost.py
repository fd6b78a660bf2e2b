"""What it costs to send Python objects to another process: pickling and unpickling."""

from __future__ import annotations

import pickle
import time

import numpy as np

from silva.columns import Block, Column, Values

_TRIED = 32
"""Rows that are pickled to see what it costs."""
_SIMPLE = (np.ndarray, np.generic, bool, int, float, str, bytes, type(None))


def holds_objects(column: Column) -> bool:
    """Whether the rows of a column are lists, dicts or the user's own objects, which are slow to
    send to another process, if they can be sent at all.

    >>> holds_objects(Values([["a", "b"]])), holds_objects(Values(["a"]))
    (True, False)
    """
    first = column.items[:1] if isinstance(column, Values) else []
    return bool(first) and not issubclass(type(first[0]), _SIMPLE)


def object_seconds(block: Block) -> float:
    """Seconds per row to pickle and unpickle objects, tried on a few rows. Arrays cost nothing
    here.

    >>> words = Values([["a", "few", "words"]] * 9)
    >>> object_seconds(Block({"words": words}, np.arange(9, dtype=np.uint64))) > 0
    True
    """
    found = [c.items[:_TRIED] for c in block.columns.values() if isinstance(c, Values)]
    try:
        objects = [items for items in found if items and not hasattr(items[0], "nbytes")]
        if not objects:
            return 0.0
        began = time.perf_counter()
        pickle.loads(pickle.dumps(objects, protocol=5))  # noqa: S301  pickled just now, by us
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  an object that cannot be pickled is reported when it is sent
        return 0.0
    return (time.perf_counter() - began) / len(objects[0])
