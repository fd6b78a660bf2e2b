"""A program that writes pipelines: run as a script, one after the other, and looks at each when it
is written. Killed and run again it goes on with the one that it was at."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from chaos_script import again_and_again, is_full, say, start

import silva as sv

sys.path.append(str(Path(__file__).parents[1] / "store"))
from store_tools import assert_no_orphans

ROWS = 300
SHARD = 30
MOMENT = 0.001
"""Seconds that a row takes."""


def rows(number: int) -> sv.Pipeline:
    """Other rows in each pipeline, in an order of its own, some of them filtered out."""
    first = number * ROWS
    return (
        sv.from_columns({"x": np.arange(first, first + ROWS)})
        .shuffle(seed=number)
        .derive(txt=text)
        .filter(sv.col("x") % 7 != 3)
    )


def text(x: int) -> str:
    time.sleep(MOMENT)
    return f"row {x}" * 20


def expected(number: int) -> list[int]:
    first = number * ROWS
    plain = sv.from_columns({"x": np.arange(first, first + ROWS)}).shuffle(seed=number)
    return [row["x"] for row in plain if row["x"] % 7 != 3]


class Job:
    def __init__(self, told: dict[str, Any]) -> None:
        self._kind, self._loader = told["kind"], told["loader"]
        self._disk, self._kept = Path(told["disk"]), Path(told["state"])
        if self._kind == "table":  # Lance keeps sockets of its own from its first file on
            sv.from_columns({"x": ["a"]}).to_table(self._disk / "warm").read().head(1)
        self._number = json.loads(self._kept.read_text()) if self._kept.exists() else 0

    def turn(self) -> None:
        folder = self._disk / f"{self._kind}-{self._number}"
        try:
            self._write(folder)
        except (sv.SilvaError, OSError) as error:
            if not is_full(error):
                raise
            say("error", type(error).__name__, str(error)[:200])
            time.sleep(0.05)
            return
        self._check(folder)
        partly = self._kept.with_suffix(".part")
        partly.write_text(json.dumps(self._number + 1))
        os.replace(partly, self._kept)
        self._number += 1
        shutil.rmtree(folder, ignore_errors=True)
        say("done", self._number)

    def _write(self, folder: Path) -> None:
        made = rows(self._number)
        if self._kind == "tar":
            made = made.derive(key=lambda x: str(x)).drop("x")
        write = getattr(made, f"to_{self._kind}")
        write(folder, shard_rows=SHARD, cache="off", **self._loader)

    def _check(self, folder: Path) -> None:
        """Every row once, in order, as it was; and nothing else."""
        wanted = expected(self._number)
        found = [self._row(row) for row in self._read(folder)]
        if self._kind == "table":
            found, wanted = sorted(found), sorted(wanted)
        if found != [(x, f"row {x}" * 20) for x in wanted]:
            short = [x for x, _ in found]
            raise AssertionError(f"{folder.name} holds {short}, not {wanted}")
        if self._kind == "table":
            sv.Table.open(folder).gc()
            assert_no_orphans(folder)
            return
        shards = {f"part-{i:05}.{self._kind}" for i in range(-(-len(wanted) // SHARD))}
        if (there := set(os.listdir(folder))) != shards | {"_silva.json", "_silva.lock"}:
            raise AssertionError(f"{folder.name} holds {sorted(there)}, not {sorted(shards)}")

    def _read(self, folder: Path) -> sv.Pipeline:
        return getattr(sv, f"read_{self._kind}")(folder)

    def _row(self, row: dict[str, Any]) -> Any:
        if self._kind == "tar":
            return int(row["key"]), row["txt"].decode()
        return row["x"], row["txt"]


if __name__ == "__main__":
    told = start()
    again_and_again(told, Job(told).turn)
