"""The words that drawn pipelines are written in, beside silva's own.

A drawn pipeline is a text; `from fuzz_words import *` is all that it needs to run.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from fuzz_data import arrow, folder, items, memory, torch_map, torch_sized, torch_stream
from fuzz_files import csv, files, ipc, jsonl, lines, npy, parquet, table, tar
from fuzz_own import own_rows, own_units

import silva as sv

__all__ = [
    "HISTORY", "PRICES", "Adds", "arrow", "batched_fails", "counts", "csv", "fails", "fails_rng",
    "fails_row", "files", "folder", "global_draw", "in_rows", "ipc", "items", "jsonl", "lines",
    "looks_around", "memory", "np", "npy", "own_rows", "own_units", "owned", "parquet", "random",
    "shown", "sv", "table", "tar",
    "torch_draw", "torch_map", "torch_sized", "torch_stream",
]  # fmt: skip

# Errors of every kind, as steps raise them.


class Own(BaseException):
    """Of nobody's family."""


class BadStr(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class BadRepr(ValueError):
    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__


class BadReduce(ValueError):
    def __reduce__(self) -> Any:
        raise RuntimeError("cannot be pickled")


class NoWayBack(ValueError):
    """Pickles, and cannot be rebuilt."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


class ByeReduce(ValueError):
    def __reduce__(self) -> Any:
        raise SystemExit(3)


class Unpicklable(ValueError):
    def __init__(self, x: int) -> None:
        super().__init__(x)
        self.lock = threading.Lock()


def _recurse(x: int) -> int:
    return 1 + _recurse(x + 1)


def _group(kind: Any, inner: Any) -> Callable[[int], BaseException]:
    return lambda x: kind("several", [inner(x), ValueError(x)])


ERRORS: dict[str, Callable[[int], BaseException]] = {
    "ValueError": lambda x: ValueError(f"row {x}"),
    "KeyError": KeyError,
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "GeneratorExit": GeneratorExit,
    "SystemExit": SystemExit,
    "CancelledError": lambda x: asyncio.CancelledError(x),
    "Own": Own,
    "BadStr": BadStr,
    "BadRepr": BadRepr,
    "BadReduce": BadReduce,
    "ByeReduce": ByeReduce,
    "NoWayBack": lambda x: NoWayBack(x, x),
    "Unpicklable": Unpicklable,
    "ExceptionGroup": _group(ExceptionGroup, KeyError),
    "BaseExceptionGroup": _group(BaseExceptionGroup, Own),
    "MemoryError": MemoryError,
    "OSError": lambda x: OSError(2, "not there", f"file {x}"),
    "RowError": lambda x: sv.RowError("not mine", key=f"9:{x}", step="elsewhere"),
    "StateError": lambda x: sv.StateError(f"not a state: {x}"),
    "EOFError": EOFError,
    "ConnectionError": lambda x: ConnectionResetError(f"by peer {x}"),
}


def throw(kind: str, x: int) -> None:
    if kind == "next":
        next(iter(()))
    if kind == "RecursionError":
        gc.disable()  # a collection at the limit would run finalisers that fail there
        try:
            _recurse(x)
        finally:
            gc.enable()
    raise ERRORS[kind](x)


KINDS = ("next", "RecursionError", *ERRORS)


def fails(kind: str, at: Collection[int], then: Callable[[int], Any] = abs) -> Any:
    """A function of `x` that raises on some rows."""

    def step(x):
        if x in at:
            throw(kind, x)
        return then(x)

    return step


def fails_rng(kind: str, at: Collection[int]) -> Any:
    def step(x, rng):
        drawn = rng.integers(1000)
        if x in at:
            throw(kind, x)
        return drawn

    return step


def fails_row(kind: str, at: Collection[int]) -> Any:
    """For `map_rows`."""

    def step(row):
        if row["x"] in at:
            throw(kind, row["x"])
        return {**row, "x": row["x"] + 1}

    return step


def batched_fails(kind: str, at: Collection[int], size: int | None = None) -> Any:
    def step(x):
        for value in x.tolist():
            if value in at:
                throw(kind, value)
        return x * 2

    return sv.batched(step, size=size)


# Functions that do more than compute.


def looks_around() -> Any:
    """A batched function that must be refused: a row's result depends on its neighbours."""

    def step(x):
        return x - x.min()

    return sv.batched(step)


def counts(limit: int) -> Any:
    """A batched function of fixed chunks."""

    def step(x):
        return x - x.mean()

    return sv.batched(step, size=limit)


def owned(column: str) -> Any:
    def step(a):
        if isinstance(a, np.ndarray):
            a[...] = 0
        return a

    return sv.owns("a")(step)


def shown(value: Any) -> str:
    """The value as text. numpy prints a masked array without a mask otherwise than its unpickled
    copy, which has one of which nothing is masked."""
    return str(value.tolist() if isinstance(value, np.ma.MaskedArray) else value)


def in_rows(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch that does not put its rows into arrays."""
    return {"rows": rows}


def global_draw(which: str) -> Any:
    """A function that draws from a generator that everybody shares."""

    def python(x):
        return x + random.random()

    def numpy(x):
        return x + np.random.rand()

    def both(x):
        return random.randrange(100) if x % 2 else int(np.random.randint(100))

    return {"python": python, "numpy": numpy, "both": both}[which]


def torch_draw() -> Any:
    def step(x):
        import torch

        return torch.rand(2).numpy() + x

    return step


@sv.stateful
class Adds:
    """Built once in each worker, with a random number of its own."""

    def __init__(self, number: int) -> None:
        self.number = number + random.random()

    def __call__(self, x):
        return x + self.number


# Other sides of joins.

PRICES = {
    "k": np.arange(0, 60, 3),
    "price": np.linspace(0, 1, 20, dtype=np.float32),
    "tags": [[i] * (i % 3) for i in range(20)],
    "name": [f"item {i}" for i in range(20)],
}
HISTORY = {
    "s": [f"s{i % 12}" for i in range(60)],
    "at": np.random.default_rng(5).random(60),
    "seen": np.random.default_rng(6).random(60) * 1.3,
    "score": [None if i % 7 == 0 else i for i in range(60)],
}
