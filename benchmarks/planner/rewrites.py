"""Six pipelines as they are often written, and as a careful engineer writes them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

import silva as sv

_LOOPS = 2000
"""Rounds of the slow function: about 10 microseconds."""
_BATCH = 32
k = sv.col("k")


def slow(x: int) -> int:
    for _ in range(_LOOPS):
        pass
    return x + 1


def length(word: str) -> int:
    return slow(len(word))


def cut(x: int) -> list[int]:
    return [slow(x)] * 4


def _rows(count: int) -> sv.Pipeline:
    return sv.from_columns({"x": list(range(count)), "k": [i % 40 for i in range(count)]})


def _words(count: int) -> pa.Array:
    return pa.array([f"word {i % 50}" for i in range(count)])


def _late_select(count: int) -> sv.Pipeline:
    return _rows(count).derive(z=slow).batch(_BATCH).select("x")


def _early_select(count: int) -> sv.Pipeline:
    return _rows(count).select("x").batch(_BATCH)


def _late_concat(count: int) -> sv.Pipeline:
    both = [_rows(count // 2).derive(z=slow) for _ in range(2)]
    return sv.concat(both).filter(k == 3).batch(_BATCH)


def _early_concat(count: int) -> sv.Pipeline:
    return sv.concat([_rows(count // 2).filter(k == 3).derive(z=slow) for _ in range(2)]).batch(
        _BATCH
    )


def _late_rename(count: int) -> sv.Pipeline:
    return _rows(count).derive(z=slow).rename(k="kind").filter(sv.col("kind") == 3).batch(_BATCH)


def _early_rename(count: int) -> sv.Pipeline:
    return _rows(count).filter(k == 3).derive(z=slow).rename(k="kind").batch(_BATCH)


def _late_explode(count: int) -> sv.Pipeline:
    return _rows(count).derive(z=cut).explode("z").filter(k == 3).batch(_BATCH)


def _early_explode(count: int) -> sv.Pipeline:
    return _rows(count).filter(k == 3).derive(z=cut).explode("z").batch(_BATCH)


def _each_value(count: int) -> sv.Pipeline:
    return sv.from_arrow(pa.table({"word": _words(count)})).derive(z=length).batch(_BATCH)


def _once_a_value(count: int) -> sv.Pipeline:
    words = _words(count).dictionary_encode()
    return sv.from_arrow(pa.table({"word": words})).derive(z=length).batch(_BATCH)


def _twice(count: int) -> sv.Pipeline:
    return _rows(count).derive(y=slow).derive(z=slow).batch(_BATCH)


def _once(count: int) -> sv.Pipeline:
    return _rows(count).derive(y=slow).derive(z=sv.col("y")).batch(_BATCH)


Build = Callable[[int], sv.Pipeline]

REWRITES: dict[str, tuple[Build, Build]] = {
    "a column that is dropped after batch": (_late_select, _early_select),
    "a filter after concat": (_late_concat, _early_concat),
    "a filter after rename": (_late_rename, _early_rename),
    "a filter after explode": (_late_explode, _early_explode),
    "a function of a text with few values": (_each_value, _once_a_value),
    "a function that is derived twice": (_twice, _once),
}
"""By what is written badly: as written, and by hand."""
