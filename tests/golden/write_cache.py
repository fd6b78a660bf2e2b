"""Writes `cache-0.1`: rows that silva 0.1 kept in a folder, which every later silva finds there.

PYTHONPATH=<a checkout of 0.1>/src GOLDEN_CACHE=1000 python tests/golden/write_cache.py
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import silva as sv

HERE = Path(__file__).parent / "cache-0.1"


def told(x: int) -> int:
    """Gives something else when it is run again without the variable."""
    return x + int(os.environ.get("GOLDEN_CACHE", "0"))


def pipelines(folder: Path) -> dict[str, sv.Pipeline]:
    rows = sv.from_columns({"x": range(12), "w": [f"w{i % 3}" for i in range(12)]})
    kept = rows.derive(y=told, z=sv.num("x").hash(7), u=sv.text("w").upper())
    return {
        "plain": kept.cache(folder).batch(5),
        "shuffled": kept.shuffle(seed=2).cache(folder).filter(sv.col("z") > 2).batch(5),
        "exploded": kept.derive(t=lambda x: [x] * (x % 3)).explode("t").cache(folder).batch(5),
    }


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    for pipeline in pipelines(HERE).values():
        with pipeline.loader(backend="inline") as loader:
            for _ in loader:
                pass


if __name__ == "__main__":
    main()
