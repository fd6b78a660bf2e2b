"""What Python objects cost to travel to another process: they are written down and read again."""

from __future__ import annotations

import pickle
import time

from silva.columns import Block, Values

_TRIED = 32


def object_seconds(block: Block) -> float:
    """Seconds for a row, tried on a few of them. Arrays travel as they are, and cost nothing here.

    >>> import numpy as np
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
