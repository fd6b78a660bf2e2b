"""Steps that raise whatever there is to raise, in every place where silva calls user code."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import silva as sv


class Panic(BaseException):
    """As the panics of native libraries are: no Exception."""


class NoMessage(Exception):
    def __str__(self) -> str:
        raise ValueError("no message")

    __repr__ = __str__


class LeavesWhenShown(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class NoReduce(Exception):
    def __reduce__(self) -> Any:
        raise GeneratorExit


class NoTraceback(Exception):
    @property
    def __traceback__(self) -> Any:
        raise RuntimeError("no traceback")

    @__traceback__.setter
    def __traceback__(self, value: Any) -> None:
        pass


class OddNotes(Exception):
    __notes__ = 5


class Locked(Exception):
    def __init__(self) -> None:
        super().__init__("holds what cannot be pickled")
        self.lock = threading.Lock()


class NotRebuilt(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("pickles, and cannot be rebuilt")


def _recurse() -> Any:
    return _recurse()


def _recursion() -> Any:
    gc.disable()  # a collection at the limit would run finalisers that fail there
    try:
        return _recurse()
    finally:
        gc.enable()


def _local() -> BaseException:
    class Local(Exception):
        pass

    return Local("of a class that is local")


def _raised(make: Callable[[], BaseException]) -> Callable[[], Any]:
    def fail() -> Any:
        raise make()

    return fail


def _next_of_nothing() -> Any:
    return next(iter(()))


KINDS: dict[str, Callable[[], Any]] = {
    "ValueError": _raised(lambda: ValueError("no such thing")),
    "StopIteration": _next_of_nothing,
    "StopAsyncIteration": _raised(StopAsyncIteration),
    "GeneratorExit": _raised(GeneratorExit),
    "SystemExit": _raised(lambda: SystemExit(3)),
    "CancelledError": _raised(asyncio.CancelledError),
    "Panic": _raised(lambda: Panic("index out of bounds")),
    "NoMessage": _raised(NoMessage),
    "LeavesWhenShown": _raised(LeavesWhenShown),
    "NoReduce": _raised(lambda: NoReduce("cannot be pickled")),
    "NoTraceback": _raised(lambda: NoTraceback("has none")),
    "OddNotes": _raised(lambda: OddNotes("has odd notes")),
    "NotRebuilt": _raised(lambda: NotRebuilt(1, 2)),
    "Locked": _raised(Locked),
    "surrogate": _raised(lambda: ValueError("half a pair: \ud800")),
    "ExceptionGroup": _raised(lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")])),
    "BaseExceptionGroup": _raised(lambda: BaseExceptionGroup("one", [KeyboardInterrupt()])),
    "RecursionError": _recursion,
    "MemoryError": _raised(MemoryError),
    "local class": _raised(_local),
}
COUNT = 60
BAD = {3 * i + 1: kind for i, kind in enumerate(KINDS)}
"""By row: what is raised there. Neighbours are good, and so are the first row and the last."""


def fail_if_bad(x: int) -> int:
    if int(x) in BAD:
        KINDS[BAD[int(x)]]()
    return int(x)


class Odd:
    """A value that raises when it is asked for its truth, length, items or array."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __bool__(self) -> bool:
        return fail_if_bad(self.x) >= 0

    def __iter__(self) -> Any:
        yield fail_if_bad(self.x)
        yield 0


class OddList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        fail_if_bad(self[0])
        return super().__iter__()


class OddArray:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        for x in self.x.tolist():
            fail_if_bad(x)
        return np.asarray(self.x)


def with_rng(x: int, rng: Any) -> float:
    fail_if_bad(x)
    return float(rng.random())


@sv.batched
def on_columns(x: Any) -> Any:
    for value in x.tolist():
        fail_if_bad(value)
    return x * 2


@sv.batched
def odd_array(x: Any) -> Any:
    return OddArray(x)


@sv.stateful
class Model:
    def __call__(self, x: int) -> int:
        return fail_if_bad(x)


def on_row(row: dict[str, Any]) -> dict[str, Any]:
    return {"y": fail_if_bad(row["x"])}


def _kernel(columns: Any, params: Any, draw: Any) -> Any:
    from silva.columns import Values

    return Values([fail_if_bad(x) for x in columns[0].rows()])


class Number(sv.Expr):
    def checked(self) -> Any:
        return self._call("attack.checked")


class Dataset:
    def __init__(self, values: list[int]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, i: int) -> dict[str, int]:
        return {"x": fail_if_bad(self.values[i])}


class DatasetOfMany(Dataset):
    def __getitems__(self, places: list[int]) -> Any:
        return map(self.__getitem__, places)  # ends at a StopIteration without a word


def numbers(values: list[int] | None = None) -> sv.Pipeline:
    return sv.from_columns({"x": np.array(range(COUNT) if values is None else values)})


def _operator(values: list[int]) -> sv.Pipeline:
    sv.register_operator(sv.Operator("attack.checked", _kernel))
    return numbers(values).derive(y=Number("x").checked())


def _collate(rows: list[dict[str, int]]) -> dict[str, Any]:
    return {"x": np.array([fail_if_bad(row["x"]) for row in rows])}


STEPS: dict[str, Callable[[list[int]], sv.Pipeline]] = {
    "derive": lambda v: numbers(v).derive(y=fail_if_bad),
    "derive with rng": lambda v: numbers(v).derive(y=with_rng),
    "derive several": lambda v: numbers(v).derive(lambda x: Odd(x), into=("y", "z")),
    "stateful": lambda v: numbers(v).derive(y=Model()),
    "operator": _operator,
    "batched": lambda v: numbers(v).derive(y=on_columns),
    "batched, an odd array": lambda v: numbers(v).derive(y=odd_array),
    "filter": lambda v: numbers(v).filter(lambda x: fail_if_bad(x) >= 0),
    "filter, batched": lambda v: numbers(v).filter(on_columns),
    "filter, an odd truth": lambda v: numbers(v).filter(lambda x: Odd(x)),
    "explode": lambda v: numbers(v).derive(y=lambda x: OddList([x, -1])).explode("y"),
    "map_rows": lambda v: numbers(v).map_rows(on_row, into=("y",)),
    "after batch": lambda v: numbers(v).batch(1).derive(y=lambda x: fail_if_bad(x[0])),
    "filter after batch": lambda v: numbers(v).batch(1).filter(lambda x: Odd(x[0])),
    "collate": lambda v: numbers(v).batch(1, collate=_collate),
    "dataset": lambda v: sv.from_torch(Dataset(v)),
    "dataset of many at once": lambda v: sv.from_torch(DatasetOfMany(v)),
}
QUICK = ("derive", "batched", "filter, an odd truth", "after batch", "dataset")
"""The steps that are tried in processes by default; a process takes long to start."""
BATCHED = ("after batch", "filter after batch", "collate")


def pipeline_of(step: str, values: list[int] | None = None) -> sv.Pipeline:
    made = STEPS[step](list(range(COUNT)) if values is None else values)
    return made if step in BATCHED else made.batch(4)
